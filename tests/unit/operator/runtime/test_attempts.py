"""Attempts of a job against an API server in memory: what ends one, what follows, what a user may change."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from dgl_operator.api.v1alpha1 import MAX_ATTEMPTS
from dgl_operator.domain import hold
from dgl_operator.domain.decide import MAX_WAITS
from dgl_operator.runtime.cluster import Conflict, Refused
from dgl_operator.runtime.kinds import Json, Kind
from dglrun.contract import names
from dglrun.contract.names import Mode
from tests.support.jobs import a_pod_status, a_raw_job, ended, running, waiting
from tests.unit.operator.runtime.test_reconcile import (
    KEY,
    LAUNCHER_WAITS,
    PARTITIONER_DONE,
    Operator,
    partitioned,
    training,
    worker_status,
)

LAUNCHER, WORKER = "sage-launcher", "sage-worker-1"
FAILED = a_pod_status("Failed", ip="10.0.0.1", containers=[ended(code=7, message="no data")])


def an_operator(**run_policy: Any) -> Operator:
    return Operator(a_raw_job(runPolicy=run_policy))


def disrupted(phase: str = "Failed") -> Json:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "drained",
        "lastTransitionTime": "2026-11-21T11:58:30Z",
    }
    status = a_pod_status(phase, ip="10.0.0.11", containers=[ended(code=143)])
    return {**status, "conditions": [*status["conditions"], condition]}


def labels(operator: Operator) -> set[str]:
    return {
        item["metadata"]["labels"][names.LABEL_ATTEMPT]
        for (kind, _, _), item in operator.cluster.objects.items()
        if kind is Kind.POD
    }


def condition(operator: Operator, kind: str) -> tuple[str, str]:
    found = next(each for each in operator.status["conditions"] if each["type"] == kind)
    return found["status"], found["reason"]


def fail_once(operator: Operator) -> None:
    """Let the launcher of a training fail, and the next attempt begin."""
    operator.pod(LAUNCHER, FAILED)
    operator.settle_for(360)


def test_a_failure_with_an_attempt_left_is_a_new_attempt() -> None:
    """Its pods are all new, in the order of the first ones, and bear its number."""
    operator = an_operator(backoffLimit=1)
    training(operator)
    operator.pod(LAUNCHER, FAILED)

    operator.look()

    assert (operator.status["phase"], operator.status["attempt"]) == ("Pending", 1)
    assert operator.names(Kind.POD) == set()
    outcome = operator.look()
    assert outcome.recheck_after == 10.0
    operator.wait(10)
    operator.settle()
    assert operator.names(Kind.POD) == {LAUNCHER, "sage-partitioner"}
    assert labels(operator) == {"1"}


def test_the_failure_after_the_last_attempt_fails_the_job() -> None:
    """And says that no attempt was left."""
    operator = an_operator(backoffLimit=1)
    training(operator)
    fail_once(operator)
    training(operator)

    operator.pod(LAUNCHER, FAILED)
    operator.settle()

    assert operator.status["phase"] == "Failed"
    assert operator.status["restarts"]["failures"] == 1
    assert condition(operator, "Failed") == ("True", "TrainingFailed")
    assert operator.status["message"].endswith("exit code 7: no data; backoffLimit 1 is used up")
    assert [each["reason"] for each in operator.status["attempts"]] == ["TrainingFailed", "TrainingFailed"]


def test_milestones_belong_to_an_attempt() -> None:
    """What the last one reached says nothing of the next one's pods."""
    operator = an_operator(backoffLimit=1)
    training(operator)
    operator.pod(LAUNCHER, FAILED)

    operator.look()

    for kind in ("LauncherStarted", "Partitioned", "WorkersReady"):
        assert condition(operator, kind) == ("False", "NewAttempt")


def test_the_next_attempt_waits_for_the_pods_of_the_last_one() -> None:
    """Names are fixed, and old processes may still write."""
    operator = an_operator(backoffLimit=1)
    training(operator)
    operator.cluster.is_graceful = True
    operator.pod(LAUNCHER, FAILED)
    operator.look()
    operator.wait(20)

    operator.look()

    assert labels(operator) == {"0"}
    assert "pod sage-launcher and 3 more pods are gone" in operator.status["message"]
    for name in operator.names(Kind.POD):
        operator.cluster.remove(Kind.POD, "default", name)
    operator.settle()
    assert labels(operator) == {"1"}


def test_pods_that_nobody_has_deleted_are_deleted_however_late() -> None:
    """The operator ended between the status that says that they go and their deletion."""
    operator = an_operator(backoffLimit=1)
    training(operator)
    operator.cluster.is_graceful = True
    operator.pod(LAUNCHER, FAILED)
    delete = operator.cluster.delete

    def end(*_given: object, **_more: object) -> None:
        raise KeyboardInterrupt

    operator.cluster.delete = end  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        operator.look()
    operator.cluster.delete = delete  # type: ignore[method-assign]
    operator.wait(7200)
    operator.restart()

    operator.look()
    operator.wait(1790)
    operator.look()

    assert operator.status["phase"] == "Pending"
    for name in operator.names(Kind.POD):
        operator.cluster.remove(Kind.POD, "default", name)
    operator.settle()
    assert labels(operator) == {"1"}


