"""A job in a queue of the real Kueue that really trains: preempted in its training, it goes on where it was.

Kueue's manager is a process of this host, as in tests/integration/test_kueue.py.
"""

from collections.abc import Iterator

import pytest

from dgl_operator.api import kueue as queued
from tests.e2e import install
from tests.e2e.accuracy import ABOVE_MAJORITY
from tests.e2e.conftest import Submit
from tests.e2e.jobs import Job, main_container, mount_in_workers, tiny
from tests.e2e.kubectl import Kubectl, Object
from tests.e2e.node_folder import NodeFolder
from tests.e2e.test_examples import trained
from tests.support.api_client import ApiServer
from tests.support.kueue_manager import Kueue, kueue
from tests.support.wait import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1800)]

QUEUE, URGENT = "of-the-e2e-test", "urgent-of-the-e2e-test"
PODS_OF_ONE_JOB = 4
"""Launcher, partitioner, two workers: the quota is for one job."""
KEPT = "/kept"
HELD = 3
"""The epoch after which the first attempt waits (tests/e2e/scripts/train_resuming.py)."""
LONG = 600.0
"""Seconds to wait for what takes half a minute on an idle node."""


@pytest.fixture(scope="module")
def manager(operator: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kueue]:
    """A running Kueue with a quota for one job, a class that may preempt, and an operator that asks it."""
    with kueue(ApiServer(), tmp_path_factory.mktemp("kueue")) as running:
        running.put_quota(QUEUE, PODS_OF_ONE_JOB, flavor={})
        running.put_priority(URGENT, 1000)
        install.operator("kueue.enabled=true")
        yield running
        install.operator()
        print(running.log.read_text()[-8000:])


@pytest.fixture
def queue(manager: Kueue, kubectl: Kubectl) -> Kueue:
    """A queue of the test's namespace."""
    manager.put_local_queue("mine", QUEUE, kubectl.namespace)
    return manager


def in_queue(body: Object, **labels: str) -> Object:
    """The job with the queue's label, and perhaps others."""
    body["metadata"]["labels"] = {queued.QUEUE_NAME: "mine", **labels}
    return body


def that_keeps_all(volume: NodeFolder) -> Object:
    """A job whose partition and checkpoints are on a volume; its first training waits after an epoch."""
    flags = ("--partitions", KEPT, "--checkpoints", KEPT, "--checkpoint-interval", "2")
    body = tiny("low", "--hold", str(HELD), flags=flags)
    args = main_container(body, "Launcher")["args"]
    args[args.index("/scripts/train_tiny.py")] = "/scripts/train_resuming.py"
    mount_in_workers(body, volume.source, KEPT)
    return body


def keeps_checkpoints(job: Job, volume: NodeFolder) -> bool:
    """Whether the last one of each rank is on the volume."""
    assert job.phase() not in ("Completed", "Failed"), job.story()
    return len(volume.find("-path", f"*/{job.name}/rank-*/epoch-{HELD}.pt")) == 2


def says(job: Job, kind: str) -> tuple[str, str]:
    """Status and reason of a condition of its Workload."""
    body = job.kubectl.get("workloads.kueue.x-k8s.io", queued.workload_name(job.name)) or {}
    found = body.get("status", {}).get("conditions", [])
    return next(((each["status"], each["reason"]) for each in found if each["type"] == kind), ("", ""))


def test_a_job_that_kueue_preempts_in_its_training_goes_on_where_it_was(
    queue: Kueue, submit: Submit, volume: NodeFolder
) -> None:
    """The urgent job has the quota to its end; then the other one partitions nothing and repeats no epoch."""
    low = submit(in_queue(that_keeps_all(volume)))
    wait_for("checkpoints of both ranks", lambda: keeps_checkpoints(low, volume), LONG)

    urgent = submit(in_queue(tiny("urgent"), **{queued.PRIORITY_CLASS: URGENT}))
    wait_for("low Suspended", lambda: low.condition("Suspended").get("reason") == "Evicted", LONG)
    assert says(low, "Evicted") == ("True", "Preempted")
    urgent.wait_phase("Training", "Completed", seconds=LONG)
    assert low.kubectl.get("pod", low.launcher) is None, low.story()
    urgent.wait_phase("Completed", seconds=LONG)
    low.wait_phase("Training", "Completed", seconds=LONG)
    accuracy, majority, log = trained(low)

    status = low.status()
    assert (status["attempt"], len(status["attempts"])) == (1, 2)
    assert status["restarts"]["suspensions"] == 1
    assert (status["restarts"]["failures"], status["restarts"]["disruptions"]) == (0, 0)
    assert "Preempted" in status["attempts"][0]["message"]
    assert f"found the partition {KEPT}/" in low.kubectl.logs(f"{low.name}-partitioner", "main")
    assert all(f"rank {rank} of 400 nodes begins after epoch {HELD}" in log for rank in (0, 1)), log[-3000:]
    assert accuracy >= majority + ABOVE_MAJORITY
    for job in (low, urgent):
        wait_for("Finished", lambda job=job: says(job, "Finished") == ("True", "Succeeded"))  # type: ignore[misc]
    wait_for("the quota free again", lambda: queue.usage(QUEUE).get("pods") == "0")
