"""The loop around the backlog: threads, errors, retries, its end."""

import asyncio
import threading

import pytest

from dgl_operator.runtime.cluster import ClusterBusy
from dgl_operator.runtime.kinds import Key
from dgl_operator.runtime.queue import Outcome, Queue

KEY = Key("default", "sage")


async def served(queue: Queue, until: threading.Event) -> None:
    """Serve until the event is set by a run."""
    serving = asyncio.create_task(queue.serve())
    try:
        async with asyncio.timeout(10):
            while not until.is_set():
                await asyncio.sleep(0.01)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


def test_a_run_that_fails_is_repeated_until_it_does_not(caplog: pytest.LogCaptureFixture) -> None:
    """A busy server is one line, a bug is logged whole; both are tried again."""
    done = threading.Event()
    answers: list[Exception | None] = [ClusterBusy("503"), RuntimeError("a bug"), None]

    def run(_key: Key) -> Outcome:
        answer = answers.pop(0)
        if answer is not None:
            raise answer
        done.set()
        return Outcome()

    async def scene() -> None:
        queue = Queue(run, 1)
        queue.add(KEY)
        await served(queue, done)

    asyncio.run(scene())

    assert answers == []
    assert "default/sage: 503; again in 0.2 s" in caplog.text
    assert "RuntimeError: a bug" in caplog.text


def test_one_key_never_runs_twice_at_once_while_others_run_beside_it() -> None:
    """Single flight per key, several keys at a time."""
    lock, done = threading.Lock(), threading.Event()
    running: dict[Key, int] = {}
    together = threading.Barrier(2, timeout=5)
    runs: list[Key] = []

    def run(key: Key) -> Outcome:
        with lock:
            running[key] = running.get(key, 0) + 1
            assert running[key] == 1
            runs.append(key)
        if len(runs) <= 2:
            together.wait()
        with lock:
            running[key] -= 1
        if len(runs) >= 4:
            done.set()
        return Outcome(recheck_after=0.0)

    async def scene() -> None:
        queue = Queue(run, 4)
        for name in ("a", "b", "a", "b"):
            queue.add(Key("default", name))
        await served(queue, done)

    asyncio.run(scene())

    assert set(runs[:2]) == {Key("default", "a"), Key("default", "b")}


def test_a_stuck_run_shows_in_the_age_of_the_oldest() -> None:
    """The liveness probe reads it from another thread."""
    release, begun = threading.Event(), threading.Event()

    def run(_key: Key) -> Outcome:
        begun.set()
        release.wait(5)
        return Outcome()

    ages = []

    async def scene() -> None:
        queue = Queue(run, 1)
        queue.add(KEY)
        serving = asyncio.create_task(queue.serve())
        while not begun.is_set():
            await asyncio.sleep(0.005)
        ages.append(queue.oldest_run)
        release.set()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        ages.append(queue.oldest_run)

    asyncio.run(scene())

    assert ages[0] > 0
    assert ages[1] == 0.0