@pytest.mark.parametrize("how", ["evicted", "deleted", "gone"])
def test_a_disruption_counts_towards_no_limit(how: str) -> None:
    """Which is 0 unless the user says otherwise."""
    operator = Operator()
    training(operator)
    if how == "evicted":
        operator.pod(WORKER, disrupted())
    elif how == "deleted":
        operator.cluster.objects[Kind.POD, "default", WORKER]["metadata"]["deletionTimestamp"] = (
            "2026-11-21T12:00:00Z"
        )
    else:
        operator.cluster.remove(Kind.POD, "default", WORKER)

    operator.look()

    assert (operator.status["phase"], operator.status["attempt"]) == ("Pending", 1)
    assert operator.status["restarts"] == {
        "failures": 0, "disruptions": 1, "ignored": 0, "suspensions": 0, "pods": 0,
        "workers": 0,
    }  # fmt: skip
    assert operator.cluster.events[-1]["type"] == "Warning"


def test_an_eviction_for_the_disk_that_a_pod_filled_itself_counts() -> None:
    """The kubelet sets no DisruptionTarget then: another attempt would fill it again."""
    operator = Operator()
    training(operator)

    operator.pod(WORKER, a_pod_status("Failed", containers=[], reason="Evicted", message="over its limit"))
    operator.settle()

    assert operator.status["phase"] == "Failed"


def test_disruptions_are_bounded() -> None:
    """What evicts each pod as soon as it runs must not keep a job for ever."""
    operator = Operator()
    job = operator.cluster.objects[Kind.JOB, "default", "sage"]
    training(operator)
    job = operator.cluster.objects[Kind.JOB, "default", "sage"]
    used = {"failures": 0, "disruptions": hold.MAX_UNCOUNTED, "ignored": 0, "suspensions": 0, "pods": 0}
    operator.cluster.add({**job, "status": {**job["status"], "restarts": used}})

    operator.cluster.remove(Kind.POD, "default", WORKER)
    operator.settle()

    assert operator.status["phase"] == "Failed"
    assert condition(operator, "Failed") == ("True", "PodLost")
    assert "100 attempts were lost like this" in operator.status["message"]


def test_the_waits_between_short_attempts_double_up_to_six_minutes() -> None:
    """As those of batch/v1."""
    operator = an_operator(backoffLimit=9)
    waits = []
    for _ in range(8):
        training(operator)
        operator.pod(LAUNCHER, FAILED)
        operator.look()
        waits.append(operator.look().recheck_after)
        operator.settle_for(360)

    assert waits == [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 360.0, 360.0]


def test_after_an_attempt_that_lasted_the_waits_begin_anew() -> None:
    """A job of a week that loses a pod each day is no loop."""
    operator = an_operator(backoffLimit=9)
    for _ in range(3):
        training(operator)
        fail_once(operator)
    training(operator)
    operator.wait(3600)

    operator.pod(LAUNCHER, FAILED)
    operator.look()

    assert operator.look().recheck_after == 10.0


def test_the_status_tells_of_the_last_attempts_only() -> None:
    """It has a size."""
    operator = an_operator(backoffLimit=20)
    for _ in range(MAX_ATTEMPTS + 2):
        training(operator)
        fail_once(operator)

    assert [each["number"] for each in operator.status["attempts"]] == list(range(3, 13))
    assert operator.status["attempts"][0]["completionTime"]


def test_what_the_last_attempt_reported_says_nothing_of_the_next_one() -> None:
    """In DistParMETIS the report decides about the phase; the quality of the partition stays."""
    operator = Operator(a_raw_job(mode=Mode.DIST_PARMETIS, runPolicy={"backoffLimit": 1}))
    operator.settle()
    for name in (LAUNCHER, "sage-worker-0", WORKER):
        operator.pod(name, a_pod_status("Running", ip="10.0.0.1", ready=True))
    report = operator.cluster.objects[Kind.CONFIG_MAP, "default", "sage-report"]
    data = {"progress.json": '{"stage": "Training"}', "partition.json": '{"numParts": 2}'}
    operator.cluster.add({**report, "data": data})
    operator.settle()
    assert operator.status["phase"] == "Training"

    fail_once(operator)

    after = operator.cluster.objects[Kind.CONFIG_MAP, "default", "sage-report"]
    assert (operator.status["phase"], operator.status.get("progress")) == ("Pending", None)
    assert after["data"] == {"partition.json": '{"numParts": 2}'}
    assert after["metadata"]["labels"][names.LABEL_ATTEMPT] == "1"


