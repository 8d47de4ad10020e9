"""How slow a process was for want of a CPU."""

from pathlib import Path

import pytest

from tests.fuzz.run_queue import IDLE_SECONDS, Waits, named

SECOND = 1_000_000_000
OPERATOR, SERVER = 7, 8


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc of nobody yet."""
    return tmp_path


def note(proc: Path, pid: int, thread: int, ran: float, waited: float) -> None:
    """Let a thread have run, and waited, for so many seconds since it began."""
    folder = proc / str(pid) / "task" / str(thread)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "schedstat").write_text(f"{int(ran * SECOND)} {int(waited * SECOND)} 12\n")


def waits(proc: Path) -> Waits:
    return Waits.of((OPERATOR, SERVER), proc)


def test_a_process_that_waits_twice_as_long_as_it_runs_takes_three_times_as_long(proc: Path) -> None:
    """By all of its threads, and only by what came in between."""
    note(proc, OPERATOR, 7, 100.0, 500.0)
    before = waits(proc)
    note(proc, OPERATOR, 7, 101.0, 503.0)
    note(proc, OPERATOR, 71, 1.0, 1.0)

    assert waits(proc).slowness(before) == pytest.approx(3.0, abs=0.1)


def test_the_slowest_process_counts(proc: Path) -> None:
    """A job waits for both."""
    for pid in (OPERATOR, SERVER):
        note(proc, pid, pid, 0.0, 0.0)
    before = waits(proc)
    note(proc, OPERATOR, OPERATOR, 10.0, 0.0)
    note(proc, SERVER, SERVER, 10.0, 40.0)

    assert waits(proc).slowness(before) == pytest.approx(5.0, abs=0.1)


def test_a_process_that_has_nothing_to_do_is_not_slow(proc: Path) -> None:
    """Some milliseconds beside a few others say nothing; seconds do."""
    note(proc, OPERATOR, OPERATOR, 0.0, 0.0)
    before = waits(proc)
    note(proc, OPERATOR, OPERATOR, 0.001, 0.01)
    idle = waits(proc).slowness(before)
    note(proc, OPERATOR, OPERATOR, 0.001, 2.0)

    assert idle < 1.5
    assert waits(proc).slowness(before) > 1.0 / IDLE_SECONDS


def test_what_the_kernel_does_not_tell_slows_nothing(proc: Path) -> None:
    """A process that is gone, one that came since, a thread that has ended, a kernel without these counts."""
    note(proc, OPERATOR, OPERATOR, 1.0, 9.0)
    before = waits(proc)
    (proc / str(OPERATOR) / "task" / str(OPERATOR) / "schedstat").unlink()
    note(proc, SERVER, SERVER, 0.0, 9.0)
    ended = waits(proc).slowness(before)

    assert ended == 1.0
    assert Waits.of((), proc).slowness(before) == 1.0
    assert waits(proc).slowness(Waits.of((), proc)) == 1.0


def test_processes_are_found_by_name(proc: Path) -> None:
    """One that ends meanwhile has no name any more."""
    for pid, name in (("8", "kube-apiserver"), ("9", "etcd"), ("70", "kube-apiserver"), ("self", "python")):
        (proc / pid).mkdir()
        (proc / pid / "comm").write_text(f"{name}\n")
    (proc / "71").mkdir()

    assert named("kube-apiserver", proc) == (8, 70)
    assert named("kube-proxy", proc) == ()
