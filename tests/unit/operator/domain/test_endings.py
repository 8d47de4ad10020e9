"""Which ends of the launcher are a success, and which pods a job that has ended keeps."""

import pytest

from dgl_operator.api.v1alpha1 import DGLJob, Phase
from dgl_operator.domain import verdict
from dglrun.contract.names import Mode, Role
from tests.support.jobs import Json, a_job, a_pod, a_status, ended, running, waiting, workers_of
from tests.unit.operator.domain.test_decide import cause, decided, truths, waiting_launcher

LAUNCHER, PARTITIONER, WORKER = Role.LAUNCHER, Role.PARTITIONER, Role.WORKER


def disrupted(at: str, reason: str = "EvictionByEvictionAPI") -> Json:
    """The status of a pod that Kubernetes begins to evict at this time."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": "drained",
        "lastTransitionTime": at,
    }
    return {"conditions": [condition]}


ENDED = "2026-11-21T11:59:00Z"
"""When the builders' containers have ended."""
AT_THE_END = {
    "evicted before": (disrupted("2026-11-21T11:58:30Z"), "Evicted"),
    "evicted in the same second": (disrupted(ENDED), "Evicted"),
    "preempted": (disrupted("2026-11-21T11:58:30Z", "PreemptionByScheduler"), "Evicted"),
    "evicted by an older kubelet": ({"phase": "Failed", "reason": "Evicted", "message": "full"}, "Evicted"),
    "node shut down": ({"phase": "Failed", "reason": "Terminated", "message": "node shutdown"}, "Evicted"),
    "deleted before": ({"deleting": "2026-11-21T11:59:20Z"}, "PodLost"),
    "deleted in the same second": ({"deleting": "2026-11-21T11:59:30Z"}, "PodLost"),
    "past its own deadline": (
        {"phase": "Failed", "reason": "DeadlineExceeded", "message": "long", "startTime": ENDED},
        "PodFailed",
    ),
}


def an_ended_launcher(job: DGLJob, how: Json) -> Json:
    given = {"phase": "Succeeded", **how}
    return a_pod(job, LAUNCHER, containers=[ended(at=ENDED)], **given)


@pytest.mark.parametrize(("how", "reason"), AT_THE_END.values(), ids=AT_THE_END)
@pytest.mark.parametrize("phase", ["Pending", "Training"])
def test_a_launcher_that_ends_with_0_because_it_is_ended_is_no_success(
    how: Json, reason: str, phase: str
) -> None:
    """A script that traps SIGTERM ends with 0 in the middle of its training."""
    job = a_job(status=a_status(phase))

    decision = decided(job, an_ended_launcher(job, how), *workers_of(job))

    assert verdict.COMPLETED not in truths(decision)
    assert cause(decision)[0] == reason
    assert "sage-launcher" in cause(decision)[1]


@pytest.mark.parametrize(
    "how",
    [
        disrupted("2026-11-21T11:59:01Z"),
        {"phase": "Failed", "reason": "Evicted", **disrupted("2026-11-21T12:59:00Z")},
        {"deleting": "2026-11-21T11:59:31Z"},
        {"phase": "Failed", "reason": "DeadlineExceeded", "startTime": "2026-11-21T11:59:01Z"},
    ],
)
def test_a_launcher_that_had_ended_with_0_before_it_was_ended_is_a_success(how: Json) -> None:
    """Its sidecar may have been evicted an hour later."""
    job = a_job(status=a_status("Training", verdict.LAUNCHER_STARTED))

    assert decided(job, an_ended_launcher(job, how)).phase is Phase.COMPLETED


@pytest.mark.parametrize("how", [how for how, _ in AT_THE_END.values()], ids=AT_THE_END)
def test_an_end_with_0_after_the_report_of_success_is_a_success(how: Json) -> None:
    """The run had said so before the pod was ended."""
    job = a_job(status=a_status("Training", verdict.LAUNCHER_STARTED))

    assert decided(job, an_ended_launcher(job, how), stage="Completed").phase is Phase.COMPLETED


def test_a_launcher_that_is_gone_after_the_report_of_success_completes_the_job() -> None:
    """It was deleted while the operator was away, with its workers."""
    job = a_job(status=a_status("Training", verdict.LAUNCHER_STARTED))

    decision = decided(job, stage="Completed")

    assert decision.phase is Phase.COMPLETED
    assert verdict.COMPLETED in truths(decision)