def test_pods_of_an_older_operator_are_those_of_the_first_attempt() -> None:
    """They have no label, and their job no record; it goes on, and can be tried again."""
    operator = an_operator(backoffLimit=1)
    training(operator)
    for (kind, _, _), item in operator.cluster.objects.items():
        if kind is Kind.POD:
            del item["metadata"]["labels"][names.LABEL_ATTEMPT]
    job = operator.cluster.objects[Kind.JOB, "default", "sage"]
    status = {key: value for key, value in job["status"].items() if key not in ("attempt", "attempts")}
    operator.cluster.add({**job, "status": status})
    operator.restart()

    operator.settle()

    assert (operator.status["phase"], len(operator.status["attempts"])) == ("Training", 1)
    assert len(operator.names(Kind.POD)) == 4
    fail_once(operator)
    assert labels(operator) == {"1"}


def relabel(operator: Operator, name: str, attempt: str | None) -> None:
    """Change a pod's label as somebody else does."""
    pod = copy.deepcopy(operator.cluster.objects[Kind.POD, "default", name])
    pod["metadata"]["labels"].pop(names.LABEL_ATTEMPT)
    if attempt is not None:
        pod["metadata"]["labels"][names.LABEL_ATTEMPT] = attempt
    operator.cluster.add(pod)


@pytest.mark.parametrize("label", [None, "x", "7"])
def test_a_pod_gets_the_label_of_its_attempt_back(label: str | None) -> None:
    """Who takes it off or makes it unreadable or too high costs no attempt."""
    operator = an_operator(backoffLimit=1)
    training(operator)
    fail_once(operator)
    training(operator)

    relabel(operator, WORKER, label)
    operator.settle()

    assert (operator.status["phase"], operator.status["attempt"]) == ("Training", 1)
    assert labels(operator) == {"1"}


def test_a_pod_of_the_last_attempt_without_its_label_is_no_pod_of_the_next_one() -> None:
    """It is older than the end of the last one."""
    operator = an_operator(backoffLimit=1)
    training(operator)
    operator.cluster.is_graceful = True
    operator.pod(LAUNCHER, FAILED)
    operator.look()
    relabel(operator, WORKER, None)
    operator.settle_for(60)

    assert "and 3 more pods are gone" in operator.status["message"]


@pytest.mark.parametrize("label", [None, "7"])
def test_a_suspended_job_keeps_no_pod_for_its_label(label: str | None) -> None:
    """Whatever attempt it names."""
    operator = Operator()
    training(operator)
    relabel(operator, WORKER, label)

    operator.edit(suspend=True)
    operator.settle()

    assert operator.names(Kind.POD) == set()


def test_a_pod_that_the_kubelet_rejects_is_made_anew_without_an_attempt() -> None:
    """It never worked; a second one waits a little, so that a broken node is not asked again and again."""
    operator = Operator()
    operator.settle()
    rejected = a_pod_status("Failed", containers=[], reason="UnexpectedAdmissionError", message="no device")
    first = operator.cluster.objects[Kind.POD, "default", LAUNCHER]["metadata"]["uid"]

    operator.pod(LAUNCHER, rejected)
    operator.settle()

    second = operator.cluster.objects[Kind.POD, "default", LAUNCHER]["metadata"]["uid"]
    assert second != first
    assert (operator.status["phase"], operator.status["attempt"]) == ("Pending", 0)
    assert operator.status["restarts"]["pods"] == 1
    operator.pod(LAUNCHER, rejected)
    outcome = operator.look()
    assert outcome.recheck_after == 10.0
    assert operator.cluster.objects[Kind.POD, "default", LAUNCHER]["metadata"]["uid"] == second
    operator.wait(10)
    operator.settle()
    assert operator.cluster.objects[Kind.POD, "default", LAUNCHER]["metadata"]["uid"] != second


def test_a_pod_that_others_delete_again_and_again_is_made_anew_after_growing_waits() -> None:
    """The first at once; nothing in the cluster is asked for more often than for one that is rejected."""
    operator = Operator()
    operator.settle()

    def made_again_after() -> float:
        gone = operator.time
        operator.cluster.remove(Kind.POD, "default", LAUNCHER)
        while (outcome := operator.look()) and LAUNCHER not in operator.names(Kind.POD):
            operator.wait(outcome.recheck_after or 0.0)
        return (operator.time - gone).total_seconds()

    assert [made_again_after() for _ in range(4)] == [0.0, 10.0, 20.0, 40.0]


def test_a_launcher_that_the_kubelet_rejects_while_the_partitioner_runs_costs_no_limit() -> None:
    """Nothing of it failed: the node had no room for it."""
    operator = Operator()
    operator.settle()
    operator.pod("sage-partitioner", a_pod_status("Running", ip="10.0.0.2"))
    operator.settle()

    operator.pod(LAUNCHER, a_pod_status("Failed", containers=[], reason="OutOfcpu", message="no room"))
    operator.look()

    assert (operator.status["phase"], operator.status["attempt"]) == ("Pending", 1)
    assert operator.status["restarts"]["disruptions"] == 1


