"""When a pod may be made again: one that others delete each time is not made at once for ever.

Only this process knows of it: an operator that is started anew makes each pod once without a wait.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from dgl_operator.domain import clocks
from dgl_operator.domain.observed import Pod
from dgl_operator.runtime.clock import Clock
from dgl_operator.runtime.kinds import Key


@dataclass(frozen=True, slots=True)
class _Made:
    """The last pod of a name, how many there were, and when this one was seen first."""

    uid: str
    count: int
    at: float


@dataclass(frozen=True)
class _Attempt:
    """The pods of one attempt of one job, by their names."""

    uid: str
    number: int
    made: dict[str, _Made]


class Creations:
    """Counts the pods of each name within an attempt. Safe for several threads with different jobs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._attempts: dict[Key, _Attempt] = {}

    def waits(self, key: Key, uid: str, attempt: int) -> dict[str, float]:
        """Seconds before each pod may be made again, by name; what is not named may be made at once.

        Args:
            key: The job.
            uid: Its UID.
            attempt: The attempt whose pods are meant.
        """
        now = self._clock.seconds()
        with self._lock:
            left = {name: _due(made) - now for name, made in self._known(key, uid, attempt).made.items()}
        return {name: seconds for name, seconds in left.items() if seconds > 0}

    def note(self, key: Key, uid: str, attempt: int, pods: Iterable[Pod]) -> None:
        """Note the pods that there are."""
        now = self._clock.seconds()
        with self._lock:
            made = self._known(key, uid, attempt).made
            for pod in pods:
                last = made.get(pod.name)
                if last is None or last.uid != pod.uid:
                    made[pod.name] = _Made(pod.uid, last.count + 1 if last else 1, now)

    def forget(self, key: Key) -> None:
        """Forget a job that makes no pods any more."""
        with self._lock:
            self._attempts.pop(key, None)

    def _known(self, key: Key, uid: str, attempt: int) -> _Attempt:
        known = self._attempts.get(key)
        if known is None or (known.uid, known.number) != (uid, attempt):
            known = self._attempts[key] = _Attempt(uid, attempt, {})
        return known


def _due(made: _Made) -> float:
    """The first one more is made at once, as after a kubelet's rejection."""
    return made.at + clocks.doubled(made.count - 1) if made.count > 1 else made.at
