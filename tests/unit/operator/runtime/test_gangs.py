"""The group of a job's workers against an API server in memory: found out, made once, never in the way."""

from typing import Any

import pytest

from dgl_operator.runtime.cluster import Refused
from dgl_operator.runtime.gangs import SERVED_SECONDS
from dgl_operator.runtime.kinds import Json, Kind
from tests.support.jobs import a_pod_status, a_raw_job
from tests.unit.operator.runtime.test_reconcile import (
    LAUNCHER_WAITS,
    PARTITIONER_DONE,
    Operator,
    partitioned,
    training,
)

GROUP = (Kind.POD_GROUP, "default", "sage-workers")
COSCHEDULED = (Kind.COSCHEDULING_POD_GROUP, "default", "sage-workers")
BOTH = (Kind.POD_GROUP, Kind.COSCHEDULING_POD_GROUP)


def an_operator(*served: Kind, scheduler: str = "", **policy: Any) -> Operator:
    job = a_raw_job(runPolicy={"schedulingPolicy": policy, "backoffLimit": 1})
    if scheduler:
        job["spec"]["dglReplicaSpecs"]["Worker"]["template"]["spec"]["schedulerName"] = scheduler
    operator = Operator(job)
    operator.cluster.served.update(served)
    return operator


def blocked(operator: Operator) -> str | None:
    """Reason of the condition, None while it is not true."""
    conditions = operator.status.get("conditions", [])
    found = [each for each in conditions if each["type"] == "Blocked" and each["status"] == "True"]
    return found[0]["reason"] if found else None


def worker(operator: Operator, index: int = 0) -> Json:
    return operator.cluster.objects[Kind.POD, "default", f"sage-worker-{index}"]


def place(operator: Operator, *indices: int) -> None:
    """Give workers a node, as the scheduler does."""
    for index in indices:
        pod = worker(operator, index)
        operator.cluster.add({**pod, "spec": {**pod["spec"], "nodeName": "node1"}})


def about_groups(operator: Operator) -> list[str]:
    requests = [*operator.cluster.reads, *operator.cluster.writes]
    return [request for request in requests if "PodGroup" in request]


def test_a_job_without_a_policy_asks_for_nothing_new() -> None:
    """Neither discovery nor a group, in a cluster that has both APIs."""
    operator = Operator()
    operator.cluster.served.update(BOTH)
    operator.look()
    seen = about_groups(operator)
    partitioned(operator)
    operator.cluster.remove(Kind.POD, "default", "sage-worker-1")
    operator.look()
    seen += about_groups(operator)

    assert seen == []
    assert operator.names(Kind.POD_GROUP) == operator.names(Kind.COSCHEDULING_POD_GROUP) == set()
    assert "schedulingGroup" not in worker(operator)["spec"]


def test_the_group_is_made_before_the_first_pod_and_owned_by_the_job() -> None:
    """It goes with the job, and what prevents it shows at once."""
    operator = an_operator(*BOTH)

    operator.look()

    group = operator.cluster.objects[GROUP]
    assert operator.cluster.writes[0] == "create PodGroup sage-workers"
    assert group["metadata"]["ownerReferences"][0]["uid"] == "job-uid"
    assert group["spec"] == {"schedulingPolicy": {"gang": {"minCount": 2}}}
    assert COSCHEDULED not in operator.cluster.objects


def test_workers_join_the_group_and_it_is_asked_for_until_they_have_nodes() -> None:
    """Then it costs no request any more."""
    operator = an_operator(Kind.POD_GROUP)
    partitioned(operator)
    assert worker(operator, 1)["spec"]["schedulingGroup"] == {"podGroupName": "sage-workers"}

    place(operator, 0)
    operator.look()
    waiting = about_groups(operator)
    place(operator, 1)
    operator.look()

    assert waiting == ["get PodGroup sage-workers"]
    assert about_groups(operator) == []


