"""Entry point: `python -m dgl_operator` or `dgl-operator`."""

import logging
import os
import socket
import sys
import uuid
from collections.abc import Sequence
from typing import NoReturn

import kopf

from dgl_operator.runtime import handlers, logs, memory, settings
from dgl_operator.runtime.kube_cluster import KubeCluster
from dgl_operator.runtime.leader_election import Election, LeaderElection
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
    handlers.register(registry, Service(KubeCluster(), chosen, _election(chosen.election)))
    kopf.run(
        registry=registry, clusterwide=not chosen.namespaces, namespaces=chosen.namespaces, standalone=True
    )
    return 0


def _election(election: Election | None) -> LeaderElection | None:
    """A candidate with requests of its own: those of jobs must not hold up a renewal."""
    if election is None:
        return None
    identity = f"{socket.gethostname()}_{uuid.uuid4()}"
    return LeaderElection(KubeCluster(election.call_seconds, retries=0), election, identity, _end_at_once)


def _end_at_once() -> NoReturn:
    """Another operator may act from now on: as Kubernetes' own controllers do, start anew as a candidate."""
    logging.shutdown()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