@pytest.mark.parametrize(
    ("stage", "reached"), [("Completed", []), ("Collecting", [verdict.LAUNCHER_STARTED])]
)
def test_a_launcher_that_is_gone_without_proof_of_success_is_lost(stage: str, reached: list[str]) -> None:
    """A report before the launcher has started is not the launcher's."""
    job = a_job(status=a_status("Partitioning", *reached))

    assert cause(decided(job, stage=stage))[0] == "PodLost"


def test_nothing_is_made_and_no_worker_is_missed_after_the_report_of_success() -> None:
    """The launcher is about to end; a node that is drained takes all pods at once."""
    job = a_job(status=a_status("Training", verdict.PARTITIONED, verdict.LAUNCHER_STARTED))

    decision = decided(
        job, a_pod(job, LAUNCHER, deleting=True), a_pod(job, WORKER, "Failed"), stage="Completed"
    )

    assert (decision.phase, decision.roles) == (Phase.TRAINING, frozenset())


def test_a_launcher_that_fails_after_the_report_of_success_fails_the_job() -> None:
    """What the user's command does after dglrun counts, too."""
    job = a_job(status=a_status("Training", verdict.LAUNCHER_STARTED))

    decision = decided(job, a_pod(job, LAUNCHER, "Failed", containers=[ended(code=3)]), stage="Completed")

    assert cause(decision)[0] == "TrainingFailed"


def test_a_partitioner_that_ends_with_0_because_it_is_evicted_has_delivered_nothing() -> None:
    """Its command may be the user's own."""
    job = a_job(status=a_status("Partitioning"))
    partitioner = a_pod(job, PARTITIONER, "Succeeded", **disrupted("2026-11-21T11:58:30Z"))

    decision = decided(job, waiting_launcher(job), partitioner)

    assert verdict.PARTITIONED not in truths(decision)
    assert cause(decision)[0] == "Evicted"


@pytest.mark.parametrize(("mode", "name"), [(Mode.DGL_API, "sage-worker-7"), (Mode.SKIP, "sage-partitioner")])
def test_a_pod_beyond_those_of_the_mode_decides_nothing(mode: Mode, name: str) -> None:
    """Somebody made it by hand, with our owner reference."""
    job = a_job(mode=mode)
    stranger = a_pod(a_job(), WORKER, "Failed")
    stranger["metadata"]["name"] = name

    assert decided(job, stranger).phase is Phase.PENDING


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        ("Running", {"sage-launcher", "sage-partitioner"}),
        ("All", set()),
        ("None", {"sage-launcher", "sage-partitioner", "sage-worker-0", "sage-worker-1"}),
    ],
)
@pytest.mark.parametrize("phase", ["Completed", "Failed"])
def test_clean_pod_policy_leaves_the_same_pods_after_any_outcome(
    policy: str, left: set[str], phase: str
) -> None:
    """Running deletes what has not stopped, All everything, None nothing."""
    job = a_job(cleanPodPolicy=policy, status=a_status(phase))
    launcher = a_pod(job, LAUNCHER, "Succeeded" if phase == "Completed" else "Failed")
    pods = [launcher, a_pod(job, PARTITIONER, "Succeeded"), *workers_of(job)]

    decision = decided(job, *pods)

    assert {pod["metadata"]["name"] for pod in pods} - {pod.name for pod in decision.drop} == left


def test_clean_up_deletes_no_pod_twice() -> None:
    """A pod in its grace period is on its way."""
    job = a_job(status=a_status("Completed"))

    assert decided(job, a_pod(job, WORKER, deleting=True)).drop == ()


def test_a_launcher_with_a_sidecar_counts_as_running_for_the_clean_up() -> None:
    """It would hold its node for ever."""
    job = a_job(status=a_status("Completed"))
    launcher = a_pod(job, LAUNCHER, "Running", containers=[ended(), running("proxy")])

    assert [pod.name for pod in decided(job, launcher).drop] == ["sage-launcher"]


@pytest.mark.parametrize("code", [0, 1])
def test_a_pod_whose_containers_have_all_ended_is_not_deleted_before_its_phase_follows(code: int) -> None:
    """The kubelet tells of the containers first and of the pod's phase a second or two later."""
    job = a_job(status=a_status("Failed" if code else "Completed"))
    launcher = a_pod(
        job, LAUNCHER, "Running", containers=[ended(code=code)], init=[ended("kubectl-download")]
    )

    assert decided(job, launcher).drop == ()


