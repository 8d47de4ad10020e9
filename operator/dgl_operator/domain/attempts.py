"""The attempts of a job as its status keeps them: which one is under way, and what ended the others.

An attempt has a record from the moment when its first pods are wanted. Between two attempts there is none:
the pods of the last one go, and the wait before the next one passes.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum

from dgl_operator.api.v1alpha1 import (
    INT32_MAX,
    MAX_ATTEMPT_MESSAGE,
    MAX_ATTEMPTS,
    Attempt,
    JobStatus,
    Restarts,
)

SUSPENDED = "JobSuspended"
"""Reason of an attempt that ended since the job was suspended."""


class Cause(Enum):
    """What an attempt beyond the first is made for; the value is its field in `status.restarts`."""

    FAILURE = "failures"
    DISRUPTION = "disruptions"
    IGNORED = "ignored"
    SUSPENSION = "suspensions"


@dataclass(frozen=True)
class Life:
    """What a status keeps of a job's attempts, with the time from which its deadline counts."""

    attempt: int = 0
    attempts: tuple[Attempt, ...] = ()
    restarts: Restarts = field(default_factory=Restarts)
    start_time: datetime | None = None

    @classmethod
    def of(cls, status: JobStatus) -> "Life":
        """Read the last status."""
        return cls(status.attempt, status.attempts, status.restarts or Restarts(), status.start_time)

    @property
    def current(self) -> Attempt | None:
        """The attempt that is under way, None before its first pods are wanted."""
        last = self.attempts[-1] if self.attempts else None
        is_open = last is not None and last.number == self.attempt and last.completion_time is None
        return last if is_open else None

    def began_before(self, time: datetime | None) -> bool:
        """Whether a pod created at this time is of the attempt under way: the last one had ended."""
        if time is None or self.current is None:
            return False
        last = self.attempts[-2].completion_time if len(self.attempts) > 1 else None
        return time >= (last or self.current.start_time)

    @property
    def lost_workers(self) -> tuple[str, ...]:
        """Workers of the current attempt that were lost and are not back."""
        return self.current.lost_workers if self.current else ()

    @property
    def uncounted(self) -> int:
        """Attempts that do not count towards `backoffLimit`, those after a suspension left out."""
        return self.restarts.disruptions + self.restarts.ignored

    def begun(self, now: datetime) -> "Life":
        """The same with an attempt under way."""
        start = self.start_time or now
        if self.current:
            return replace(self, start_time=start)
        record = Attempt(number=self.attempt, start_time=now)
        return replace(self, attempts=(*self.attempts, record)[-MAX_ATTEMPTS:], start_time=start)

    def closed(self, now: datetime, reason: str, message: str) -> "Life":
        """The same with the current attempt ended."""
        cut = message[:MAX_ATTEMPT_MESSAGE]
        return self._with_current(
            completion_time=now, reason=reason, message=cut, waiting_since=None, lost_workers=()
        )

    def following(self, cause: Cause, now: datetime, reason: str, message: str) -> "Life":
        """The current attempt has ended and another one is to follow."""
        after = self.closed(now, reason, message)
        count = min(getattr(self.restarts, cause.value) + 1, INT32_MAX)
        restarts = self.restarts.model_copy(update={cause.value: count})
        return replace(after, attempt=min(self.attempt + 1, INT32_MAX), restarts=restarts)

    def replacing(self, pods: int) -> "Life":
        """The same after so many pods were replaced within the attempt."""
        count = min(self.restarts.pods + pods, INT32_MAX)
        return replace(self, restarts=self.restarts.model_copy(update={"pods": count})) if pods else self

    def losing(self, missing: tuple[str, ...], fresh: int) -> "Life":
        """The same with these workers missing, so many of which were not before."""
        count = min(self.restarts.workers + fresh, INT32_MAX)
        restarts = self.restarts.model_copy(update={"workers": count})
        after = replace(self, restarts=restarts) if fresh else self
        return after if missing == self.lost_workers else after._with_current(lost_workers=missing)

    def waiting(self, now: datetime, *, is_waiting: bool) -> "Life":
        """Note since when pods of the attempt wait for their start; a time in the future is none."""
        current = self.current
        if current is None:
            return self
        if not is_waiting:
            return self._with_current(waiting_since=None) if current.waiting_since else self
        if current.waiting_since is None:
            return self._with_current(waiting_since=now, waits=min(current.waits + 1, INT32_MAX))
        return self._with_current(waiting_since=now) if current.waiting_since > now else self

    def suspended(self) -> "Life":
        """The same without a time from which a deadline counts, as batch/v1 has it."""
        return replace(self, start_time=None)

    def _with_current(self, **change: object) -> "Life":
        if self.current is None:
            return self
        return replace(self, attempts=(*self.attempts[:-1], self.current.model_copy(update=change)))
