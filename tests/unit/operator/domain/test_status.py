"""The status is one value: times set once, counters true, conditions by metav1's rules."""

import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgl_operator.api.v1alpha1 import JobStatus, Phase, ReplicaStatus
from dgl_operator.domain import decide, events, report, status, verdict
from dgl_operator.domain.events import Event
from dgl_operator.domain.verdict import Decision, Fact
from dglrun.contract.names import Mode, Role
from tests.support.jobs import NOON, a_job, a_pod, ended, observed, running, waiting, workers_of

NO_REPORT = status.NO_REPORT
LATER = NOON + timedelta(minutes=5)
GOING_ON = Decision(Phase.STARTING, "pods are starting", (Fact("Accepted", True, "Valid"),))


def following(
    old: JobStatus, decision: Decision, *, now: object = NOON, data: dict[str, str] | None = None
) -> JobStatus:
    said = report.read(data or {})
    return status.next_status(old, 1, decision, {}, said, now)  # type: ignore[arg-type]


def test_a_second_look_without_change_gives_an_equal_status() -> None:
    """So nothing is written."""
    first = following(JobStatus(), GOING_ON)

    assert following(first, GOING_ON, now=LATER) == first


def test_a_status_survives_the_api_server() -> None:
    """What is read back equals what was written; otherwise every look would write."""
    first = following(JobStatus(), GOING_ON, data={"progress.json": '{"stage": "Training", "percent": 3}'})

    assert JobStatus.model_validate(first.wire()) == first


def test_start_and_completion_time_are_set_once() -> None:
    """Start with the first look, completion with every final phase."""
    first = following(JobStatus(), GOING_ON)
    final = following(first, Decision(Phase.COMPLETED, "done"), now=LATER)
    again = following(final, Decision(Phase.COMPLETED, "done"), now=LATER + timedelta(hours=1))

    assert (first.start_time, first.completion_time) == (NOON, None)
    assert (again.start_time, again.completion_time) == (NOON, LATER)


def test_a_failed_job_has_a_completion_time_too() -> None:
    """Every final phase has one."""
    assert following(JobStatus(), Decision(Phase.FAILED, "bad")).completion_time == NOON


def test_a_condition_keeps_its_time_until_its_status_turns() -> None:
    """Reason and message may change without it (KEP-1623)."""
    waiting_for = Decision(Phase.PARTITIONED, "", (Fact("WorkersReady", False, "NotAllReady", "1 of 2"),))
    almost = Decision(Phase.PARTITIONED, "", (Fact("WorkersReady", False, "NotAllReady", "0 of 2"),))
    ready = Decision(Phase.PARTITIONED, "", (Fact("WorkersReady", True, "AllReady", "2 of 2"),))

    first = following(JobStatus(), waiting_for)
    second = following(first, almost, now=LATER)
    third = following(second, ready, now=LATER)

    assert [each.conditions[0].last_transition_time for each in (first, second, third)] == [NOON, NOON, LATER]


def test_counters_are_those_of_the_pods_that_exist() -> None:
    """Counted anew each time, also after the clean-up."""
    job = a_job(workers=3)
    busy = observed(
        job,
        a_pod(job, Role.LAUNCHER, "Pending", containers=[waiting()], init=[running("watcher-loop-worker")]),
        a_pod(job, Role.PARTITIONER, "Succeeded"),
        a_pod(job, Role.WORKER, index=0, ready=True),
        a_pod(job, Role.WORKER, "Pending", index=1, containers=[]),
        a_pod(job, Role.WORKER, "Failed", index=2),
    )

    assert status.count(job, busy) == {
        "Launcher": ReplicaStatus(starting=1, ready="0/1"),
        "Partitioner": ReplicaStatus(succeeded=1, ready="0/1"),
        "Worker": ReplicaStatus(running=1, pending=1, failed=1, ready="1/3"),
    }
    assert status.count(job, observed(job))["Worker"] == ReplicaStatus(ready="0/3")


def test_only_roles_of_the_mode_are_counted() -> None:
    """A Skip job has no 0/0 workers to wonder at."""
    assert list(status.count(a_job(mode=Mode.SKIP), observed(a_job(mode=Mode.SKIP)))) == ["Launcher"]


def test_an_unreadable_report_keeps_the_last_readable_one() -> None:
    """And says what is wrong with it."""
    first = following(JobStatus(), GOING_ON, data={"progress.json": '{"stage": "Training"}'})

    second = following(first, GOING_ON, data={"progress.json": '{"stage": 5, "percent": 400}'})

    assert second.progress is not None
    assert second.progress.stage == "Training"


def test_a_huge_report_is_refused_unread() -> None:
    """Pods write it; the status is not theirs to fill."""
    said = report.read({"progress.json": '{"stage": "' + "x" * 20_000 + '"}'})

    assert said.progress is None
    assert said.problems == ("progress.json: expected at most 16384 bytes, got more",)


def test_a_partition_report_of_another_form_never_reaches_the_status() -> None:
    """The API server would refuse the whole status for it."""
    said = report.read({"partition.json": '{"numParts": 2, "edgeCut": 0.3}'})

    assert said.partition is None
    assert said.problems[0].startswith("partition.json: edgeCut: ")


def test_each_phase_makes_one_event() -> None:
    """And a status without a transition makes none."""
    first = following(JobStatus(), GOING_ON)
    again = following(first, GOING_ON)

    assert events.between(JobStatus(), first) == (
        Event("Normal", "Accepted", "the job is valid"),
        Event("Normal", "Starting", "pods are starting"),
    )
    assert events.between(first, again) == ()