def test_a_worker_evicted_before_it_had_work_is_made_anew() -> None:
    """The partition that the launcher holds is not thrown away for it."""
    operator = Operator()
    partitioned(operator)

    operator.pod(WORKER, disrupted())
    operator.settle()

    assert (operator.status["phase"], operator.status["attempt"]) == ("Partitioned", 0)
    assert WORKER in operator.names(Kind.POD)


def test_workers_that_never_were_are_not_lost() -> None:
    """However often the attempt has waited for its first pods."""
    operator = Operator()
    operator.settle()
    operator.pod(LAUNCHER, LAUNCHER_WAITS)
    operator.pod("sage-partitioner", a_pod_status("Running", ip="10.0.0.2"))
    operator.settle()
    job = copy.deepcopy(operator.cluster.objects[Kind.JOB, "default", "sage"])
    job["status"]["attempts"][-1]["waits"] = MAX_WAITS
    operator.cluster.add(job)

    operator.pod("sage-partitioner", PARTITIONER_DONE)
    operator.settle()

    assert (operator.status["phase"], operator.status["attempt"]) == ("Partitioned", 0)
    assert WORKER in operator.names(Kind.POD)


def test_a_watcher_that_saw_a_pod_vanish_costs_no_limit() -> None:
    """The launcher's init container ends with 75 when a worker is replaced under it."""
    operator = Operator()
    partitioned(operator)
    init = [ended("watcher-loop-worker", 75, "worker 1 vanished")]

    operator.pod(LAUNCHER, a_pod_status("Failed", containers=[waiting()], init=init))
    operator.look()

    assert (operator.status["attempt"], operator.status["restarts"]["disruptions"]) == (1, 1)


@pytest.mark.parametrize(("code", "phase"), [(75, "Pending"), (1, "Failed")])
def test_a_training_that_lost_a_node_costs_no_limit(code: int, phase: str) -> None:
    """The run knows of it before Kubernetes does: the worker still counts as running."""
    operator = Operator()
    training(operator)
    words = "worker sage-worker-1: not heard of for 30 s"

    operator.pod(
        LAUNCHER, a_pod_status("Failed", ip="10.0.0.1", containers=[ended(code=code, message=words)])
    )
    operator.look()

    assert operator.status["phase"] == phase
    assert operator.status.get("restarts", {}).get("disruptions", 0) == (code == 75)
    assert words in operator.status["message"]


def test_the_code_of_a_lost_pod_says_nothing_of_a_job_without_workers() -> None:
    """There it is one of the user's own program."""
    operator = Operator(a_raw_job(mode=Mode.SKIP))
    operator.settle()

    operator.pod(LAUNCHER, a_pod_status("Failed", ip="10.0.0.1", containers=[ended(code=75)]))
    operator.settle()

    assert operator.status["phase"] == "Failed"


def test_a_job_that_cannot_start_fails_with_pod_container_and_cause() -> None:
    """After half an hour unless the user says otherwise."""
    operator = an_operator(startDeadlineSeconds=600)
    operator.settle()
    stuck = a_pod_status("Pending", containers=[waiting(reason="ImagePullBackOff", message="no such tag")])
    operator.pod(LAUNCHER, stuck)
    operator.pod("sage-partitioner", a_pod_status("Running"))
    operator.settle()
    operator.wait(590)
    assert operator.look().recheck_after == 10.0

    operator.wait(10)
    operator.settle()

    assert operator.status["phase"] == "Failed"
    assert condition(operator, "Failed") == ("True", "StartDeadlineExceeded")
    assert "pod sage-launcher, container main: no such tag" in operator.status["message"]
    assert condition(operator, "Blocked")[0] == "False"


def test_a_pod_that_nobody_schedules_fails_the_job() -> None:
    """Without a word of the scheduler too."""
    operator = Operator()
    operator.settle()

    operator.wait(1800)
    operator.settle()

    assert condition(operator, "Failed") == ("True", "StartDeadlineExceeded")
    assert "pod sage-launcher has started no container" in operator.status["message"]


def test_the_deadline_of_the_workers_begins_with_their_creation() -> None:
    """Hours of partitioning are before it."""
    operator = Operator()
    operator.settle()
    operator.pod(LAUNCHER, LAUNCHER_WAITS)
    operator.pod("sage-partitioner", a_pod_status("Running", ip="10.0.0.2"))
    operator.settle()
    operator.wait(5 * 3600)
    operator.settle()
    assert operator.status["phase"] == "Partitioning"

    operator.pod("sage-partitioner", PARTITIONER_DONE)
    operator.settle()
    operator.wait(1700)
    operator.settle()

    assert operator.status["phase"] == "Partitioned"
    operator.wait(100)
    operator.settle()
    assert operator.status["phase"] == "Failed"
    assert "pod sage-worker-0" in operator.status["message"]


