"""Runs reconcile for each key that is due: a bounded number of threads around the delay queue."""

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from dgl_operator.runtime.cluster import ClusterBusy
from dgl_operator.runtime.delay_queue import DelayQueue
from dgl_operator.runtime.kinds import Key

log = logging.getLogger(__name__)

STOP_SECONDS = 12.0
"""Runs under way have this long to end when the operator is told to stop."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        recheck_after: Seconds until the next look without any event; None: none needed.
        retry: Something prevents the job: look again with growing waits, or when there is news.
    """

    recheck_after: float | None = None
    retry: bool = False

    def or_sooner(self, seconds: float | None) -> "Outcome":
        """The same, looked at again after so many seconds at the latest."""
        if seconds is None:
            return self
        known = seconds if self.recheck_after is None else min(seconds, self.recheck_after)
        return Outcome(known, self.retry)


class Queue:
    """One run per key at a time, `workers` keys at once. `add` may be called from any thread."""

    def __init__(
        self,
        run: Callable[[Key], Outcome],
        workers: int,
        is_new: Callable[[Key], bool] = lambda _key: False,
        settle_seconds: float = 0.0,
    ) -> None:
        """Make a queue whose threads do not run yet.

        Args:
            run: Takes one look at a job.
            workers: Number of threads.
            is_new: Whether a job was never looked at.
            settle_seconds: Wait so long before a look at a job under way, so that events that come
                together are one look.
        """
        self._run = run
        self._is_new = is_new
        self._settle = settle_seconds
        self._queue = DelayQueue(workers, is_new)
        self._changed = threading.Condition()
        self._is_stopped = False
        self._woken_at = math.inf
        self._threads = [
            threading.Thread(target=self._serve, name=f"reconcile-{number}", daemon=True)
            for number in range(workers)
        ]

    def start(self) -> None:
        """Begin to run keys."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End after the runs under way."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        deadline = time.monotonic() + STOP_SECONDS
        for thread in self._threads:
            if thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))

    def add(self, key: Key) -> None:
        """Ask for a run soon."""
        with self._changed:
            now = time.monotonic()
            self._queue.add(key, now, 0.0 if self._is_new(key) else self._settle)
            self._wake(now)

    def wait_for_quiet(self, key: Key) -> None:
        """Within the key's run: take its next one before its time, once no key waits for a thread."""
        with self._changed:
            self._queue.wait_for_quiet(key)

    @property
    def depth(self) -> int:
        """Keys that run, are due or are tried again; those left out that wait for a clock."""
        with self._changed:
            return self._queue.depth(time.monotonic())

    def is_busy(self, key: Key) -> bool:
        """Whether more keys of its namespace wait for a thread than there are threads."""
        with self._changed:
            return self._queue.waiting_in(key.namespace) > len(self._threads)

    @property
    def oldest_run(self) -> float:
        """Seconds that the longest current run has taken."""
        with self._changed:
            return self._queue.oldest_run(time.monotonic())

    @property
    def has_ended(self) -> bool:
        """Whether nothing runs any more, as after a `stop` that has not had to leave a run behind."""
        return not any(thread.is_alive() for thread in self._threads)

    @property
    def is_alive(self) -> bool:
        """Whether every thread that was started still serves."""
        return all(thread.is_alive() for thread in self._threads)

    def _serve(self) -> None:
        while (key := self._next()) is not None:
            self._one(key)

    def _next(self) -> Key | None:
        """Wait for a key whose turn it is; None when the queue is stopped."""
        with self._changed:
            while not self._is_stopped:
                now = time.monotonic()
                if (key := self._queue.pop(now)) is not None:
                    self._changed.notify()  # another key may be due as well
                    return key
                self._wait(self._queue.next_due(now), now)
        return None

    def _wait(self, due: float | None, now: float) -> None:
        """Wait for news; one thread wakes when the next key is due, not all that have nothing to do."""
        if due is None or due >= self._woken_at:
            self._changed.wait()
            return
        self._woken_at = due
        self._changed.wait(max(due - now, 0.001))
        if self._woken_at == due:  # else another thread waits for an earlier one
            self._woken_at = math.inf

    def _wake(self, now: float) -> None:
        """Wake a thread unless one wakes in time by itself."""
        due = self._queue.next_due(now)
        if due is not None and due < self._woken_at:
            self._changed.notify()

    def _one(self, key: Key) -> None:
        try:
            outcome = self._run(key)
        except ClusterBusy as error:
            wait = self._failed(key, error.retry_after)
            log.warning("%s/%s: %s; again in %.1f s", *key, error, wait)
        except Exception:  # one bad job must not disturb another; the bug is logged whole
            wait = self._failed(key)
            log.exception("%s/%s: reconcile failed; again in %.1f s", *key, wait)
        else:
            self._end(key, outcome)

    def _failed(self, key: Key, at_least: float = 0.0) -> float:
        with self._changed:
            wait = self._queue.failed(key, time.monotonic(), at_least)
            self._changed.notify()
            return wait

    def _end(self, key: Key, outcome: Outcome) -> None:
        with self._changed:
            if outcome.retry:
                self._queue.requeue_blocked(key, time.monotonic(), outcome.recheck_after)
            else:
                self._queue.done(key, time.monotonic(), outcome.recheck_after)
            self._changed.notify()