def test_a_failure_makes_a_warning_with_its_reason_and_cause() -> None:
    """`kubectl describe` names pod, container and exit code."""
    job = a_job()
    dead = a_pod(job, Role.PARTITIONER, "Failed", containers=[ended(code=3, message="no data")])
    decision = decide.decide(job, observed(job, dead), status.NO_REPORT, NOON)

    new = following(JobStatus(phase=Phase.PARTITIONING), decision)

    assert events.between(JobStatus(phase=Phase.PARTITIONING), new)[-1] == Event(
        "Warning", "PartitionFailed", "pod sage-partitioner, container main, exit code 3: no data"
    )


def test_a_hindrance_makes_one_warning_while_its_reason_stays() -> None:
    """The scheduler's message may count nodes anew each minute."""
    short = Decision(Phase.PENDING, "", (Fact("Blocked", True, "Unschedulable", "0/1 nodes"),))
    shorter = Decision(Phase.PENDING, "", (Fact("Blocked", True, "Unschedulable", "0/2 nodes"),))
    gone = Decision(Phase.PENDING, "", (Fact("Blocked", False, "Resolved"),))
    first = following(JobStatus(phase=Phase.PENDING), short)
    second = following(first, shorter)

    assert events.between(JobStatus(phase=Phase.PENDING), first) == (
        Event("Warning", "Unschedulable", "0/1 nodes"),
    )
    assert events.between(first, second) == ()
    assert events.between(second, following(second, gone)) == (
        Event("Normal", "BlockedResolved", "the job continues"),
    )


def test_ready_workers_are_told_of() -> None:
    """The step between partitioning and training."""
    job = a_job()
    seen = observed(job, a_pod(job, Role.PARTITIONER, "Succeeded"), *workers_of(job, ready=True))

    new = following(JobStatus(phase=Phase.PARTITIONED), decide.decide(job, seen, status.NO_REPORT, NOON))

    assert Event("Normal", "WorkersReady", "2 of 2 workers are Ready") in events.between(
        JobStatus(phase=Phase.PARTITIONED), new
    )


@given(st.sampled_from(["x", "é", "\U0001f600"]), st.integers(32_760, 33_000))
def test_no_text_is_longer_than_its_field(letter: str, length: int) -> None:
    """The API server would refuse the whole status, and the job would never have an end."""
    long = letter * length

    new = following(JobStatus(), decide.reject("InvalidSpec", [long, long]))

    assert new.message is not None
    assert len(new.message) == 32_768
    assert {len(condition.message) for condition in new.conditions} == {32_768}
    assert following(new, decide.reject("InvalidSpec", [long, long])) == new


@given(st.text() | st.sampled_from(["Back off", "0/1", ":", "1" * 2000, "A" * 2000 + ":"]))
def test_every_reason_is_one_that_a_condition_takes(reason: str) -> None:
    """It comes from the API server, a webhook or a kubelet."""
    new = following(JobStatus(), Decision(Phase.PENDING, "", (Fact("Blocked", True, reason),)))

    assert re.fullmatch(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", new.conditions[0].reason)
    assert len(new.conditions[0].reason) <= 1024


def test_a_milestone_makes_a_status_irrevocable_once() -> None:
    """It has to be written before anything more is made."""
    job = a_job()
    delivered = decide.decide(
        job,
        observed(job, a_pod(job, Role.LAUNCHER), a_pod(job, Role.PARTITIONER, "Succeeded")),
        NO_REPORT,
        NOON,
    )
    old = following(JobStatus(), GOING_ON)

    assert status.irrevocable(old, delivered)
    assert not status.irrevocable(following(old, delivered), delivered)
    assert not status.irrevocable(old, GOING_ON)


def counted(ready: str) -> JobStatus:
    facts = (Fact("WorkersReady", False, "NotAllReady", f"{ready} workers are Ready"),)
    decision = Decision(Phase.PARTITIONED, f"waiting for the workers, {ready} are Ready", facts)
    replicas = {"Worker": ReplicaStatus(ready=ready)}
    return status.next_status(JobStatus(start_time=NOON), 1, decision, replicas, NO_REPORT, NOON)


def test_counts_and_progress_are_minor() -> None:
    """Two hundred Ready events need no two hundred writes."""
    said = report.read({"progress.json": '{"stage": "Training", "percent": 3}'})
    decision = Decision(Phase.STARTING, "pods are starting", GOING_ON.facts)
    first = following(JobStatus(), decision)

    assert status.is_minor(counted("1 of 3"), counted("2 of 3"))
    assert status.is_minor(first, status.next_status(first, 1, decision, {}, said, LATER))


@pytest.mark.parametrize(
    "decision",
    [
        Decision(Phase.TRAINING, "", GOING_ON.facts),
        Decision(Phase.STARTING, "", (Fact("Accepted", False, "Valid"),)),
        Decision(Phase.STARTING, "", (Fact("Accepted", True, "Other"),)),
        Decision(Phase.STARTING, "", (*GOING_ON.facts, Fact("Blocked", True, "Forbidden"))),
    ],
)
def test_a_new_phase_condition_or_reason_is_not_minor(decision: Decision) -> None:
    """It is written at once."""
    first = following(JobStatus(), GOING_ON)

    assert not status.is_minor(first, following(first, decision))


def test_a_stall_makes_a_warning_and_its_end_a_note() -> None:
    """Both are seen by `kubectl describe`."""
    bare = Decision(Phase.PENDING, "")
    first = following(JobStatus(phase=Phase.PENDING), verdict.stalled(bare, "InternalError", "KeyError"))
    second = following(first, verdict.unstalled(bare, first))

    assert events.between(JobStatus(phase=Phase.PENDING), first) == (
        Event("Warning", "InternalError", "KeyError"),
    )
    assert events.between(first, second) == (Event("Normal", "StalledResolved", "the job continues"),)
