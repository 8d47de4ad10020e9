"""The user's rules on failures: the first that matches the root cause decides."""

from typing import Any

import pytest

from dgl_operator.api.v1alpha1 import DGLJob, Phase
from dgl_operator.domain import reduced, verdict
from dglrun.contract.names import Role
from tests.support.jobs import Json, a_job, a_pod, a_status, ended, waiting, workers_of
from tests.unit.operator.domain.test_decide import cause, decided

LAUNCHER, PARTITIONER, WORKER = Role.LAUNCHER, Role.PARTITIONER, Role.WORKER
TRAINING = a_status("Training", verdict.PARTITIONED, verdict.LAUNCHER_STARTED)
DISRUPTION: Json = {
    "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
}


def with_rules(*rules: Json, limit: int = 0, status: Json = TRAINING) -> DGLJob:
    return a_job(runPolicy={"backoffLimit": limit}, failurePolicy={"rules": list(rules)}, status=status)


def codes(operator: str, *values: int, **given: Any) -> Json:
    return {"operator": operator, "values": list(values), **given}


def with_dead_worker(job: DGLJob, code: int = 1, **given: Any) -> list[Json]:
    dead = a_pod(job, WORKER, "Failed", containers=[ended(code=code)], **given)
    return [a_pod(job, LAUNCHER), dead, a_pod(job, WORKER, index=1)]


def follows(job: DGLJob, *children: Json) -> str:
    """What follows from the failure: the end of the job, or the field of `status.restarts` that counts it."""
    decision = decided(job, *children)
    if decision.phase is Phase.FAILED:
        return "Failed"
    assert decision.life is not None
    counts = decision.life.restarts.model_dump()
    return ", ".join(name for name, count in counts.items() if count)


def test_fail_job_ends_a_job_that_has_attempts_left() -> None:
    """A wrong argument will not become right; the message names the rule."""
    job = with_rules({"action": "FailJob", "onExitCodes": codes("In", 2, 65)}, limit=3)
    pods = with_dead_worker(job, 65)

    assert follows(job, *pods) == "Failed"
    assert cause(decided(job, *pods)) == (
        "PodFailed",
        "pod sage-worker-0, container main, exit code 65; failurePolicy.rules[0]: FailJob",
    )


def test_without_a_rule_that_matches_the_limit_decides() -> None:
    """As without rules at all."""
    rule = {"action": "FailJob", "onExitCodes": codes("In", 2)}

    assert follows(with_rules(rule, limit=1), *with_dead_worker(with_rules(rule))) == "failures"
    assert follows(with_rules(rule), *with_dead_worker(with_rules(rule))) == "Failed"


def test_ignore_counts_towards_no_limit() -> None:
    """The user knows that this passes."""
    job = with_rules({"action": "Ignore", "onExitCodes": codes("NotIn", 1, 2)})

    assert follows(job, *with_dead_worker(job, 79)) == "ignored"
    assert follows(job, *with_dead_worker(job, 2)) == "Failed"


def test_restart_counts_even_after_a_disruption() -> None:
    """Whoever wants an eviction to count says so."""
    rule = {"action": "Restart", "onPodConditions": [{"type": "DisruptionTarget"}]}
    evicted = with_dead_worker(with_rules(rule), 143, **DISRUPTION)

    assert follows(with_rules(rule, limit=1), *evicted) == "failures"
    assert follows(with_rules(rule), *evicted) == "Failed"


def test_the_first_rule_that_matches_is_taken() -> None:
    """In the order in which they are written."""
    one = {"action": "Ignore", "role": "Worker"}
    other = {"action": "FailJob", "onExitCodes": codes("In", 1)}

    assert follows(with_rules(one, other), *with_dead_worker(with_rules())) == "ignored"
    assert follows(with_rules(other, one), *with_dead_worker(with_rules())) == "Failed"


@pytest.mark.parametrize(("role", "expected"), [("Worker", "ignored"), ("Launcher", "Failed")])
def test_a_rule_for_a_role_matches_pods_of_that_role_alone(role: str, expected: str) -> None:
    """By the pod that is the root cause."""
    job = with_rules({"action": "Ignore", "role": role})

    assert follows(job, *with_dead_worker(job)) == expected


