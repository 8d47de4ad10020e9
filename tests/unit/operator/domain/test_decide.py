"""The decision table: phase, milestones, wanted and unwanted pods from what is seen."""

import json

import pytest

from dgl_operator.api.v1alpha1 import DGLJob, Phase
from dgl_operator.domain import decide, report, verdict
from dgl_operator.domain.report import Report
from dgl_operator.domain.verdict import Decision
from dglrun.contract import report as contract
from dglrun.contract.names import Mode, Role
from tests.support.jobs import (
    NOON,
    Json,
    a_job,
    a_pod,
    a_status,
    ended,
    observed,
    running,
    waiting,
    workers_of,
)

LAUNCHER, PARTITIONER, WORKER = Role.LAUNCHER, Role.PARTITIONER, Role.WORKER


def decided(job: DGLJob, *children: Json, stage: str | None = None) -> Decision:
    said = report.read({"progress.json": f'{{"stage": "{stage}"}}'} if stage else {})
    return decide.decide(job, observed(job, *children), said, NOON)


def waiting_launcher(job: DGLJob, **given: object) -> Json:
    """A launcher whose second init container waits."""
    init = [ended("kubectl-download"), running("watcher-loop-partitioner")]
    return a_pod(job, LAUNCHER, "Pending", containers=[waiting()], init=init, **given)  # type: ignore[arg-type]


def truths(decision: Decision) -> set[str]:
    return {fact.type for fact in decision.facts if fact.is_true}


def cause(decision: Decision) -> tuple[str, str]:
    """Why the job has failed, or why the attempt has ended after which another one follows."""
    failed = next((fact for fact in decision.facts if fact.type == verdict.FAILED), None)
    if failed:
        return failed.reason, failed.message
    assert decision.life is not None
    ended = decision.life.attempts[-1]
    assert ended.number == decision.life.attempt - 1
    return ended.reason or "", ended.message or ""


@pytest.mark.parametrize(
    ("mode", "roles"),
    [
        (Mode.DGL_API, {LAUNCHER, PARTITIONER}),
        (Mode.PARMETIS, {LAUNCHER, PARTITIONER}),
        (Mode.DIST_PARMETIS, {LAUNCHER, WORKER}),
        (Mode.SKIP, {LAUNCHER}),
    ],
)
def test_a_new_job_wants_the_pods_that_its_mode_begins_with(mode: Mode, roles: set[Role]) -> None:
    """Workers would idle for hours beside a partitioner; DistParMETIS partitions on them."""
    decision = decided(a_job(mode=mode))

    assert (decision.phase, set(decision.roles)) == (Phase.PENDING, roles)


def test_a_job_is_starting_once_an_init_container_runs() -> None:
    """Nothing runs while it is Pending."""
    job = a_job()

    decision = decided(job, waiting_launcher(job), a_pod(job, PARTITIONER, "Pending", containers=[waiting()]))

    assert decision.phase is Phase.STARTING


def test_a_job_is_partitioning_while_the_partitioner_runs() -> None:
    """The workers wait for it."""
    job = a_job()

    decision = decided(job, waiting_launcher(job), a_pod(job, PARTITIONER))

    assert (decision.phase, set(decision.roles)) == (Phase.PARTITIONING, {LAUNCHER, PARTITIONER})


def test_workers_are_wanted_once_the_partitioner_has_succeeded() -> None:
    """The partitioner's end is the verified delivery."""
    job = a_job()

    decision = decided(job, waiting_launcher(job), a_pod(job, PARTITIONER, "Succeeded"))

    assert (decision.phase, set(decision.roles)) == (Phase.PARTITIONED, {LAUNCHER, WORKER})
    assert verdict.PARTITIONED in truths(decision)


def test_a_partitioner_deleted_after_its_delivery_is_not_missed() -> None:
    """The milestone is kept in the status."""
    job = a_job(status=a_status("Partitioned", verdict.PARTITIONED))

    decision = decided(job, waiting_launcher(job))

    assert (decision.phase, set(decision.roles)) == (Phase.PARTITIONED, {LAUNCHER, WORKER})


def test_a_job_is_training_once_the_launchers_main_container_runs() -> None:
    """The launcher's init containers have let it go."""
    job = a_job(status=a_status("Partitioned", verdict.PARTITIONED))

    decision = decided(job, a_pod(job, LAUNCHER), *workers_of(job, ready=True))

    assert decision.phase is Phase.TRAINING
    assert {verdict.LAUNCHER_STARTED, verdict.WORKERS_READY} <= truths(decision)