def test_the_workers_do_not_pay_for_the_start_of_the_partitioner() -> None:
    """The operator was away while nothing waited: it saw the partitioner waiting, then its end."""
    operator = Operator()
    operator.settle()
    operator.wait(3600)
    operator.pod(LAUNCHER, LAUNCHER_WAITS)
    operator.pod("sage-partitioner", PARTITIONER_DONE)
    operator.restart()

    operator.settle()

    assert operator.status["phase"] == "Partitioned"
    assert WORKER in operator.names(Kind.POD)
    operator.wait(1790)
    assert operator.look().recheck_after == 10.0
    operator.wait(10)
    operator.settle()
    assert condition(operator, "Failed") == ("True", "StartDeadlineExceeded")


def test_a_hindrance_that_has_passed_unseen_fails_no_job() -> None:
    """The operator was away when the image could be pulled."""
    operator = Operator()
    operator.settle()
    operator.pod(LAUNCHER, LAUNCHER_WAITS)
    stuck = a_pod_status("Pending", containers=[waiting(reason="ImagePullBackOff", message="no such tag")])
    operator.pod("sage-partitioner", stuck)
    operator.settle()
    operator.wait(2400)
    operator.pod("sage-partitioner", a_pod_status("Running", ip="10.0.0.2"))
    operator.restart()

    operator.settle()

    assert (operator.status["phase"], operator.status["attempt"]) == ("Partitioning", 0)
    assert condition(operator, "Blocked")[0] == "False"


def test_a_write_that_is_refused_costs_no_partitioner_that_works() -> None:
    """A Role that was deleted and may not be written again is shown, and hours of work stay."""
    operator = Operator()
    operator.settle()
    operator.pod(LAUNCHER, LAUNCHER_WAITS)
    operator.pod("sage-partitioner", a_pod_status("Running", ip="10.0.0.2"))
    operator.settle()

    def admit(body: Json) -> None:
        if body["kind"] == "Role":
            raise Refused(403, "Forbidden", "attempting to grant RBAC permissions not currently held")

    operator.cluster.admit = admit
    operator.cluster.remove(Kind.ROLE, "default", LAUNCHER)
    for _ in range(3):
        operator.look()
        operator.wait(1800)

    assert operator.status["phase"] == "Partitioning"
    assert condition(operator, "Blocked") == ("True", "Forbidden")
    assert "sage-partitioner" in operator.names(Kind.POD)


def test_a_main_container_that_is_never_started_fails_the_job() -> None:
    """A pull may hang without an error, after the init containers have ended."""
    operator = Operator()
    operator.settle()
    operator.pod(LAUNCHER, LAUNCHER_WAITS)
    hangs = a_pod_status("Pending", containers=[waiting()], init=[ended("kubectl-download")])
    operator.pod("sage-partitioner", hangs)
    operator.settle()

    operator.wait(1800)
    operator.settle()

    assert condition(operator, "Failed") == ("True", "StartDeadlineExceeded")
    assert "pod sage-partitioner has not started its main container" in operator.status["message"]


def test_init_containers_of_the_user_may_take_their_time() -> None:
    """They may download the graph for hours."""
    operator = Operator()
    operator.settle()
    operator.pod(LAUNCHER, LAUNCHER_WAITS)
    init = [ended("kubectl-download"), running("download")]
    operator.pod("sage-partitioner", a_pod_status("Pending", containers=[waiting()], init=init))
    operator.settle()

    operator.wait(7200)
    operator.settle()

    assert operator.status["phase"] == "Starting"


def test_workers_that_never_become_ready_fail_the_job() -> None:
    """The launcher would wait for them for ever."""
    operator = Operator()
    partitioned(operator)
    for index in range(2):
        operator.pod(f"sage-worker-{index}", worker_status(index, ready=index == 0))
    operator.settle()

    operator.wait(1800)
    operator.settle()

    assert condition(operator, "Failed") == ("True", "StartDeadlineExceeded")
    assert f"pod {WORKER} runs and is not Ready" in operator.status["message"]


def test_a_job_whose_pods_are_not_admitted_fails_after_the_same_time() -> None:
    """A quota that is never freed."""
    operator = an_operator(startDeadlineSeconds=60)

    def admit(body: Json) -> None:
        if body["kind"] == "Pod":
            raise Refused(403, "Forbidden", "exceeded quota: small")

    operator.cluster.admit = admit
    operator.look()
    operator.wait(60)
    operator.settle()

    assert condition(operator, "Failed") == ("True", "StartDeadlineExceeded")
    assert "exceeded quota: small" in operator.status["message"]


def test_a_training_is_not_ended_for_a_sidecar_that_cannot_start() -> None:
    """The deadline is one of starts."""
    operator = an_operator(startDeadlineSeconds=600)
    training(operator)
    stuck = [running(), waiting("side", reason="ImagePullBackOff", message="gone")]
    operator.pod(WORKER, a_pod_status("Running", ip="10.0.0.11", containers=stuck))
    operator.settle()

    operator.wait(3600)
    operator.settle()

    assert operator.status["phase"] == "Training"


