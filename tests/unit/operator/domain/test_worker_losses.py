"""Which lost workers are replaced alone, and how a loss is counted."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgl_operator.api.v1alpha1 import MAX_REPLACED, DGLJob, Phase
from dgl_operator.domain import decide, report, status, verdict
from dgl_operator.domain.report import Report
from dgl_operator.domain.status import NO_REPORT
from dgl_operator.domain.verdict import Decision
from dglrun.contract.names import Role
from tests.support.jobs import (
    NOON,
    Json,
    a_job,
    a_pod,
    a_status,
    ended,
    observed,
    workers_of,
)

LAUNCHER, WORKER = Role.LAUNCHER, Role.WORKER
GOES_ON = report.read({"progress.json": '{"stage": "Training", "replaces": true}'})
DRAINED = [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]
LOST: dict[str, dict[str, Any]] = {
    "being deleted": {"deleting": True},
    "being deleted and ended": {
        "deleting": "2026-11-21T11:59:20Z",
        "phase": "Failed",
        "containers": [ended(code=143)],
    },
    "evicted": {"phase": "Failed", "containers": [ended(code=143)], "conditions": DRAINED},
    "of a lost node": {"phase": "Failed", "containers": [], "reason": "NodeLost", "message": "no news"},
}


def training(restarts: int = 0, lost: tuple[str, ...] = (), since: str | None = None, **spec: Any) -> DGLJob:
    """A job that trains, with what its status says of earlier losses."""
    attempt: Json = {"number": 0, "startTime": "2026-11-21T11:00:00Z", "lostWorkers": list(lost)}
    if since:
        attempt |= {"waitingSince": since, "waits": 1}
    reached = (verdict.PARTITIONED, verdict.WORKERS_READY, verdict.LAUNCHER_STARTED)
    told = {**a_status("Training", *reached), "attempts": [attempt], "restarts": {"workers": restarts}}
    return a_job(status=told, **spec)


def decided(job: DGLJob, *children: Json, said: Report = GOES_ON) -> Decision:
    return decide.decide(job, observed(job, *children), said, NOON)


def losses(decision: Decision) -> tuple[int, int, tuple[str, ...]]:
    """Attempt, counted losses and missing workers."""
    assert decision.life is not None
    return decision.life.attempt, decision.life.restarts.workers, decision.life.lost_workers


def without_last(job: DGLJob, **worker: Any) -> Decision:
    """Decide where the last worker is gone, or in this state."""
    last = [a_pod(job, WORKER, index=1, **worker)] if worker else []
    return decided(job, a_pod(job, LAUNCHER), workers_of(job, ready=True)[0], *last)


@pytest.mark.parametrize("how", [{}, *LOST.values()], ids=["gone", *LOST])
def test_a_worker_that_is_lost_in_the_training_is_replaced_within_the_attempt(how: dict[str, Any]) -> None:
    """The job goes on; the loss is counted, and rests on a fresh read."""
    job = training()

    decision = without_last(job, **how)

    assert decision.phase is Phase.TRAINING
    assert not decision.is_held
    assert WORKER in decision.roles
    assert losses(decision) == (0, 1, ("sage-worker-1",))
    assert decision.needs_fresh_read(job.status)
    assert status.irrevocable(job.status, decision)
    assert decision.message == "worker sage-worker-1 was lost and is replaced; then training starts again"
    assert [pod.name for pod in decision.drop] == (
        ["sage-worker-1"] if "phase" in how and "deleting" not in how else []
    )


def test_a_loss_is_counted_once() -> None:
    """However often it is looked at, and whatever becomes of the new pod before it is Ready."""
    job = training(1, ("sage-worker-1",), "2026-11-21T11:59:50Z")

    for how in ({}, *LOST.values(), {"phase": "Pending"}, {"phase": "Running"}):
        assert losses(without_last(job, **how)) == (0, 1, ("sage-worker-1",))


def test_a_worker_that_is_back_is_missed_no_more() -> None:
    """Its next loss counts again."""
    job = training(1, ("sage-worker-1",), "2026-11-21T11:59:50Z")

    decision = without_last(job, ready=True)

    assert losses(decision) == (0, 1, ())
    assert decision.life is not None
    assert decision.life.current is not None
    assert decision.life.current.waiting_since is None
    assert decision.message == "training on 2 workers"


def test_a_replacement_that_does_not_start_in_time_fails_the_job() -> None:
    """As any pod of a set that is waited for."""
    job = training(1, ("sage-worker-1",), "2026-11-21T11:00:00Z")

    decision = without_last(job, phase="Pending")

    assert decision.phase is Phase.FAILED
    assert decision.message.startswith("StartDeadlineExceeded: pod sage-worker-1 has started no container")


@pytest.mark.parametrize(
    ("created", "pods"),
    [("11:59:55", 1), ("11:59:50", 1), ("11:59:49", 1), ("11:59:20", 1), ("11:30:00", 0)],
)
def test_a_replacement_that_is_evicted_before_it_had_work_counts_as_a_pod(created: str, pods: int) -> None:
    """Its waits grow, also where the API server's clock is behind the operator's; the lost pod is older."""
    job = training(1, ("sage-worker-1",), "2026-11-21T11:59:50Z")
    early = a_pod(job, WORKER, index=1, **LOST["evicted"])
    early["metadata"]["creationTimestamp"] = f"2026-11-21T{created}Z"

    decision = decided(job, a_pod(job, LAUNCHER), workers_of(job, ready=True)[0], early)

    assert losses(decision) == (0, 1, ("sage-worker-1",))
    assert [pod.name for pod in decision.drop] == ["sage-worker-1"]
    assert decision.life is not None
    assert decision.life.restarts.pods == pods


def test_a_replacement_that_its_kubelet_rejects_is_made_anew() -> None:
    """The node was full by then."""
    job = training(1, ("sage-worker-1",), "2026-11-21T11:59:50Z")

    decision = without_last(job, phase="Failed", containers=[], reason="OutOfcpu", message="full")

    assert [pod.name for pod in decision.drop] == ["sage-worker-1"]
    assert losses(decision) == (0, 1, ("sage-worker-1",))


SAYS_NOTHING = report.read({"progress.json": '{"stage": "Training"}'})
COLLECTS = report.read({"progress.json": '{"stage": "Collecting", "replaces": true}'})


@pytest.mark.parametrize("said", [NO_REPORT, SAYS_NOTHING, COLLECTS], ids=["nothing", "older", "collecting"])
def test_a_launcher_that_does_not_go_on_costs_an_attempt(said: Report) -> None:
    """An older dglrun, or one whose parts were made on the workers."""
    job = training()

    decision = decided(job, a_pod(job, LAUNCHER), workers_of(job, ready=True)[0], said=said)

    assert decision.is_held
    assert losses(decision) == (1, 0, ())


@pytest.mark.parametrize(
    "launcher",
    [
        {"phase": "Failed", "containers": [ended(code=75)]},
        {"phase": "Running", "containers": [ended(code=75)]},
        {"phase": "Failed", "containers": [ended(code=143)], "conditions": DRAINED},
        {"deleting": True},
    ],
)
def test_with_a_launcher_that_does_not_live_a_lost_worker_costs_an_attempt(launcher: dict[str, Any]) -> None:
    """Nobody would use the new pod."""
    job = training()

    decision = decided(job, a_pod(job, LAUNCHER, **launcher), workers_of(job, ready=True)[0])

    assert decision.is_held
    assert losses(decision)[0] == 1


@pytest.mark.parametrize(
    "worker",
    [
        {"phase": "Failed", "containers": [ended(code=137, reason="OOMKilled")]},
        {"phase": "Failed", "containers": [], "reason": "Evicted", "message": "low on disk"},
        {"phase": "Succeeded"},
    ],
)
def test_a_worker_that_fails_by_itself_is_a_failure(worker: dict[str, Any]) -> None:
    """It counts towards backoffLimit, which is 0."""
    assert without_last(training(), **worker).phase is Phase.FAILED


def test_losses_are_bounded() -> None:
    """What evicts each worker as soon as it trains must not keep a job for ever."""
    decision = without_last(training(MAX_REPLACED))

    assert decision.is_held
    assert losses(decision) == (1, MAX_REPLACED, ())


@pytest.mark.parametrize(("action", "phase"), [("FailJob", Phase.FAILED), ("Restart", Phase.FAILED)])
def test_a_rule_of_the_users_on_workers_says_what_a_loss_costs(action: str, phase: Phase) -> None:
    """It is asked before."""
    job = training(failurePolicy={"rules": [{"action": action, "role": "Worker"}]})

    assert without_last(job).phase is phase


def test_all_workers_may_be_lost_at_once() -> None:
    """The launcher has the parts."""
    job = training()

    decision = decided(job, a_pod(job, LAUNCHER))

    assert losses(decision) == (0, 2, ("sage-worker-0", "sage-worker-1"))
    assert decision.message.startswith("worker sage-worker-0 and 1 more was lost")


states = st.sampled_from([None, {"ready": True}, {"phase": "Pending"}, {"phase": "Running"}, *LOST.values()])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(states, states), max_size=8))
def test_while_the_launcher_goes_on_no_loss_costs_an_attempt(sights: list[tuple[Any, Any]]) -> None:
    """Each loss of a worker that was there counts once, over any sequence of looks."""
    job, raw, there = training(), {}, {0, 1}
    counted = 0
    for sight in sights:
        pods = [a_pod(job, WORKER, index=at, **how) for at, how in enumerate(sight) if how is not None]
        lost = {at for at, how in enumerate(sight) if how is None or how in LOST.values()}
        counted += len(lost & there)
        back = {at for at, how in enumerate(sight) if how is not None and how.get("ready")}
        there = (there - lost) | back

        decision = decided(job, a_pod(job, LAUNCHER), *pods)
        new = status.next_status(job.status, 1, decision, {}, NO_REPORT, NOON)

        assert (new.attempt, new.phase) == (0, Phase.TRAINING)
        assert new.restarts is None or new.restarts.workers == counted
        assert new.attempts[-1].lost_workers == tuple(f"sage-worker-{at}" for at in sorted({0, 1} - there))
        raw = new.wire()
        job = a_job(status=raw)
