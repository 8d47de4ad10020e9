"""When the group of the workers has to be there, and what of a schedulingPolicy cannot be honoured."""

from typing import Any

import pytest

from dgl_operator.api.gang import GangApi
from dgl_operator.api.v1alpha1 import DGLJob
from dgl_operator.domain import gang, validate
from dglrun.contract.names import Mode, Role
from tests.support.jobs import a_job, a_pod, a_template, observed

BEFORE = frozenset({Role.LAUNCHER, Role.PARTITIONER})
AFTER = frozenset({Role.LAUNCHER, Role.WORKER})


def a_gang(worker: dict[str, Any] | None = None, mode: Mode = Mode.DGL_API, **policy: Any) -> DGLJob:
    return a_job(worker=worker, mode=mode, runPolicy={"schedulingPolicy": policy})


def placed(job: DGLJob, *indices: int) -> list[dict[str, Any]]:
    """Workers of which the given ones have a node."""
    pods = [a_pod(job, Role.WORKER, index=index) for index in range(2)]
    for index in indices:
        pods[index]["spec"]["nodeName"] = "node1"
    return pods


def test_a_job_without_a_policy_never_needs_a_group() -> None:
    """It must cost no request."""
    job = a_job()

    assert not gang.is_needed(job, observed(job), AFTER)


def test_the_group_is_needed_before_the_first_pod_and_not_while_the_graph_is_partitioned() -> None:
    """What prevents it shows before the hours of partitioning."""
    job = a_gang()

    assert gang.is_needed(job, observed(job), BEFORE)
    assert not gang.is_needed(job, observed(job, a_pod(job, Role.LAUNCHER)), BEFORE)


@pytest.mark.parametrize(("indices", "is_needed"), [((), True), ((0,), True), ((0, 1), False)])
def test_the_group_is_needed_until_each_worker_has_a_node(indices: tuple[int, ...], is_needed: bool) -> None:
    """A group that somebody deletes meanwhile would keep the others waiting."""
    job = a_gang()

    seen = observed(job, a_pod(job, Role.LAUNCHER), *placed(job, *indices))

    assert gang.is_needed(job, seen, AFTER) is is_needed


def test_the_group_is_needed_for_a_worker_that_is_created_anew() -> None:
    """The new pod names it."""
    job = a_gang()

    assert gang.is_needed(job, observed(job, a_pod(job, Role.LAUNCHER), placed(job, 1)[1]), AFTER)


@pytest.mark.parametrize(
    ("policy", "named"),
    [
        ({"minResources": {"cpu": 2}}, "minResources"),
        ({"scheduleTimeoutSeconds": 60}, "scheduleTimeoutSeconds"),
        (
            {"minResources": {"cpu": 2}, "scheduleTimeoutSeconds": 60},
            "minResources and scheduleTimeoutSeconds",
        ),
    ],
)
def test_what_kubernetes_own_group_cannot_say_is_refused_by_name(policy: dict[str, Any], named: str) -> None:
    """Coscheduling can say all of it."""
    job = a_gang(**policy)

    problem = gang.unsupported(job, GangApi.KUBERNETES)

    assert problem is not None
    assert problem.reason == "SchedulingPolicyUnsupported"
    assert f"schedulingPolicy: {named} cannot be honoured" in problem.message
    assert gang.unsupported(job, GangApi.COSCHEDULING) is None


def test_what_both_apis_can_say_is_supported() -> None:
    """The priority is that of the pods."""
    job = a_gang(minAvailable=2, priorityClass="high")

    assert [gang.unsupported(job, api) for api in GangApi] == [None, None]


def test_the_problem_of_a_cluster_without_gangs_names_both_apis() -> None:
    """An administrator reads what to install."""
    problem = gang.unavailable()

    assert problem.reason == "GangSchedulingUnavailable"
    assert all(api.value in problem.message for api in GangApi)


def with_pod(**spec: Any) -> dict[str, Any]:
    template = a_template()
    return {**template, "spec": {**template["spec"], **spec}}


LABELLED = {**a_template(), "metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "mine"}}}
WRONG = {
    "another priority": (
        a_gang(with_pod(priorityClassName="low"), priorityClass="high"),
        "priorityClassName",
    ),
    "a group of its own": (
        a_gang(with_pod(schedulingGroup={"podGroupName": "mine"})),
        "spec.schedulingGroup",
    ),
    "a label of its own": (a_gang(LABELLED), "metadata.labels[scheduling.x-k8s.io/pod-group]"),
    "no quantity": (a_gang(minResources={"cpu": "many"}), "schedulingPolicy.minResources[cpu]"),
}


@pytest.mark.parametrize(("job", "where"), WRONG.values(), ids=WRONG)
def test_a_template_that_contradicts_the_policy_is_refused(job: DGLJob, where: str) -> None:
    """Before anything is created."""
    (line,) = validate.problems(job)

    assert where in line


def test_a_template_may_say_the_same_priority() -> None:
    """And a partitioner may have another."""
    assert validate.problems(a_gang(with_pod(priorityClassName="high"), priorityClass="high")) == ()