@pytest.mark.parametrize(
    ("stage", "phase", "partitioned"),
    [
        (None, Phase.PARTITIONING, False),
        ("Partitioning", Phase.PARTITIONING, False),
        ("Dispatching", Phase.PARTITIONED, True),
        ("Training", Phase.TRAINING, True),
        ("Collecting", Phase.TRAINING, True),
    ],
)
def test_dist_parmetis_takes_its_phase_from_the_launchers_report(
    stage: str | None, phase: Phase, partitioned: bool
) -> None:
    """There is no partitioner pod to look at."""
    job = a_job(mode=Mode.DIST_PARMETIS)

    decision = decided(job, a_pod(job, LAUNCHER), *workers_of(job, ready=True), stage=stage)

    assert decision.phase is phase
    assert (verdict.PARTITIONED in truths(decision)) is partitioned


@pytest.mark.parametrize("mode", list(Mode))
def test_one_look_after_the_launcher_succeeded_the_job_is_completed(mode: Mode) -> None:
    """Skip jobs too, from whatever the last status said."""
    job = a_job(mode=mode, status=a_status("Starting"))

    decision = decided(job, a_pod(job, LAUNCHER, "Succeeded"))

    assert decision.phase is Phase.COMPLETED


def test_a_launcher_that_fails_with_no_worker_running_fails_the_job() -> None:
    """No earlier milestone hides a final outcome."""
    job = a_job(status=a_status("Partitioned", verdict.PARTITIONED))

    decision = decided(job, a_pod(job, LAUNCHER, "Failed", containers=[ended(code=7, message="no workers")]))

    assert decision.phase is Phase.FAILED
    assert cause(decision) == (
        "TrainingFailed",
        "pod sage-launcher, container main, exit code 7: no workers",
    )


def test_a_phase_never_moves_back() -> None:
    """A launcher that the kubelet reports as waiting again does not undo the training."""
    job = a_job(status=a_status("Training", verdict.PARTITIONED, verdict.LAUNCHER_STARTED))

    decision = decided(job, waiting_launcher(job), *workers_of(job, ready=True))

    assert decision.phase is Phase.TRAINING


def test_a_failed_partitioner_is_the_cause_and_not_the_launcher_that_noticed() -> None:
    """Failures spread within a second; finish times have whole ones."""
    job = a_job(status=a_status("Partitioning"))
    partitioner = a_pod(
        job, PARTITIONER, "Failed", containers=[ended(code=3, message="no data", at="2026-11-21T11:59:00Z")]
    )
    launcher = a_pod(
        job,
        LAUNCHER,
        "Failed",
        containers=[waiting()],
        init=[ended("watcher-loop-partitioner", 75, "sage-partitioner failed", at="2026-11-21T11:59:01Z")],
    )

    decision = decided(job, launcher, partitioner)

    assert cause(decision) == (
        "PartitionFailed",
        "pod sage-partitioner, container main, exit code 3: no data",
    )


def test_a_launcher_that_fails_long_before_a_worker_is_the_cause() -> None:
    """Workers that are ended after it are its consequence."""
    job = a_job(status=a_status("Training", verdict.LAUNCHER_STARTED))
    launcher = a_pod(job, LAUNCHER, "Failed", containers=[ended(code=1, at="2026-11-21T11:00:00Z")])
    worker = a_pod(job, WORKER, "Failed", containers=[ended(code=143, at="2026-11-21T11:00:30Z")])

    assert cause(decided(job, launcher, worker, a_pod(job, WORKER, index=1)))[1].startswith(
        "pod sage-launcher,"
    )


@pytest.mark.parametrize("reached", [verdict.LAUNCHER_STARTED, verdict.WORKERS_READY])
def test_a_worker_that_is_gone_after_it_had_work_ends_the_attempt(reached: str) -> None:
    """It is never made anew with an empty disk."""
    job = a_job(status=a_status("Partitioned", verdict.PARTITIONED, reached))

    decision = decided(job, a_pod(job, LAUNCHER), a_pod(job, WORKER, index=0))

    assert cause(decision) == ("PodLost", "pod sage-worker-1 is gone; its local data is lost")


def test_a_worker_that_is_gone_before_it_had_work_is_made_anew() -> None:
    """An evicted image pull costs nothing."""
    job = a_job(status=a_status("Partitioned", verdict.PARTITIONED))

    decision = decided(job, waiting_launcher(job), a_pod(job, WORKER, "Pending", index=0))

    assert (decision.phase, set(decision.roles)) == (Phase.PARTITIONED, {LAUNCHER, WORKER})


