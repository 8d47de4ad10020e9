"""Gang scheduling by Kubernetes' own scheduler, on a node that is an object only and holds three workers.

`make coscheduling` runs the same tests with coscheduling: tests/integration/coscheduling.py.
"""

import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from dgl_operator.runtime.cluster import NotFound, Refused
from dgl_operator.runtime.kinds import Json, Kind
from tests.integration.conftest import Submit
from tests.support.api_client import ApiServer
from tests.support.expected_skips import may_lack_gangs
from tests.support.jobs import a_template
from tests.support.operator_process import OperatorProcess
from tests.support.played_job import PlayedJob, a_played_job
from tests.support.wait import wait_for

pytestmark = pytest.mark.integration

ROOM = {"cpu": "3", "memory": "8Gi", "pods": "110"}
NODE_LABEL = "dgl-operator-test/gang"
_MERGE = "application/merge-patch+json"


@dataclass(frozen=True)
class Gangs:
    """A gang scheduler.

    Attributes:
        kind: Of its groups.
        policy: A policy for which the operator takes it.
        scheduler: Its name in a pod, empty for the default one.
    """

    kind: Kind
    policy: Mapping[str, Any] = field(default_factory=dict)
    scheduler: str = ""


@pytest.fixture
def gangs(api: ApiServer) -> Gangs:
    """Kubernetes' own."""
    if api.serves(Kind.POD_GROUP):
        return Gangs(Kind.POD_GROUP)
    lacks = f"the API server has no PodGroup of {Kind.POD_GROUP.api_version}"
    if not may_lack_gangs():
        pytest.fail(f"{lacks}: the one-node cluster was started without it; 'make cluster-up' starts it anew")
    pytest.skip(lacks)


@pytest.fixture
def node(api: ApiServer, namespace: str) -> Iterator[str]:
    """A node for three workers that no kubelet runs; other pods are kept away by a taint."""
    _sweep(api)
    name = f"gang-{uuid.uuid4().hex[:8]}"
    taint = {"key": NODE_LABEL, "effect": "NoSchedule"}
    try:
        api.call(
            "POST",
            Kind.NODE.path(None),
            {"metadata": {"name": name, "labels": {NODE_LABEL: name}}, "spec": {"taints": [taint]}},
        )
        ready = {"type": "Ready", "status": "True", "reason": "Played", "message": ""}
        status = {"allocatable": ROOM, "capacity": ROOM, "conditions": [ready]}
        api.call("PATCH", Kind.NODE.path(None, name) + "/status", {"status": status}, _MERGE)
        yield name
    finally:
        try:
            _end_all(api, namespace)
        finally:
            with suppress(NotFound):
                api.call("DELETE", Kind.NODE.path(None, name))


def _sweep(api: ApiServer) -> None:
    """Remove the nodes that killed runs have left, with all that is bound to them."""
    for node in api.call("GET", f"{Kind.NODE.path(None)}?labelSelector={NODE_LABEL}")["items"]:
        name = node["metadata"]["name"]
        for pod in api.call("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={name}")["items"]:
            _end(api, pod["metadata"]["namespace"], pod["metadata"]["name"])
        with suppress(NotFound):
            api.call("DELETE", Kind.NODE.path(None, name))


def _end_all(api: ApiServer, namespace: str) -> None:
    """Delete the jobs of a test and their pods."""
    for job in api.list(Kind.JOB, namespace):  # first, else its operator would make its pods anew
        with suppress(NotFound):
            api.call("DELETE", Kind.JOB.path(namespace, job["metadata"]["name"]))
    for pod in api.list(Kind.POD, namespace):
        _end(api, namespace, pod["metadata"]["name"])


def _end(api: ApiServer, namespace: str, pod: str) -> None:
    """Delete a pod at once: no kubelet says that its containers have ended."""
    with suppress(NotFound):
        api.call("DELETE", Kind.POD.path(namespace, pod), {"gracePeriodSeconds": 0})


