"""Reading pods: containers are judged one by one, addresses are IPv4 or none."""

from typing import Any

import pytest

from dgl_operator.domain.observed import Observed, Pod, Problem
from dglrun.contract.names import Role
from tests.support.jobs import a_job, a_pod, ended, observed, running, waiting

JOB = a_job()


def seen_pod(role: Role = Role.LAUNCHER, phase: str = "Running", **given: Any) -> Pod:
    return observed(JOB, a_pod(JOB, role, phase, **given)).pods[0]


def test_a_launcher_whose_main_container_ended_well_has_succeeded_while_its_sidecar_runs() -> None:
    """Sidecars do not keep a job from ending."""
    pod = seen_pod(phase="Running", containers=[ended(), running("proxy")])

    assert pod.succeeded
    assert not pod.stopped


def test_a_sidecar_that_fails_after_the_main_container_does_not_fail_the_pod() -> None:
    """The pod's phase is Failed then, the launcher's work is done all the same."""
    pod = seen_pod(phase="Failed", containers=[ended(), ended("proxy", 1)])

    assert (pod.succeeded, pod.failed) == (True, False)


def test_a_failed_init_container_fails_the_pod() -> None:
    """The user's own init container counts, too."""
    pod = seen_pod(phase="Failed", containers=[waiting()], init=[ended("fetch", 4, "no such bucket")])

    assert pod.failed
    assert pod.first_failure is not None
    assert (pod.first_failure.container, pod.first_failure.exit_code) == ("fetch", 4)


def test_the_main_container_is_the_one_that_was_rendered() -> None:
    """A webhook may put its sidecar first."""
    raw = a_pod(JOB, Role.LAUNCHER, containers=[running("mesh"), ended("main")])
    raw["spec"]["containers"].insert(0, {"name": "mesh", "image": "mesh"})

    assert observed(JOB, raw).pods[0].succeeded


def test_workers_are_sorted_by_integer_index() -> None:
    """Worker 10 comes after worker 2 (defect 10)."""
    job = a_job(workers=12)
    raw = [a_pod(job, Role.WORKER, index=index) for index in (10, 2, 11, 0, 1)]

    assert [pod.index for pod in observed(job, *raw).of_role(Role.WORKER)] == [0, 1, 2, 10, 11]


def test_pods_of_another_owner_are_not_seen() -> None:
    """A predecessor of the same name leaves pods behind for a while."""
    old = a_pod(JOB, Role.LAUNCHER, owner="the-job-before")

    assert observed(JOB, old) == Observed()


@pytest.mark.parametrize(
    ("status", "ip"),
    [
        ({"podIPs": [{"ip": "fd00::1"}, {"ip": "10.0.0.1"}]}, "10.0.0.1"),
        ({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}, "10.0.0.1"),
        ({"podIPs": [{"ip": "fd00::1"}], "podIP": "fd00::1"}, None),
        ({"podIPs": []}, None),
    ],
)
def test_an_address_is_ipv4_or_none(status: dict[str, Any], ip: str | None) -> None:
    """DGL takes no other family; dual-stack pods have both."""
    assert seen_pod(**status).ip == ip


def test_an_ipv6_only_pod_is_a_problem_that_is_said() -> None:
    """Otherwise the job would wait for ever without a word."""
    pod = seen_pod(podIPs=[{"ip": "fd00::1"}], podIP="fd00::1")

    assert pod.problem == Problem(
        "NoIPv4Address", "pod sage-launcher has the address fd00::1; DGL speaks IPv4 only"
    )


def test_pull_errors_have_one_reason_although_the_kubelet_alternates() -> None:
    """ErrImagePull and ImagePullBackOff take turns; the reason must not."""
    reasons = {
        seen_pod(phase="Pending", containers=[waiting(reason=reason, message="no such tag")]).problem
        for reason in ("ErrImagePull", "ImagePullBackOff")
    }

    assert reasons == {Problem("ImagePullBackOff", "pod sage-launcher, container main: no such tag")}


def test_an_unschedulable_pod_says_why() -> None:
    """The scheduler's own words reach the status."""
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes: cpu",
    }
    pod = seen_pod(phase="Pending", containers=[], conditions=[condition])

    assert pod.problem == Problem("Unschedulable", "pod sage-launcher: 0/1 nodes: cpu")