def test_coscheduling_serves_where_kubernetes_has_no_groups() -> None:
    """By its label; the pods have no field that an older API server would refuse."""
    operator = an_operator(Kind.COSCHEDULING_POD_GROUP, scheduleTimeoutSeconds=60)

    partitioned(operator)

    assert operator.cluster.objects[COSCHEDULED]["spec"] == {"minMember": 2, "scheduleTimeoutSeconds": 60}
    assert worker(operator)["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "sage-workers"
    assert "schedulingGroup" not in worker(operator)["spec"]


def test_without_either_api_the_job_is_blocked_and_goes_on_when_one_comes() -> None:
    """No pod runs and no graph is partitioned for a training that could not get its nodes."""
    operator = an_operator()

    outcome = operator.look()
    assert (blocked(operator), outcome.retry) == ("GangSchedulingUnavailable", True)
    assert operator.names(Kind.POD) == set()

    operator.cluster.served.add(Kind.POD_GROUP)
    operator.settle()
    assert (blocked(operator), GROUP in operator.cluster.objects) == (None, True)
    assert operator.names(Kind.POD) == {"sage-launcher", "sage-partitioner"}


def test_what_the_api_cannot_honour_blocks_the_job() -> None:
    """Rather than being dropped silently."""
    operator = an_operator(Kind.POD_GROUP, minResources={"cpu": 4})

    operator.look()

    assert blocked(operator) == "SchedulingPolicyUnsupported"
    assert operator.names(Kind.POD) == operator.names(Kind.POD_GROUP) == set()


def test_of_two_apis_the_one_that_can_honour_the_policy_is_taken() -> None:
    """Kubernetes' own comes first, but it knows no time-out."""
    operator = an_operator(*BOTH, scheduler="scheduler-plugins-scheduler", scheduleTimeoutSeconds=60)

    partitioned(operator)

    assert operator.cluster.objects[COSCHEDULED]["spec"] == {"minMember": 2, "scheduleTimeoutSeconds": 60}
    assert (blocked(operator), GROUP in operator.cluster.objects) == (None, False)


def test_workers_of_a_named_scheduler_join_a_group_that_it_knows() -> None:
    """Coscheduling ignores Kubernetes' own groups, and would bind them one by one."""
    operator = an_operator(*BOTH, scheduler="scheduler-plugins-scheduler")

    partitioned(operator)

    assert (COSCHEDULED in operator.cluster.objects, GROUP in operator.cluster.objects) == (True, False)
    assert worker(operator)["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "sage-workers"


def test_a_named_scheduler_has_the_groups_of_the_cluster_where_there_are_no_others() -> None:
    """It may be another profile of Kubernetes' own."""
    operator = an_operator(Kind.POD_GROUP, scheduler="bin-packing")

    partitioned(operator)

    assert worker(operator)["spec"]["schedulingGroup"] == {"podGroupName": "sage-workers"}


def test_the_default_scheduler_by_its_name_has_kubernetes_own_groups() -> None:
    """As if no name were given."""
    operator = an_operator(*BOTH, scheduler="default-scheduler")

    operator.look()

    assert (COSCHEDULED in operator.cluster.objects, GROUP in operator.cluster.objects) == (False, True)


@pytest.mark.parametrize("scheduler", ["", "default-scheduler"])
def test_the_second_api_is_not_taken_for_workers_of_the_clusters_own_scheduler(scheduler: str) -> None:
    """It would bind them one by one."""
    operator = an_operator(*BOTH, scheduler=scheduler, scheduleTimeoutSeconds=60)

    operator.look()

    assert blocked(operator) == "SchedulingPolicyUnsupported"
    assert COSCHEDULED not in operator.cluster.objects


def test_a_job_keeps_the_api_that_it_has_begun_with() -> None:
    """A worker that is created anew must not wait in a group of its own."""
    operator = an_operator(Kind.COSCHEDULING_POD_GROUP)
    partitioned(operator)
    place(operator, 0, 1)
    operator.cluster.served.add(Kind.POD_GROUP)
    operator.cluster.remove(Kind.POD, "default", "sage-worker-0")

    operator.settle()

    assert GROUP not in operator.cluster.objects
    assert worker(operator)["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "sage-workers"


def test_a_group_that_is_deleted_by_hand_is_made_again_while_workers_wait() -> None:
    """Without it no worker would ever get a node."""
    operator = an_operator(Kind.POD_GROUP)
    partitioned(operator)
    operator.cluster.remove(*GROUP)

    operator.look()

    assert GROUP in operator.cluster.objects


def test_the_next_attempt_has_the_same_group() -> None:
    """Its pods have the same names; the group is neither made twice nor missing."""
    operator = an_operator(Kind.POD_GROUP)
    training(operator)
    uid = operator.cluster.objects[GROUP]["metadata"]["uid"]
    operator.pod("sage-launcher", a_pod_status("Failed"))
    operator.settle_for(360)

    partitioned(operator)

    assert operator.status["attempt"] == 1
    assert operator.cluster.objects[GROUP]["metadata"]["uid"] == uid
    assert worker(operator)["metadata"]["labels"]["dgl-operator/attempt"] == "1"
    assert worker(operator)["spec"]["schedulingGroup"] == {"podGroupName": "sage-workers"}


@pytest.mark.parametrize(
    ("leaving", "reason"), [({}, "ObjectConflict"), ({"deletionTimestamp": "now"}, "PredecessorLeaving")]
)
def test_a_group_of_somebody_else_is_left_alone(leaving: Json, reason: str) -> None:
    """Of a job of the same name that was deleted, say: Kubernetes keeps its group until its pods are gone."""
    operator = an_operator(Kind.POD_GROUP)
    metadata = {"name": "sage-workers", "namespace": "default", **leaving}
    foreign = operator.cluster.add(
        {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": metadata}
    )

    operator.look()

    assert blocked(operator) == reason
    assert (operator.cluster.objects[GROUP], operator.names(Kind.POD)) == (foreign, set())


def test_a_group_that_is_being_deleted_is_waited_for_before_the_first_worker() -> None:
    """It goes as soon as Kubernetes sees no pod of it, and workers must not be created in between."""
    operator = an_operator(Kind.POD_GROUP)
    operator.look()
    group = operator.cluster.objects[GROUP]
    operator.cluster.add({**group, "metadata": {**group["metadata"], "deletionTimestamp": "now"}})
    operator.pod("sage-launcher", LAUNCHER_WAITS)
    operator.pod("sage-partitioner", PARTITIONER_DONE)
    operator.settle()
    assert (blocked(operator), "sage-worker-0" in operator.names(Kind.POD)) == ("PredecessorLeaving", False)

    operator.cluster.remove(*GROUP)
    operator.settle()

    assert {"sage-worker-0", "sage-worker-1"} <= operator.names(Kind.POD)


def test_an_operator_without_the_right_says_so_on_the_job() -> None:
    """Its image was upgraded before its rules."""
    operator = an_operator(Kind.POD_GROUP)

    def admit(body: Json) -> None:
        if body["kind"] == "PodGroup":
            raise Refused(403, "Forbidden", "podgroups.scheduling.k8s.io is forbidden")

    operator.cluster.admit = admit
    operator.look()

    assert blocked(operator) == "Forbidden"
    assert operator.names(Kind.POD) == set()


def test_an_api_that_was_found_is_not_looked_for_at_each_look() -> None:
    """But again after some minutes."""
    operator = an_operator(Kind.POD_GROUP)
    operator.look()
    operator.cluster.remove(Kind.POD, "default", "sage-launcher")
    operator.cluster.remove(Kind.POD, "default", "sage-partitioner")
    native = "discover PodGroup scheduling.k8s.io/v1alpha2"

    operator.look()
    soon = about_groups(operator)
    operator.cluster.remove(Kind.POD, "default", "sage-launcher")
    operator.cluster.remove(Kind.POD, "default", "sage-partitioner")
    operator.seconds += SERVED_SECONDS
    operator.look()

    assert native not in soon
    assert native in about_groups(operator)