@pytest.mark.parametrize("phase", ["Starting", "Partitioning", "Partitioned", "Training"])
def test_a_launcher_that_is_gone_ends_the_attempt(phase: str) -> None:
    """Its dataset volume went with it."""
    job = a_job(status=a_status(phase))

    assert cause(decided(job, a_pod(job, PARTITIONER)))[0] == "PodLost"


def test_a_partitioner_that_is_gone_while_it_worked_ends_the_attempt() -> None:
    """Hours of partitioning are not silently begun again."""
    job = a_job(status=a_status("Partitioning"))

    assert cause(decided(job, waiting_launcher(job))) == (
        "PodLost",
        "pod sage-partitioner is gone; its local data is lost",
    )


def test_a_worker_that_is_being_deleted_is_lost_at_once() -> None:
    """Its grace period would only delay the news."""
    job = a_job(status=a_status("Training", verdict.LAUNCHER_STARTED))
    leaving = a_pod(job, WORKER, index=1, deleting=True)

    decision = decided(job, a_pod(job, LAUNCHER), a_pod(job, WORKER), leaving)

    assert cause(decision)[1] == "pod sage-worker-1 is being deleted; its local data is lost"


def test_an_eviction_for_what_a_worker_used_itself_fails_the_job_with_the_nodes_words() -> None:
    """The kubelet says which resource was short."""
    job = a_job(status=a_status("Training", verdict.LAUNCHER_STARTED))
    evicted = a_pod(job, WORKER, "Failed", index=1, containers=[], reason="Evicted", message="low on memory")

    decision = decided(job, a_pod(job, LAUNCHER), a_pod(job, WORKER), evicted)

    assert cause(decision) == ("Evicted", "pod sage-worker-1 was evicted: Evicted: low on memory")


def test_a_lost_worker_is_the_cause_when_the_launcher_says_that_it_lost_one() -> None:
    """After a while without an operator both are seen at once."""
    job = a_job(status=a_status("Training", verdict.LAUNCHER_STARTED))
    launcher = a_pod(job, LAUNCHER, "Failed", containers=[ended(code=75, message="worker 1 vanished")])

    assert cause(decided(job, launcher, a_pod(job, WORKER)))[0] == "PodLost"


def test_a_container_that_ran_out_of_memory_is_named_so() -> None:
    """137 alone would not say it."""
    job = a_job(status=a_status("Training", verdict.LAUNCHER_STARTED))
    dead = a_pod(job, WORKER, "Failed", containers=[ended(code=137, reason="OOMKilled")])

    decision = decided(job, a_pod(job, LAUNCHER), dead, a_pod(job, WORKER, index=1))

    assert cause(decision) == (
        "OOMKilled",
        "pod sage-worker-0, container main, exit code 137 (SIGKILL), OOMKilled",
    )


def test_a_worker_that_ends_before_the_job_fails_it() -> None:
    """Dglrun could start nothing in it."""
    job = a_job(status=a_status("Training", verdict.LAUNCHER_STARTED))

    decision = decided(
        job, a_pod(job, LAUNCHER), a_pod(job, WORKER, "Succeeded"), a_pod(job, WORKER, index=1)
    )

    assert cause(decision)[0] == "PodFailed"
    assert "must live until the job ends" in cause(decision)[1]


def test_a_pod_that_its_node_ended_for_a_deadline_was_not_evicted() -> None:
    """The user's own activeDeadlineSeconds, or a node that was full."""
    job = a_job(status=a_status("Training", verdict.LAUNCHER_STARTED))
    late = a_pod(
        job, LAUNCHER, "Failed", containers=[], reason="DeadlineExceeded", message="active for too long"
    )

    decision = decided(job, late, *workers_of(job))

    assert cause(decision) == ("PodFailed", "pod sage-launcher: DeadlineExceeded: active for too long")


@pytest.mark.parametrize(
    ("stage", "reason"),
    [(None, "PartitionFailed"), ("Partitioning", "PartitionFailed"), ("Training", "TrainingFailed")],
)
def test_a_dist_parmetis_launcher_fails_at_what_it_was_doing(stage: str | None, reason: str) -> None:
    """It partitions before it trains."""
    job = a_job(mode=Mode.DIST_PARMETIS)
    launcher = a_pod(job, LAUNCHER, "Failed", containers=[ended(code=70)])

    assert cause(decided(job, launcher, *workers_of(job), stage=stage))[0] == reason


def test_an_image_name_that_cannot_be_one_fails_the_job() -> None:
    """Other pull problems may pass; this one cannot."""
    job = a_job()
    stuck = a_pod(
        job,
        LAUNCHER,
        "Pending",
        containers=[waiting(reason="InvalidImageName", message="couldn't parse 'A B'")],
    )

    assert cause(decided(job, stuck)) == (
        "InvalidImageName",
        "pod sage-launcher, container main: couldn't parse 'A B'",
    )


