"""When a training hangs, and which ranks are named."""

import pytest

from dglrun.workflow.hang_watch import HangWatch

RANKS = {("w-0", "trainer 0"): 0, ("w-1", "trainer 0"): 1}


def a_watch(seconds: float | None = 60.0) -> HangWatch:
    """Two workers with one trainer each."""
    return HangWatch(RANKS, ("w-0", "w-1"), seconds)


def test_all_processes_of_all_workers_must_be_idle() -> None:
    """One that is active may be what the others wait for, were it a server."""
    watch = a_watch()
    watch.heard("w-0", {"server 0": 90.0, "trainer 0": 90.0}, 100.0)
    before = watch.idlest(100.0)
    watch.heard("w-1", {"server 0": 59.0, "trainer 0": 90.0}, 100.0)
    active = watch.idlest(100.0)
    watch.heard("w-1", {"server 0": 62.0, "trainer 0": 93.5}, 103.0)

    assert (before, active) == ([], [])
    assert [(rank.pod, rank.rank) for rank in watch.idlest(103.0)] == [("w-1", 1)]


@pytest.mark.parametrize("silent", [16.0, 1000.0])
def test_a_worker_that_cannot_be_heard_may_be_active(silent: float) -> None:
    """A connection that broke is no hang."""
    watch = a_watch()
    watch.heard("w-0", {"trainer 0": 90.0}, 100.0)
    watch.heard("w-1", {"trainer 0": 90.0}, 100.0 + silent)

    assert watch.idlest(100.0 + silent) == []


def test_without_a_timeout_nothing_hangs() -> None:
    """It is off unless it is set."""
    watch = a_watch(None)
    for pod in ("w-0", "w-1"):
        watch.heard(pod, {"trainer 0": 1e6}, 100.0)

    assert watch.idlest(100.0) == []


def test_workers_without_processes_do_not_hang() -> None:
    """Before the first process is started and after the last one has ended."""
    watch = a_watch()
    for pod in ("w-0", "w-1"):
        watch.heard(pod, {}, 100.0)

    assert watch.idlest(100.0) == []


def test_the_error_names_the_ranks_and_has_the_first_ones_stack() -> None:
    """Of what came after the stacks were asked for, and of that rank alone."""
    watch = a_watch()
    watch.line("w-1", "trainer 0", "loss 0.5")
    watch.heard("w-0", {"trainer 0": 90.0}, 100.0)
    watch.heard("w-1", {"trainer 0": 92.0}, 100.0)
    watch.want_stacks()
    for pod in ("w-0", "w-1"):
        watch.line(pod, "trainer 0", f"File in {pod}")
        watch.told_stacks(pod)
    watch.line("w-1", "trainer 0", "later")

    error = watch.error(watch.idlest(100.0))

    assert watch.has_stacks
    assert (error.code, error.words) == (79, "File in w-1")
    assert "was active for 60 s (--hang-timeout)" in str(error)
    assert str(error).endswith("idle longest: w-1: trainer 0 (rank 1), 92 s; w-0: trainer 0 (rank 0), 90 s")
