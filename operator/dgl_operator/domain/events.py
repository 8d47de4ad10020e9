"""Events of one step, from the difference of two statuses: one for each transition."""

from dataclasses import dataclass

from dgl_operator.api.v1alpha1 import Condition, JobStatus, Phase
from dgl_operator.domain.verdict import (
    ACCEPTED,
    BLOCKED,
    FAILED,
    REPORTED,
    STALLED,
    SUSPENDED,
    WORKERS_READY,
)

NORMAL = "Normal"
WARNING = "Warning"


@dataclass(frozen=True)
class Event:
    """What `kubectl describe` shows."""

    type: str
    reason: str
    message: str


def between(old: JobStatus, new: JobStatus) -> tuple[Event, ...]:
    """Return the events of one status write, in the order in which they are to be read."""
    found = [_of_condition(condition, _find(old, condition.type)) for condition in new.conditions]
    return (
        *(event for event in found if event),
        *_of_losses(old, new),
        *_of_attempt(old, new),
        *_of_phase(old, new),
    )


def _find(status: JobStatus, kind: str) -> Condition | None:
    return next((condition for condition in status.conditions if condition.type == kind), None)


def _of_losses(old: JobStatus, new: JobStatus) -> tuple[Event, ...]:
    """Tell which workers are replaced alone."""
    known, now = ((status.attempts[-1].lost_workers if status.attempts else ()) for status in (old, new))
    lost = [name for name in now if name not in known]
    message = f"lost in the training and replaced: {', '.join(lost)}"
    return (Event(WARNING, "WorkerLost", message),) if lost else ()


def _of_attempt(old: JobStatus, new: JobStatus) -> tuple[Event, ...]:
    """Tell why another attempt follows; of a suspension the condition tells."""
    if new.attempt <= old.attempt or new.phase is Phase.SUSPENDED or not new.attempts:
        return ()
    last = new.attempts[-1]
    message = f"attempt {new.attempt} follows; attempt {last.number} ended: {last.message or ''}"
    return (Event(WARNING, last.reason or "Restarted", message),)


def _of_phase(old: JobStatus, new: JobStatus) -> tuple[Event, ...]:
    if new.phase in (None, old.phase, Phase.PENDING, Phase.SUSPENDED):
        return ()  # `Accepted`, `Suspended` or what blocks the job says what there is to say of these
    if new.phase is Phase.FAILED:
        cause = _find(new, FAILED)
        return (Event(WARNING, cause.reason if cause else "Failed", cause.message if cause else ""),)
    return (Event(NORMAL, new.phase.value, new.message or ""),)


def _of_condition(new: Condition, old: Condition | None) -> Event | None:
    if old and (old.status, old.reason) == (new.status, new.reason):
        return None
    is_true = new.status == "True"
    if new.type in (BLOCKED, STALLED, REPORTED):
        return _of_hindrance(new, is_true is (new.type != REPORTED))
    if new.type == SUSPENDED:
        return Event(NORMAL, new.reason, new.message)
    if new.type == ACCEPTED and is_true:
        return Event(WARNING if new.message else NORMAL, ACCEPTED, new.message or "the job is valid")
    if new.type == WORKERS_READY and is_true:
        return Event(NORMAL, WORKERS_READY, new.message)
    return None


def _of_hindrance(new: Condition, is_bad: bool) -> Event | None:
    if is_bad:
        return Event(WARNING, new.reason, new.message)
    if new.type == REPORTED:
        return None
    return Event(NORMAL, f"{new.type}{new.reason}", new.message or "the job continues")