def test_an_image_that_cannot_be_pulled_is_shown_and_waited_for() -> None:
    """Registries come back."""
    job = a_job()
    stuck = a_pod(
        job, LAUNCHER, "Pending", containers=[waiting(reason="ImagePullBackOff", message="no such tag")]
    )

    decision = decided(job, stuck)

    assert decision.phase is Phase.PENDING
    assert decision.message == "ImagePullBackOff: pod sage-launcher, container main: no such tag"
    assert verdict.BLOCKED in truths(decision)


def test_a_hindrance_that_has_passed_is_withdrawn() -> None:
    """The condition stays as a record, with status False."""
    job = a_job(status=a_status("Starting", verdict.BLOCKED))

    decision = decided(job, waiting_launcher(job))

    assert (verdict.BLOCKED, False) in {(fact.type, fact.is_true) for fact in decision.facts}


def test_a_worker_lost_while_the_operator_was_away_is_not_made_anew() -> None:
    """The status is older than the start of the launcher, which this look shows."""
    job = a_job(status=a_status("Partitioned", verdict.PARTITIONED))
    launcher = a_pod(job, LAUNCHER, "Running", ip="10.0.0.1")

    decision = decided(job, launcher, a_pod(job, PARTITIONER, "Succeeded"), workers_of(job, ready=True)[0])

    assert decision.is_held
    assert "sage-worker-1" in decision.message


def test_a_launcher_lost_after_the_delivery_is_not_made_anew_with_an_empty_disk() -> None:
    """Even when the operator hears of both at once."""
    job = a_job(status=a_status("Pending"))

    decision = decided(job, a_pod(job, PARTITIONER, "Succeeded"))

    assert decision.is_held
    assert "sage-launcher" in decision.message


def test_a_rejected_job_says_every_problem_at_once() -> None:
    """The user mends all of them before the next try."""
    decision = decide.reject("InvalidSpec", ["first", "second"])

    assert (decision.phase, decision.message) == (Phase.FAILED, "InvalidSpec: first; second")
    assert decision.roles == frozenset()


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("progress.json", '{"stage": "Training", "time": "2026-01-01T00:00:00"}'),
        ("progress.json", '{"stage": "Training", "time": "2026-01-01"}'),
        ("progress.json", '{"stage": "Training", "loss": "NaN"}'),
        ("progress.json", '{"stage": "Training", "loss": 0.5}'),
        ("progress.json", '{"stage": "Training", "epoch": -1}'),
        ("partition.json", '{"numParts": 3000000000}'),
        ("partition.json", '{"numNodes": 99999999999999999999999}'),
    ],
)
def test_a_report_that_the_api_server_would_refuse_is_malformed(key: str, text: str) -> None:
    """Its schema is stricter than JSON: a zone for each time, 32 and 64 bits for numbers."""
    said = report.read({key: text})

    assert (said.progress, said.partition, len(said.problems)) == (None, None, 1)


def test_what_the_script_tells_is_read() -> None:
    """As dglrun writes it."""
    told = {"stage": "Training", **contract.script_values({"epoch": 3, "loss": 1e-7, "percent": 12.5})}

    said = report.read({"progress.json": json.dumps(told)})

    assert said.problems == ()
    assert said.progress is not None
    assert (said.progress.epoch, said.progress.loss, said.progress.percent) == (3, "1e-07", 12)


def test_a_malformed_report_changes_no_phase() -> None:
    """The job's own words are not trusted."""
    job = a_job(status=a_status("Starting"))
    said = report.read({"progress.json": "{"})

    decision = decide.decide(job, observed(job, waiting_launcher(job)), said, NOON)

    assert decision.phase is Phase.STARTING
    assert (verdict.REPORTED, False) in {(fact.type, fact.is_true) for fact in decision.facts}
    assert isinstance(said, Report)


def test_a_stalled_job_says_why_until_a_look_goes_well() -> None:
    """The condition that kstatus reads."""
    bare = Decision(Phase.PENDING, "pods are starting")

    stalled = verdict.stalled(bare, "InternalError", "KeyError: 'x'")

    assert stalled.message == "InternalError: KeyError: 'x'"
    assert verdict.STALLED in truths(stalled)
    assert verdict.unstalled(bare, a_job().status) == bare
    again = verdict.unstalled(bare, a_job(status=a_status("Pending", verdict.STALLED)).status)
    assert [(fact.type, fact.is_true, fact.reason) for fact in again.facts] == [
        (verdict.STALLED, False, "Resolved")
    ]