@pytest.mark.parametrize("policy", ["Running", "None", "All"])
def test_a_job_that_takes_too_long_fails_and_its_pods_are_ended(policy: str) -> None:
    """All attempts together, whatever the clean-up policy."""
    operator = Operator(a_raw_job(runPolicy={"activeDeadlineSeconds": 3600}, cleanPodPolicy=policy))
    training(operator)
    operator.wait(3590)
    assert operator.look().recheck_after == 10.0

    operator.wait(10)
    operator.settle()

    assert condition(operator, "Failed") == ("True", "DeadlineExceeded")
    left = [item for (kind, _, _), item in operator.cluster.objects.items() if kind is Kind.POD]
    going = [pod for pod in left if pod["status"]["phase"] == "Running"]
    assert all(pod["spec"]["activeDeadlineSeconds"] == 1 for pod in going)
    assert len(left) == {"Running": 2, "None": 4, "All": 0}[policy]


def test_a_deadline_that_is_set_later_counts_from_the_start() -> None:
    """As that of a Job."""
    operator = Operator()
    training(operator)
    operator.wait(7200)

    operator.edit(activeDeadlineSeconds=60)
    operator.settle()

    assert operator.status["phase"] == "Failed"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_ended_job_is_deleted_after_its_time_to_live(phase: str) -> None:
    """The whole job; a restarted operator knows when."""
    operator = an_operator(ttlSecondsAfterFinished=300)
    training(operator)
    operator.pod(LAUNCHER, a_pod_status(phase, ip="10.0.0.1"))
    outcome = operator.look()
    assert outcome.recheck_after == 300.0
    operator.settle()
    operator.wait(299)
    operator.restart()
    assert operator.look().recheck_after == 1.0

    operator.wait(1)
    operator.look()

    assert operator.names(Kind.JOB) == set()


def test_a_rejected_job_has_a_time_to_live_too() -> None:
    """Nobody would look after it otherwise."""
    job = a_raw_job(runPolicy={"ttlSecondsAfterFinished": 0}, args=("--num-partitions", "7"))
    operator = Operator(job)

    assert operator.look().recheck_after == 0.0
    operator.look()

    assert operator.names(Kind.JOB) == set()


def test_a_job_that_changed_meanwhile_is_not_deleted_on_what_was_known() -> None:
    """The user has just taken the time to live away."""
    operator = an_operator(ttlSecondsAfterFinished=300)
    training(operator)
    operator.pod(LAUNCHER, a_pod_status("Succeeded", ip="10.0.0.1"))
    operator.settle()
    operator.wait(300)
    operator.see()
    known = copy.deepcopy(operator.cluster.objects[Kind.JOB, "default", "sage"])
    operator.edit(ttlSecondsAfterFinished=10_000)

    assert operator.reconcile(KEY).recheck_after == 9_700.0
    with pytest.raises(Conflict):
        operator.cluster.delete_job(known)

    assert operator.names(Kind.JOB) == {"sage"}


@pytest.mark.parametrize("size", [10, 20_000, 300_000])
def test_a_job_of_another_controller_is_left_alone(size: int) -> None:
    """Neither a pod nor a status, however large it is."""
    worker = {"spec": {"containers": [{"name": "main", "image": "i", "args": ["x" * size]}]}}
    operator = Operator(a_raw_job(worker=worker, runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}))

    operator.look()

    assert (operator.cluster.writes, operator.status, operator.cluster.events) == ([], {}, [])


def test_a_job_that_names_this_operator_is_run() -> None:
    """As one that names none."""
    operator = an_operator(managedBy="qihoo.net/dgl-operator")

    operator.settle()

    assert operator.names(Kind.POD) == {LAUNCHER, "sage-partitioner"}


def test_a_job_that_is_created_suspended_has_nothing_until_it_is_resumed() -> None:
    """As a queue wants it; its clock begins with the resume."""
    operator = an_operator(suspend=True)
    operator.settle()
    assert operator.names(Kind.POD) | operator.names(Kind.CONFIG_MAP) == set()
    assert (operator.status["phase"], condition(operator, "Suspended")) == (
        "Suspended",
        ("True", "JobSuspended"),
    )
    assert "startTime" not in operator.status
    operator.wait(7200)

    operator.edit(suspend=False)
    operator.settle()

    assert condition(operator, "Suspended") == ("False", "JobResumed")
    assert operator.status["startTime"] == "2026-11-21T14:00:00Z"
    assert (operator.status["phase"], operator.status["attempt"]) == ("Pending", 0)
    assert labels(operator) == {"0"}
    assert {"JobSuspended", "JobResumed"} <= set(operator.reasons())


