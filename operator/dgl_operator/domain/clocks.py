"""When something of a job is due, as times: nothing here reads a clock."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from dgl_operator.api.v1alpha1 import Attempt, DGLJob
from dgl_operator.domain import attempts
from dgl_operator.domain.attempts import Life
from dgl_operator.domain.observed import Pod

FIRST_WAIT, LONGEST_WAIT = 10, 360
"""Seconds before the next attempt, as batch/v1 has them; they double with each attempt that was short."""
SHORT = timedelta(minutes=10)
"""An attempt that lasted longer got on: the waits begin with the first again."""
FORCE_AFTER = 60
"""Seconds after the end of its grace period in which a pod of a node that is gone is not deleted by force."""


def later(time: datetime | None, seconds: float) -> datetime | None:
    """Return the time so many seconds later, None without a time or beyond what a time can be."""
    try:
        return time + timedelta(seconds=seconds) if time else None
    except OverflowError:
        return None


def soonest(times: Iterable[datetime | None]) -> datetime | None:
    """Return the first of the times that are given."""
    return min((time for time in times if time), default=None)


def is_due(time: datetime | None, now: datetime) -> bool:
    """Whether the time has come."""
    return time is not None and time <= now


def active_deadline(job: DGLJob, start: datetime | None) -> datetime | None:
    """When the job fails for its `activeDeadlineSeconds`."""
    seconds = job.spec.run_policy.active_deadline_seconds
    return None if seconds is None else later(start, seconds)


def start_deadline(job: DGLJob, since: datetime | None) -> datetime | None:
    """When the job fails for its `startDeadlineSeconds`."""
    return later(since, job.spec.run_policy.start_deadline_seconds)


def expiry(job: DGLJob, completion: datetime | None) -> datetime | None:
    """When the job is deleted for its `ttlSecondsAfterFinished`."""
    seconds = job.spec.run_policy.ttl_seconds_after_finished
    return None if seconds is None else later(completion, seconds)


def next_attempt(life: Life, now: datetime) -> datetime | None:
    """When the next attempt may begin, None for at once.

    An end in the future, which a clock that jumped has left, is no time to count from.
    """
    last = life.attempts[-1] if life.attempts else None
    if last is None or life.current or last.completion_time is None or last.reason == attempts.SUSPENDED:
        return None
    if last.completion_time > now:
        return None
    return later(last.completion_time, doubled(_short_ones(life.attempts)))


def replacement(pod: Pod, life: Life) -> datetime | None:
    """When a pod that had no work may be replaced: the first at once, then after growing waits."""
    count = life.restarts.pods
    return later(pod.created, doubled(count)) if count else None


def force(pod: Pod) -> datetime | None:
    """When a pod that is being deleted may be deleted by force, if its node is gone."""
    return later(pod.deleted_at, FORCE_AFTER)


def doubled(count: int) -> float:
    """Return the seconds before the next of what has been tried so often."""
    return float(min(FIRST_WAIT * 2.0 ** min(max(count - 1, 0), 10), LONGEST_WAIT))


def _short_ones(records: tuple[Attempt, ...]) -> int:
    """How many attempts in a row, the last ones, were short."""
    count = 0
    for record in reversed(records):
        end = record.completion_time
        if end is None or record.reason == attempts.SUSPENDED or end - record.start_time > SHORT:
            break
        count += 1
    return count
