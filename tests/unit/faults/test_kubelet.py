"""What a played node does next with a pod."""

from typing import Any

import pytest

from dgl_operator.api.v1alpha1 import Phase
from dglrun.contract.names import Mode, Role
from tests.faults import kubelet
from tests.faults.kubelet import Step
from tests.faults.world import Hold
from tests.support.jobs import a_job, a_pod, running

Json = dict[str, Any]
JOB = a_job()


def bound(role: Role, phase: str = "Pending", *, index: int = 0, **given: Any) -> Json:
    pod = a_pod(JOB, role, phase, index=index, **({"containers": []} if phase == "Pending" else {}) | given)
    return {**pod, "spec": {**pod["spec"], "nodeName": "here"}}


def step(pod: Json, until: Phase, *others: Json, mode: Mode = Mode.DGL_API) -> Step | None:
    return kubelet.next_step(pod, [pod, *others], mode, until)


def test_a_new_pod_gets_a_node() -> None:
    """Before anything of it runs."""
    assert step(a_pod(JOB, Role.LAUNCHER, "Pending", containers=[]), Phase.PENDING) is Step.BIND


@pytest.mark.parametrize(
    ("until", "due"), [(Phase.PENDING, None), (Phase.STARTING, Step.INIT), (Phase.PARTITIONING, Step.RUN)]
)
def test_a_partitioner_gets_as_far_as_its_job_may(until: Phase, due: Step | None) -> None:
    """The phase follows from what runs."""
    assert step(bound(Role.PARTITIONER), until) is due


def test_a_launcher_trains_when_all_workers_are_ready() -> None:
    """As its init containers see to."""
    launcher = bound(Role.LAUNCHER, init=[running("watcher-loop-partitioner")])
    workers = [bound(Role.WORKER, "Running", index=index) for index in range(2)]

    assert step(launcher, Phase.TRAINING, workers[0]) is None
    assert step(launcher, Phase.TRAINING, *workers) is Step.RUN


def test_a_pod_that_is_deleted_ends_before_it_goes() -> None:
    """The containers of a pod with a node take their time."""
    pod = bound(Role.WORKER, "Running", deleting=True)
    ended = {**pod, "status": kubelet.status_after(Step.END, pod)}

    assert step(pod, Phase.TRAINING) is Step.END
    assert ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143
    assert step(ended, Phase.TRAINING) is Step.REMOVE


def test_a_pod_that_met_its_fault_is_not_touched_until_it_is_deleted() -> None:
    """Else its kubelet would take the fault back."""
    pod = bound(Role.WORKER)
    hold = Hold(Mode.DGL_API, Phase.TRAINING, untouched=frozenset({pod["metadata"]["uid"]}))
    gone = {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "2026-11-21T11:59:30Z"}}

    assert hold.next_step(pod, [pod]) is None
    assert hold.next_step(gone, [gone]) is Step.REMOVE