def test_a_launcher_with_a_native_sidecar_that_runs_is_deleted() -> None:
    """An init container with restartPolicy Always ends with the pod only (KEP-753)."""
    job = a_job(status=a_status("Completed"))
    launcher = a_pod(job, LAUNCHER, "Running", containers=[ended()], init=[running("proxy")])

    assert [pod.name for pod in decided(job, launcher).drop] == ["sage-launcher"]


def a_failed_job() -> DGLJob:
    return a_job(status=a_status("Failed", verdict.FAILED))


def test_the_launcher_of_a_failed_job_is_ended_and_its_logs_stay() -> None:
    """A worker ran out of memory; what the training saw of it stands in the launcher's logs."""
    job = a_failed_job()

    decision = decided(job, a_pod(job, LAUNCHER), *workers_of(job))

    assert [pod.name for pod in decision.stop] == ["sage-launcher"]
    assert [pod.name for pod in decision.drop] == ["sage-worker-0", "sage-worker-1"]
    assert decision.needs_fresh_read(job.status)


def test_a_launcher_that_is_being_ended_is_left_alone() -> None:
    """One patch is enough."""
    job = a_failed_job()
    launcher = a_pod(job, LAUNCHER)
    launcher["spec"]["activeDeadlineSeconds"] = 1

    assert (decided(job, launcher).stop, decided(job, launcher).drop) == ((), ())


def test_a_deadline_of_the_users_own_is_made_shorter() -> None:
    """The launcher would run on for a day otherwise."""
    job = a_failed_job()
    launcher = a_pod(job, LAUNCHER)
    launcher["spec"]["activeDeadlineSeconds"] = 86_400

    assert [pod.name for pod in decided(job, launcher).stop] == ["sage-launcher"]


@pytest.mark.parametrize(
    ("policy", "status", "containers"),
    [("All", "Failed", "running"), ("Running", "Completed", "running"), ("Running", "Failed", "waiting")],
)
def test_a_launcher_without_logs_to_keep_is_deleted(policy: str, status: str, containers: str) -> None:
    """As asked with All, with a sidecar after a success, or when nothing of it has run."""
    job = a_job(cleanPodPolicy=policy, status=a_status(status))
    state = {"running": running(), "waiting": waiting()}[containers]

    decision = decided(job, a_pod(job, LAUNCHER, containers=[state]))

    assert ([pod.name for pod in decision.drop], decision.stop) == (["sage-launcher"], ())


def test_a_launcher_that_was_ended_after_the_failure_changes_nothing() -> None:
    """Phase Failed, reason DeadlineExceeded, whatever its exit code: the job's end is final."""
    job = a_failed_job()
    launcher = a_pod(job, LAUNCHER, "Failed", containers=[ended()], reason="DeadlineExceeded")

    decision = decided(job, launcher)

    assert (decision.phase, decision.facts, decision.drop, decision.stop) == (Phase.FAILED, (), (), ())


@pytest.mark.parametrize("phase", ["Completed", "Failed"])
def test_workers_are_no_longer_ready_when_the_job_has_ended_and_they_go(phase: str) -> None:
    """A status that says both True and 0/2 contradicts itself."""
    job = a_job(status=a_status(phase, verdict.WORKERS_READY))

    staying = decided(job, *workers_of(job, ready=True))
    going = decided(job, *workers_of(job, ready=True, deleting=True))

    assert staying.facts == ()
    assert [(fact.type, fact.is_true, fact.reason) for fact in going.facts] == [
        (verdict.WORKERS_READY, False, "JobEnded")
    ]


def test_a_job_that_ended_before_it_had_workers_gets_no_condition_about_them() -> None:
    """Rejected at once, say."""
    assert decided(a_job(status=a_status("Failed", verdict.FAILED))).facts == ()


def test_a_training_that_hangs_has_a_reason_of_its_own() -> None:
    """A retry may help, which it seldom does after another failure."""
    job = a_job(status=a_status("Training", verdict.LAUNCHER_STARTED))

    decision = decided(job, a_pod(job, LAUNCHER, "Failed", containers=[ended(code=79)]), *workers_of(job))

    assert cause(decision)[0] == "TrainingHung"
