"""The status that a decision amounts to: one value, compared with the last one and written only on change."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from dgl_operator.api.v1alpha1 import (
    MAX_MESSAGE,
    MAX_REASON,
    Condition,
    DGLJob,
    JobStatus,
    Phase,
    ReplicaStatus,
    Restarts,
)
from dgl_operator.domain.attempts import Life
from dgl_operator.domain.observed import Observed, Pod
from dgl_operator.domain.report import Report
from dgl_operator.domain.verdict import (
    COMPLETED,
    FAILED,
    LAUNCHER_STARTED,
    PARTITIONED,
    WORKERS_READY,
    Decision,
    Fact,
    reached,
    wanted,
)
from dglrun.contract.names import Role

NO_REPORT = Report()


def next_status(
    old: JobStatus,
    generation: int,
    decision: Decision,
    replicas: Mapping[str, ReplicaStatus],
    said: Report,
    now: datetime,
) -> JobStatus:
    """Return the status after the decision; equal to `old` when nothing changed.

    Every text is cut to what its field takes: no status is refused for a length.

    Args:
        old: The last written status.
        generation: `metadata.generation` that was decided on.
        decision: What was decided.
        replicas: Pods counted by role, see `count`.
        said: What the job reported of itself; an unreadable part keeps its last readable value.
        now: The clock's value, whole seconds.
    """
    ended = decision.phase.is_final
    life = decision.life or _started(Life.of(old), old, now)
    if ended and not (old.phase and old.phase.is_final):
        life = _closed(life, decision, now)
    conditions = _merged(old.conditions, decision.facts, generation, now)
    new = JobStatus(
        phase=decision.phase,
        message=_cut(decision.message),
        conditions=conditions,
        replica_statuses=dict(replicas),
        attempt=life.attempt,
        attempts=life.attempts,
        restarts=life.restarts if life.restarts != Restarts() else None,
        start_time=life.start_time,
        completion_time=(old.completion_time or now) if ended else None,
        last_reconcile_time=old.last_reconcile_time,
        observed_generation=generation,
        progress=(said.progress or old.progress) if life.attempt == old.attempt else None,
        partition=said.partition or old.partition,
    )
    return new if new == old else new.model_copy(update={"last_reconcile_time": now})


def _started(life: Life, old: JobStatus, now: datetime) -> Life:
    """A job has a start from the first look on, unless it is suspended."""
    return life if old.phase is Phase.SUSPENDED else replace(life, start_time=life.start_time or now)


def _closed(life: Life, decision: Decision, now: datetime) -> Life:
    """The attempt that was under way ended with the job."""
    ends = (fact for fact in decision.facts if fact.type in (COMPLETED, FAILED) and fact.is_true)
    reason, message = next(((fact.reason, fact.message) for fact in ends), (decision.phase.value, ""))
    return life.closed(now, _reason(reason), message)


def irrevocable(old: JobStatus, decision: Decision) -> bool:
    """Whether a milestone is reached, or a worker lost, with this look.

    Such a status has to be written before anything more is provided: the pod that shows the milestone may
    be gone at the next look, and that of a lost worker may be there again.
    """
    milestones = (LAUNCHER_STARTED, PARTITIONED)
    reaches = any(
        fact.is_true and fact.type in milestones and not reached(old, fact.type) for fact in decision.facts
    )
    return reaches or decision.has_lost(old)


def is_minor(old: JobStatus, new: JobStatus) -> bool:
    """Whether the two differ in counts, progress and the wording of messages alone.

    Such a change may be written late. A new phase, milestone, reason or generation is never minor.
    """
    return _outline(old) == _outline(new)


def can_wait(old: JobStatus, new: JobStatus) -> bool:
    """Whether a busy operator may write the change late, together with the next.

    That a job gets on through its phases may wait; its first status, its end, its milestones, and what
    blocks or stalls it may not.
    """
    if old.phase is None or new.phase is None or new.phase.is_final:
        return False
    return _outline(_without_progress(old)) == _outline(_without_progress(new))


def _without_progress(status: JobStatus) -> JobStatus:
    conditions = tuple(each for each in status.conditions if each.type != WORKERS_READY)
    return status.model_copy(update={"phase": None, "conditions": conditions})


def _outline(status: JobStatus) -> JobStatus:
    """The status without what changes with every pod event."""
    conditions = tuple(each.model_copy(update={"message": ""}) for each in status.conditions)
    waits = {"waiting_since": None, "waits": 0}
    return status.model_copy(
        update={
            "conditions": conditions,
            "attempts": tuple(each.model_copy(update=waits) for each in status.attempts),
            "message": None,
            "replica_statuses": {},
            "progress": None,
            "partition": None,
            "last_reconcile_time": None,
        }
    )


def count(job: DGLJob, seen: Observed) -> dict[str, ReplicaStatus]:
    """Count the pods of each role that the mode has, as they are now."""
    names = {role: frozenset(wanted(job, role)) for role in Role}
    return {role.value: _count(seen.of_role(role), known) for role, known in names.items() if known}


def _count(pods: Iterable[Pod], known: frozenset[str]) -> ReplicaStatus:
    tally = dict.fromkeys(("pending", "starting", "running", "succeeded", "failed"), 0)
    ready = 0
    for pod in (each for each in pods if each.name in known):
        tally[_state(pod)] += 1
        ready += pod.ready and not pod.deleting
    return ReplicaStatus(**tally, ready=f"{ready}/{len(known)}")


def _state(pod: Pod) -> str:
    if pod.succeeded:
        return "succeeded"
    if pod.failed:
        return "failed"
    if pod.main_started:
        return "running"
    return "starting" if pod.begun else "pending"


def _merged(
    old: tuple[Condition, ...], facts: Iterable[Fact], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """Merge by type; `lastTransitionTime` moves with the status alone (KEP-1623)."""
    found = {condition.type: condition for condition in old}
    for fact in facts:
        found[fact.type] = _condition(found.get(fact.type), fact, generation, now)
    return tuple(found.values())


def _condition(old: Condition | None, fact: Fact, generation: int, now: datetime) -> Condition:
    status = "True" if fact.is_true else "False"
    since = old.last_transition_time if old and old.status == status else now
    return Condition(
        type=fact.type,
        status=status,
        reason=_reason(fact.reason),
        message=_cut(fact.message),
        last_transition_time=since,
        observed_generation=generation,
    )


def _cut(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 1] + "…"


def _reason(reason: str) -> str:
    """A reason that metav1.Condition takes: a CamelCase word, whatever the API server or a kubelet said."""
    word = re.sub(r"[^A-Za-z0-9_,:]", "", reason)[:MAX_REASON].strip(",:").lstrip("0123456789_,:")
    return word or "Unknown"