def test_all_that_a_rule_names_has_to_be_so() -> None:
    """A role and an exit code, say."""
    job = with_rules({"action": "Ignore", "role": "Worker", "onExitCodes": codes("In", 3)})

    assert follows(job, *with_dead_worker(job, 3)) == "ignored"
    assert follows(job, *with_dead_worker(job, 4)) == "Failed"


@pytest.mark.parametrize(("container", "expected"), [("setup", "ignored"), ("main", "Failed")])
def test_an_init_container_is_a_container(container: str, expected: str) -> None:
    """Its exit code counts like any other; the name says which one is meant."""
    job = with_rules({"action": "Ignore", "onExitCodes": codes("In", 4, containerName=container)})
    dead = a_pod(job, WORKER, "Failed", containers=[waiting()], init=[ended("setup", 4)])

    assert follows(job, a_pod(job, LAUNCHER), dead, a_pod(job, WORKER, index=1)) == expected


@pytest.mark.parametrize(("status", "expected"), [("True", "Failed"), ("False", "disruptions")])
def test_a_condition_has_to_have_the_status(status: str, expected: str) -> None:
    """True unless it is named; any of several is enough."""
    conditions = [{"type": "Odd"}, {"type": "DisruptionTarget", "status": status}]
    job = with_rules({"action": "FailJob", "onPodConditions": conditions})

    assert follows(job, *with_dead_worker(job, 143, **DISRUPTION)) == expected


def test_a_condition_of_the_users_own_can_be_matched() -> None:
    """A controller of the user may say what is wrong with a pod."""
    job = with_rules({"action": "Ignore", "onPodConditions": [{"type": "example.org/BadDisk"}]})
    bad = {"conditions": [{"type": "example.org/BadDisk", "status": "True"}]}

    assert follows(job, *with_dead_worker(job, 1, **bad)) == "ignored"


def test_a_pod_that_is_gone_has_a_role_and_nothing_else() -> None:
    """Its conditions went with it."""
    by_role = with_rules({"action": "FailJob", "role": "Worker"})
    by_condition = with_rules({"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]})

    assert follows(by_role, a_pod(by_role, LAUNCHER), a_pod(by_role, WORKER)) == "Failed"
    assert follows(by_condition, a_pod(by_role, LAUNCHER), a_pod(by_role, WORKER)) == "disruptions"


def test_a_rule_is_asked_before_a_pod_without_work_is_made_anew() -> None:
    """Whoever wants to know of each eviction is told."""
    rule = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}
    job = with_rules(rule, status=a_status("Pending"))

    assert follows(job, a_pod(job, PARTITIONER, "Failed", containers=[], **DISRUPTION)) == "Failed"


def test_a_rule_that_ignores_gives_no_other_image() -> None:
    """An image name that can never be pulled fails every attempt."""
    job = with_rules({"action": "Ignore", "role": "Launcher"}, limit=5, status=a_status("Pending"))
    stuck = a_pod(job, LAUNCHER, "Pending", containers=[waiting(reason="InvalidImageName", message="x")])

    assert follows(job, stuck) == "Failed"


def test_an_exit_of_its_own_before_a_deletion_is_a_failure() -> None:
    """A janitor that deletes failed pods must not turn failures into disruptions."""
    job = a_job(status=TRAINING)
    failed = a_pod(
        job, LAUNCHER, "Failed", containers=[ended(code=1, at="2026-11-21T11:50:00Z")],
        deleting="2026-11-21T11:59:30Z",
    )  # fmt: skip

    assert cause(decided(job, failed, *workers_of(job)))[0] == "TrainingFailed"
    assert follows(job, failed, *workers_of(job)) == "Failed"


@pytest.mark.parametrize(
    ("code", "reason"), [(143, "PodLost"), (137, "PodLost"), (0, "PodLost"), (1, "PodFailed")]
)
def test_a_pod_that_its_kubelet_removes_after_a_deletion_was_deleted(code: int, reason: str) -> None:
    """Until it is gone it has a grace period of 0, and the time at which the kubelet deleted it again."""
    job = a_job(status=TRAINING)
    killed = a_pod(job, WORKER, "Failed", containers=[ended(code=code)], deleting="2026-11-21T11:59:05Z")
    killed["metadata"]["deletionGracePeriodSeconds"] = 0
    killed["spec"]["terminationGracePeriodSeconds"] = 10

    decision = decided(job, a_pod(job, LAUNCHER), reduced.pod(killed), a_pod(job, WORKER, index=1))

    assert cause(decision)[0] == reason