def test_suspend_takes_the_pods_away_and_resume_begins_a_new_attempt() -> None:
    """At once: a change by the user waits for no backoff."""
    operator = Operator()
    training(operator)

    operator.edit(suspend=True)
    operator.settle()

    assert operator.names(Kind.POD) | operator.names(Kind.ROLE) == set()
    assert operator.names(Kind.CONFIG_MAP) == {"sage-config", "sage-report"}
    assert operator.status["phase"] == "Suspended"
    assert "startTime" not in operator.status
    operator.edit(suspend=False)
    operator.settle()
    assert (operator.status["attempt"], operator.status["restarts"]["suspensions"]) == (1, 1)
    assert labels(operator) == {"1"}


def test_a_resumed_job_waits_for_pods_that_do_not_go_no_longer_than_for_a_start() -> None:
    """From the resume on, however long it was suspended."""
    operator = Operator()
    training(operator)
    operator.cluster.is_graceful = True
    operator.edit(suspend=True)
    operator.settle_for(7200)
    operator.edit(suspend=False)
    operator.settle_for(1700)
    assert operator.status["phase"] == "Pending"
    assert "and 3 more pods are gone" in operator.status["message"]

    operator.settle_for(100)

    assert condition(operator, "Failed") == ("True", "StartDeadlineExceeded")
    assert "of an earlier attempt is still being deleted" in operator.status["message"]


def test_a_problem_of_a_suspended_job_gives_it_no_start() -> None:
    """Its deadline would count while it has no pods."""
    operator = Operator()
    training(operator)

    def refuse(*_given: object, **_more: object) -> None:
        raise Refused(403, "Forbidden", "pods is forbidden")

    operator.cluster.delete = refuse  # type: ignore[method-assign]
    operator.edit(suspend=True)
    operator.look()
    operator.look()

    assert condition(operator, "Blocked") == ("True", "Forbidden")
    assert "startTime" not in operator.status


def test_a_job_that_succeeds_while_it_is_suspended_has_succeeded() -> None:
    """There is nothing to resume."""
    operator = Operator()
    training(operator)
    operator.pod(LAUNCHER, a_pod_status("Succeeded", ip="10.0.0.1"))
    operator.edit(suspend=True)

    operator.settle()

    assert operator.status["phase"] == "Completed"


def test_nothing_is_deleted_before_the_status_says_why() -> None:
    """An operator that ends in between would take the absent pods for lost."""
    operator = an_operator(backoffLimit=1)
    training(operator)
    operator.pod(LAUNCHER, FAILED)

    operator.look()

    verbs = [line.split()[0] for line in operator.cluster.writes]
    assert verbs.index("status") < verbs.index("delete")


def test_a_crd_that_drops_the_attempt_stalls_the_job() -> None:
    """Its attempts would never be counted, and the job tried for ever."""
    operator = an_operator(backoffLimit=1)
    training(operator)
    write = operator.cluster.write_status

    def prune(job: Json, status: Json) -> Json:
        return write(job, {key: value for key, value in status.items() if key != "attempt"})

    operator.cluster.write_status = prune  # type: ignore[assignment,method-assign]
    operator.pod(LAUNCHER, FAILED)
    with pytest.raises(Exception, match=r"drops status\.attempt"):
        operator.look()

    assert condition(operator, "Stalled") == ("True", "InternalError")
    assert len(operator.names(Kind.POD)) == 4


def a_node(**given: Any) -> Json:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, **given}


def an_unreachable_node(since: str | None) -> Json:
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": since}
    return a_node(spec={"taints": [{key: value for key, value in taint.items() if value}]})


def a_silent_node(since: str | None) -> Json:
    ready = {"type": "Ready", "status": "Unknown", "lastTransitionTime": since}
    return a_node(status={"conditions": [{key: value for key, value in ready.items() if value}]})


GONE = {
    "unreachable": an_unreachable_node("2026-11-21T11:59:00Z"),
    "out of service": a_node(spec={"taints": [{"key": "node.kubernetes.io/out-of-service", "value": "x"}]}),
    "not heard of": a_silent_node("2026-11-21T11:59:00Z"),
    "removed": None,
}


@pytest.mark.parametrize("node", GONE.values(), ids=GONE)
def test_a_pod_on_a_node_that_is_gone_is_deleted_by_force(node: Json | None) -> None:
    """A minute after its grace period: nobody is there to say that its containers have ended."""
    operator = stuck_on_a_node(node)

    operator.wait(59)
    operator.look()
    assert [line for line in operator.cluster.writes if line.startswith("force")] == []
    operator.wait(1)
    operator.look()

    assert operator.cluster.writes == [f"force Pod {WORKER}"]
    operator.settle()
    assert labels(operator) == {"1"}


@pytest.mark.parametrize("make", [an_unreachable_node, a_silent_node])
@pytest.mark.parametrize("since", ["2026-11-21T12:01:00Z", None])
def test_a_node_that_is_slow_for_a_moment_is_not_gone(
    make: Callable[[str | None], Json], since: str | None
) -> None:
    """Its containers may run still: the minute counts from its silence, not from the deletion."""
    operator = stuck_on_a_node(make(since))

    operator.wait(119)
    operator.look()
    assert [line for line in operator.cluster.writes if line.startswith("force")] == []
    operator.wait(1)
    operator.look()

    assert operator.cluster.writes == ([f"force Pod {WORKER}"] if since else [])


