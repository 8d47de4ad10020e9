"""The threads around the delay queue: errors, retries, single flight, the end."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from dgl_operator.runtime.cluster import ClusterBusy
from dgl_operator.runtime.kinds import Key
from dgl_operator.runtime.queue import Outcome, Queue
from tests.support.wait import wait_for

KEY = Key("default", "sage")
SECONDS = 60.0


@contextmanager
def serving(run: Callable[[Key], Outcome], workers: int) -> Iterator[Queue]:
    """A queue that serves, and ends with the test."""
    queue = Queue(run, workers)
    queue.start()
    try:
        yield queue
    finally:
        queue.stop()


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

    with serving(run, 1) as queue:
        queue.add(KEY)
        assert done.wait(SECONDS)

    assert answers == []
    assert "default/sage: 503; again in 0.2 s" in caplog.text
    assert "RuntimeError: a bug" in caplog.text


def test_each_date_is_kept_whichever_thread_waits_for_it() -> None:
    """One of the idle threads wakes for the next date; an earlier one that comes between does not lose it."""
    waits = {Key("default", "late"): 0.3, Key("default", "soon"): 0.05, Key("default", "now"): 0.0}
    lock, done = threading.Lock(), threading.Event()
    runs = dict.fromkeys(waits, 0)

    def run(key: Key) -> Outcome:
        with lock:
            runs[key] += 1
            if min(runs.values()) >= 3:
                done.set()
        return Outcome(recheck_after=waits[key] or None)

    with serving(run, 4) as queue:
        for key in waits:
            queue.add(key)
        for _ in range(2):
            wait_for("a late run", lambda: True if runs[Key("default", "late")] > 1 else None, SECONDS)
            before = runs[Key("default", "now")]
            queue.add(Key("default", "now"))
            wait_for("a run at once", lambda: runs[Key("default", "now")] > before or None, SECONDS)  # noqa: B023
        assert done.wait(SECONDS)


def test_one_key_never_runs_twice_at_once_while_others_run_beside_it() -> None:
    """Single flight per key, several keys at a time."""
    lock, done = threading.Lock(), threading.Event()
    running: dict[Key, int] = {}
    together = threading.Barrier(2, timeout=SECONDS)
    runs: list[Key] = []

    def run(key: Key) -> Outcome:
        with lock:
            running[key] = running.get(key, 0) + 1
            assert running[key] == 1
            runs.append(key)
            is_first = len(runs) <= 2
        if is_first:
            together.wait()
        with lock:
            running[key] -= 1
            if len(runs) >= 4:
                done.set()
        return Outcome(recheck_after=0.0)

    with serving(run, 4) as queue:
        for name in ("a", "b", "a", "b"):
            queue.add(Key("default", name))
        assert done.wait(SECONDS)

    assert set(runs[:2]) == {Key("default", "a"), Key("default", "b")}


def test_a_stuck_run_shows_in_the_age_of_the_oldest() -> None:
    """The liveness probe reads it from another thread."""
    release, begun = threading.Event(), threading.Event()

    def run(_key: Key) -> Outcome:
        begun.set()
        release.wait(SECONDS)
        return Outcome()

    with serving(run, 1) as queue:
        queue.add(KEY)
        assert begun.wait(SECONDS)
        during = queue.oldest_run
        release.set()
    after = queue.oldest_run

    assert during > 0
    assert after == 0.0


def test_a_queue_that_stops_lets_the_run_under_way_end() -> None:
    """And begins no other."""
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()
    runs: list[Key] = []

    def run(key: Key) -> Outcome:
        runs.append(key)
        begun.set()
        release.wait(SECONDS)
        ended.set()
        return Outcome(recheck_after=0.0)

    def release_after_the_stop() -> None:
        wait_for("the stop", lambda: queue._is_stopped)
        release.set()

    with serving(run, 1) as queue:
        queue.add(KEY)
        assert begun.wait(SECONDS)
        threading.Thread(target=release_after_the_stop).start()

    assert ended.is_set()
    assert runs == [KEY]


def test_a_look_that_waits_for_quiet_comes_when_no_other_waits_for_a_thread() -> None:
    """In seconds, not in the hour after which it is due."""
    patient, others = Key("default", "patient"), [Key("other", f"job-{number}") for number in range(5)]
    order: list[Key] = []
    done = threading.Event()

    def run(key: Key) -> Outcome:
        order.append(key)
        if key != patient:
            return Outcome()
        if order.count(patient) == 1:
            for other in others:
                queue.add(other)
            queue.wait_for_quiet(key)
            return Outcome(recheck_after=3600.0)
        done.set()
        return Outcome()

    with serving(run, 1) as queue:
        queue.add(patient)
        assert done.wait(SECONDS)

    assert order == [patient, *others, patient]


def test_a_namespace_is_busy_by_its_own_jobs() -> None:
    """A neighbour's burst holds back no status of others."""
    begun, go_on = threading.Event(), threading.Event()

    def run(_key: Key) -> Outcome:
        begun.set()
        assert go_on.wait(SECONDS)
        return Outcome()

    with serving(run, 1) as queue:
        queue.add(KEY)
        assert begun.wait(SECONDS)
        for number in range(2):
            queue.add(Key("many", f"job-{number}"))

        busy = queue.is_busy(Key("many", "job-0")), queue.is_busy(KEY)
        go_on.set()

    assert busy == (True, False)