def a_gang(name: str, node: str, gangs: Gangs, *, is_one: bool = True) -> Json:
    """A job of two workers for the node, one CPU each; its other pods are played without a node."""
    given = {"schedulingPolicy": dict(gangs.policy)} if is_one else {}
    body = a_played_job(name, runPolicy=given, partitioner=a_template())
    worker = body["spec"]["dglReplicaSpecs"]["Worker"]["template"]["spec"]
    worker["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    worker |= {"nodeSelector": {NODE_LABEL: node}, "tolerations": [{"operator": "Exists"}]}
    del worker["schedulerName"]
    if gangs.scheduler:
        worker["schedulerName"] = gangs.scheduler
    return body


def partition(*jobs: PlayedJob) -> None:
    """Play jobs up to their workers, side by side."""
    for job in jobs:
        job.reach("Partitioning")
    for job in jobs:
        job.play("partitioner", "Succeeded", ip="10.9.0.2")
    for job in jobs:
        job.await_workers()


def workers(job: PlayedJob) -> tuple[Json, ...]:
    pods = job.api.list(Kind.POD, job.namespace, job.name)
    return tuple(pod for pod in pods if "-worker-" in pod["metadata"]["name"])


def bound(job: PlayedJob) -> int:
    """Workers that have a node."""
    return sum("nodeName" in pod["spec"] for pod in workers(job))


def refused(job: PlayedJob) -> int:
    """Workers for which the scheduler has found no node."""
    found = [each for pod in workers(job) for each in pod["status"].get("conditions", ())]
    return sum((each["type"], each["status"]) == ("PodScheduled", "False") for each in found)


def settled(*jobs: PlayedJob) -> list[int]:
    """Wait until the scheduler has had its say on each worker; returns how many each job has bound."""

    def look() -> list[int] | None:
        counts = [(bound(job), refused(job)) for job in jobs]
        return [each for each, _ in counts] if all(sum(each) == 2 for each in counts) else None

    return wait_for("each worker bound or refused", look)


def edit(job: PlayedJob, **run_policy: Any) -> None:
    """Change the job's run policy as a user does."""
    job.api.call("PATCH", Kind.JOB.path(job.namespace, job.name), {"spec": {"runPolicy": run_policy}}, _MERGE)


def group(job: PlayedJob, gangs: Gangs) -> Json | None:
    return job.api.get(gangs.kind, job.namespace, f"{job.name}-workers")


def test_workers_get_their_nodes_together_or_not_at_all(
    operator: OperatorProcess, submit: Submit, node: str, gangs: Gangs
) -> None:
    """Of two gangs one waits with all its workers, and has its nodes when the other has gone."""
    jobs = [submit(a_gang(name, node, gangs)) for name in ("sage", "rgcn")]

    partition(*jobs)

    assert sorted(settled(*jobs)) == [0, 2]
    first, second = sorted(jobs, key=bound, reverse=True)
    wait_for("shown", lambda: second.condition("Blocked").get("reason") == "Unschedulable")
    assert operator.errors() == 0

    first.delete()
    for index in range(2):
        _end(first.api, first.namespace, f"{first.name}-worker-{index}")
    wait_for("the other gang bound", lambda: bound(second) == 2)
    wait_for("the group gone with its job", lambda: group(first, gangs) is None)


def test_without_a_policy_a_part_of_the_workers_takes_the_room(
    operator: OperatorProcess, submit: Submit, node: str, gangs: Gangs
) -> None:
    """What a gang prevents; and such a job makes no group."""
    jobs = [submit(a_gang(name, node, gangs, is_one=False)) for name in ("sage", "rgcn")]

    partition(*jobs)

    assert sum(settled(*jobs)) == 3
    assert [group(job, gangs) for job in jobs] == [None, None]


def test_a_replaced_worker_and_a_new_attempt_join_the_same_gang(
    operator: OperatorProcess, submit: Submit, node: str, gangs: Gangs
) -> None:
    """Pods of the same names get their nodes in a group that has others, and in one that has lost all."""
    job = submit(a_gang("sage", node, gangs))
    partition(job)
    wait_for("bound", lambda: bound(job) == 2)
    before = group(job, gangs)

    _end(job.api, job.namespace, "sage-worker-0")
    wait_for("the new one bound", lambda: bound(job) == 2)
    edit(job, suspend=True)
    job.await_phase("Suspended")
    for index in range(2):
        _end(job.api, job.namespace, f"sage-worker-{index}")
    wait_for("no pods", lambda: not job.pods())
    edit(job, suspend=False)
    wait_for("a new attempt", lambda: job.status.get("attempt") == 1 and job.pods())
    partition(job)
    wait_for("the new attempt bound", lambda: bound(job) == 2)

    after = group(job, gangs)
    assert before is not None
    assert after is not None
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert operator.errors() == 0


def test_the_policy_of_a_job_neither_changes_nor_goes(submit: Submit, gangs: Gangs) -> None:
    """Pods name their group once and for all."""
    job = submit(a_gang("sage", "none", replace(gangs, policy={"minAvailable": 2})))

    for change in ({"minAvailable": 1}, None):
        with pytest.raises(Refused, match="field is immutable"):
            edit(job, schedulingPolicy=change)
