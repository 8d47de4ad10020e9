"""`python -m tests.e2e.storage_times`: from apply to the training with everything on S3; writes the table.

One job after the other: without a kept partition, with one, with one of other options; beside the second, at
the same moment, one whose partition costs nothing. Each is deleted when its training begins. Needs the
cluster that KUBECONFIG names, with the images.
"""

import os
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dglrun.commands import program
from tests.e2e import install, node_folder, storage_jobs
from tests.e2e.conftest import account_ready
from tests.e2e.jobs import Job, scripts_config_map
from tests.e2e.kubectl import Kubectl, Object
from tests.e2e.node_folder import NodeFolder
from tests.e2e.storage_jobs import CREATE, LIMIT, Store, other_options, until_training, without_partitioning
from tests.support import measured

TABLE = "storage"


def main() -> int:
    """Measure and write; 1 where a kept partition delays the training by more than it may."""
    load = os.getloadavg()[0]
    with ExitStack() as stack:
        stack.enter_context(program.raising_terminated())  # a deadline's SIGTERM leaves nothing behind either
        kubectl = stack.enter_context(_namespace())
        volume = stack.enter_context(node_folder.made(kubectl))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        times = measure(stack.enter_context(storage_jobs.store(kubectl, volume, folder)), volume)
    for row in rows(times):
        print(measured.row(row), flush=True)
    delay = times["warm"] - times["ready"]
    measured.write(TABLE, rows(times), f"Load average before the run: {load:.1f}.")
    print(f"a kept partition delays the training by {delay:.1f} s, at most {LIMIT:g} s", flush=True)
    return int(delay > LIMIT)


def measure(store: Store, volume: NodeFolder) -> dict[str, float]:
    """Seconds from apply to the training of each job."""
    store.run(CREATE)
    (cold,) = _begun(store.job(1))
    warm, ready = _begun(store.job(2), _submitted(store.kubectl, without_partitioning(volume)))
    (other,) = _begun(_submitted(store.kubectl, other_options()))
    return {"cold": cold, "warm": warm, "ready": ready, "other": other}


def rows(times: dict[str, float]) -> list[tuple[str, str, str]]:
    """The rows of the table."""
    told = {
        "ready": "nothing on S3, a partition that costs nothing",
        "warm": "the partition is kept on S3",
        "cold": "no partition is kept: the graph is read from S3, partitioned, verified and kept",
        "other": "one of other options is kept: the same again",
    }
    return [
        (words, f"{times[key]:.1f}", f"{times[key] - times['ready']:+.1f}") for key, words in told.items()
    ]


def _begun(*jobs: Job) -> list[float]:
    """Wait until all train; they are gone afterwards."""
    for job in jobs:
        job.wait_phase("Training", "Completed")
    times = [until_training(job) for job in jobs]
    for job in jobs:
        job.kubectl.run("delete", "dgljob", job.name, "--cascade=foreground", "--timeout=120s")
    return times


def _submitted(kubectl: Kubectl, body: Object) -> Job:
    kubectl.apply(body)
    return Job(kubectl, body["metadata"]["name"])


@contextmanager
def _namespace() -> Iterator[Kubectl]:
    """A namespace that goes with the measurement, under the operator that its chart installs."""
    kubectl = Kubectl(f"e2e-{uuid.uuid4().hex[:8]}")
    try:
        install.operator()
        kubectl.run("create", "namespace", kubectl.namespace)
        account_ready(kubectl)
        kubectl.apply(scripts_config_map())
        yield kubectl
    finally:
        kubectl.run("delete", "namespace", kubectl.namespace, "--wait=false", "--ignore-not-found")
        if os.environ.get("DGL_OPERATOR_KEEP") != "1":
            install.remove()


if __name__ == "__main__":
    sys.exit(main())