@pytest.mark.parametrize("why", ["lives", "no right"])
def test_no_pod_is_deleted_by_force_from_a_node_that_may_live(why: str) -> None:
    """Two pods of one name would run; the job says what it waits for, and looks again."""
    operator = stuck_on_a_node(a_node(status={"conditions": [{"type": "Ready", "status": "True"}]}))
    if why == "no right":
        read = operator.cluster.get

        def refuse(kind: Kind, namespace: str | None, name: str) -> Json | None:
            if kind is Kind.NODE:
                raise Refused(403, "Forbidden", "nodes is forbidden")
            return read(kind, namespace, name)

        operator.cluster.get = refuse  # type: ignore[method-assign]
    operator.wait(60)
    operator.look()

    outcome = operator.look()

    assert (operator.cluster.writes, outcome.recheck_after) == ([], 60.0)
    assert f"when pod {WORKER} is gone" in operator.status["message"]


def test_waiting_for_a_pod_that_does_not_go_costs_one_read_a_look() -> None:
    """That of its node: the pods are listed before something new is deleted alone."""
    operator = stuck_on_a_node(a_node())
    operator.wait(60)

    operator.look()
    operator.wait(60)
    operator.look()

    assert [read for read in operator.cluster.reads if "*" not in read] == ["get Node n1"]


def test_a_refusal_to_read_nodes_is_remembered_for_minutes() -> None:
    """Rights change seldom."""
    operator = stuck_on_a_node(None)
    read, asked = operator.cluster.get, []

    def refuse(kind: Kind, namespace: str | None, name: str) -> Json | None:
        if kind is Kind.NODE:
            asked.append(operator.seconds)
            raise Refused(403, "Forbidden", "nodes is forbidden")
        return read(kind, namespace, name)

    operator.cluster.get = refuse  # type: ignore[method-assign]
    operator.wait(60)
    for _ in range(4):
        operator.look()
        operator.wait(60)
    assert len(asked) == 1

    operator.cluster.get = read  # type: ignore[method-assign]
    operator.wait(60)
    operator.look()

    assert operator.cluster.writes == [f"force Pod {WORKER}"]


def stuck_on_a_node(node: Json | None) -> Operator:
    """Play a job whose worker is being deleted on a node that does not answer."""
    operator = Operator()
    training(operator)
    if node:
        operator.cluster.add(node)
    pod = operator.cluster.objects[Kind.POD, "default", WORKER]
    operator.cluster.add(
        {
            **pod,
            "spec": {**pod["spec"], "nodeName": "n1"},
            "metadata": {**pod["metadata"], "deletionTimestamp": "2026-11-21T12:00:00Z"},
        }
    )
    operator.look()
    operator.look()
    return operator


def life_of(mode: Mode) -> list[tuple[str, Json]]:
    """What kubelets report of a job that nothing happens to, pod by pod."""
    workers = [f"sage-worker-{index}" for index in range(2)] if mode.has_workers else []
    before = [
        (LAUNCHER, LAUNCHER_WAITS),
        ("sage-partitioner", a_pod_status("Pending", containers=[waiting()], init=[running("kubectl")])),
        ("sage-partitioner", a_pod_status("Running", ip="10.0.0.2")),
        ("sage-partitioner", PARTITIONER_DONE),
    ]
    return [
        *(before if mode.has_partitioner else []),
        *((name, a_pod_status("Running", ip=f"10.0.1.{name[-1]}")) for name in workers),
        *((name, a_pod_status("Running", ip=f"10.0.1.{name[-1]}", ready=True)) for name in workers),
        (LAUNCHER, a_pod_status("Running", ip="10.0.0.1")),
        (LAUNCHER, a_pod_status("Succeeded", ip="10.0.0.1")),
    ]


@pytest.mark.parametrize(
    ("mode", "writes", "statuses"),
    [(Mode.DGL_API, 38, 12), (Mode.PARMETIS, 38, 12), (Mode.DIST_PARMETIS, 25, 7), (Mode.SKIP, 11, 3)],
)
def test_attempts_and_clocks_cost_an_undisturbed_job_no_request(
    mode: Mode, writes: int, statuses: int
) -> None:
    """The numbers are those of the release that had neither; one read of the report is at the end."""
    operator = Operator(a_raw_job(mode=mode))
    made, reads = [], []
    for name, status in [("", {}), *life_of(mode)]:
        if name:
            operator.pod(name, status)
        for _ in range(3):
            operator.look()
            made += operator.cluster.writes
            reads += operator.cluster.reads
            operator.wait(2.5)

    assert operator.status["phase"] == "Completed"
    assert (len(made), sum(line.startswith("status") for line in made)) == (writes, statuses)
    assert reads == ["get ConfigMap sage-report"]
