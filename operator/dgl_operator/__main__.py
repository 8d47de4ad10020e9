"""Entry point: `python -m dgl_operator` or `dgl-operator`."""

import os
import socket
import sys
from collections.abc import Sequence

import kopf

from dgl_operator.runtime import handlers, logs, memory, settings
from dgl_operator.runtime.kube_cluster import KubeCluster
from dgl_operator.runtime.service import Service


def main(argv: Sequence[str] | None = None) -> int:
    """Run the operator until it is told to stop.

    Args:
        argv: Arguments without the program's name; the process's own if None.
    """
    chosen = settings.parse(argv)
    memory.bound_pools()
    logs.configure(chosen.log_level, chosen.log_format)
    # kopf would look up the user's name, which the arbitrary uid of a container need not have.
    os.environ.setdefault("POD_ID", socket.gethostname())
    registry = kopf.get_default_registry()
    handlers.register(registry, Service(KubeCluster(), chosen))
    kopf.run(
        registry=registry, clusterwide=not chosen.namespaces, namespaces=chosen.namespaces, standalone=True
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
