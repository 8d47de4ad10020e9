"""Runs reconcile for each key that is due: a loop around the backlog, with a bounded number of threads."""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from dgl_operator.runtime.backlog import Backlog
from dgl_operator.runtime.cluster import ClusterBusy
from dgl_operator.runtime.kinds import Key

log = logging.getLogger(__name__)

TICK_SECONDS = 5.0
"""The loop turns at least so often, so that its heartbeat tells life from death."""


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
    """One run per key at a time, `workers` keys at once. Lives in one event loop."""

    def __init__(self, run: Callable[[Key], Outcome], workers: int) -> None:
        self._run = run
        self._backlog: Backlog[Key] = Backlog()
        self._workers = workers
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="reconcile")
        self._woken = asyncio.Event()
        self._runs: set[asyncio.Task[None]] = set()
        self.heartbeat = time.monotonic()

    def add(self, key: Key) -> None:
        """Ask for a run now."""
        self._backlog.add(key, time.monotonic())
        self._woken.set()

    @property
    def depth(self) -> int:
        """Keys that run or are due, now or later."""
        return len(self._backlog)

    @property
    def oldest_run(self) -> float:
        """Seconds that the longest current run has taken."""
        return self._backlog.oldest_run(time.monotonic())

    async def serve(self) -> None:
        """Run keys until cancelled; runs under way are then awaited."""
        try:
            while True:
                self.heartbeat = time.monotonic()
                self._start_due()
                await self._sleep()
        finally:
            await asyncio.gather(*self._runs, return_exceptions=True)

    def _start_due(self) -> None:
        while len(self._runs) < self._workers and (key := self._backlog.pop(time.monotonic())) is not None:
            task = asyncio.create_task(self._one(key))
            self._runs.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._runs.discard(task)
        self._woken.set()

    async def _sleep(self) -> None:
        due = self._backlog.next_due() if len(self._runs) < self._workers else None
        wait = TICK_SECONDS if due is None else min(max(due - time.monotonic(), 0.0), TICK_SECONDS)
        try:
            async with asyncio.timeout(wait):
                await self._woken.wait()
        except TimeoutError:
            return
        finally:
            self._woken.clear()

    async def _one(self, key: Key) -> None:
        try:
            outcome = await asyncio.get_running_loop().run_in_executor(self._threads, self._run, key)
        except ClusterBusy as error:
            wait = self._backlog.failed(key, time.monotonic(), error.retry_after)
            log.warning("%s/%s: %s; again in %.1f s", *key, error, wait)
        except Exception:  # one bad job must not disturb another; the bug is logged whole
            wait = self._backlog.failed(key, time.monotonic())
            log.exception("%s/%s: reconcile failed; again in %.1f s", *key, wait)
        else:
            self._end(key, outcome)

    def _end(self, key: Key, outcome: Outcome) -> None:
        if outcome.retry:
            self._backlog.hindered(key, time.monotonic(), outcome.recheck_after)
        else:
            self._backlog.done(key, time.monotonic(), outcome.recheck_after)
