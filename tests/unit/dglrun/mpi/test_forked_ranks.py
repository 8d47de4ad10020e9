"""Ranks without MPI: what they exchange, and how they end. Each test forks them in a process of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dglrun.contract import exitcodes
from tests.cluster.daemons import running
from tests.support.dglrun_pods import ROOT
from tests.support.wait import wait_for

BEGIN = """
import os, signal, sys
import numpy as np
from dglrun.commands import program
from dglrun.mpi import forked_ranks

def on(size, work, deadline=120, timeout=60):
    def run():
        return forked_ranks.run(size, work, name="test", deadline=deadline, timeout=timeout)
    sys.exit(program.run("test", run))

"""


@contextmanager
def started(script: str, *argv: str) -> Iterator["subprocess.Popen[str]"]:
    """Start a program that may call `on(size, work)`; a test that fails ends it, and with it its ranks."""
    process = subprocess.Popen(
        (sys.executable, "-c", BEGIN + script, *argv),
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def ended(script: str, *argv: str) -> tuple[int, str, str]:
    """Run it to its end: exit code, what it said, what it complained of."""
    with started(script, *argv) as process:
        said, complained = process.communicate(timeout=120)
    return process.returncode, said, complained


TALK = """
SHAPES = [((), "<i8"), ((3,), "<f4"), ((), "|u1"), ((2, 2), "<u2")]

def of(seed, rank, size, turn):
    '''What a rank sends in a turn, as every rank can tell.'''
    random = np.random.default_rng([seed, rank, turn])
    most = 0 if random.random() < 0.2 else int(random.choice([3, 1000, 100_000]))
    send = random.integers(0, most + 1, size)
    shape, dtype = SHAPES[turn % len(SHAPES)]
    more = int(random.integers(0, 3))  # rows behind the runs, which nobody gets
    column = random.integers(0, 255, (int(send.sum()) + more, *shape)).astype(dtype)
    return send.tolist(), column

def part(sent, column, rank):
    start = sum(sent[:rank])
    return column[start : start + sent[rank]]

def talk(ranks):
    seed = int(sys.argv[2])
    for turn in range(30):
        every = [of(seed, rank, ranks.size, turn) for rank in range(ranks.size)]
        send, column = every[ranks.rank]
        receive = [other[0][ranks.rank] for other in every]
        found = ranks.exchange(column, send, receive)
        wanted = np.concatenate([part(*other, ranks.rank) for other in every])
        assert found.dtype == column.dtype and found.tobytes() == wanted.tobytes()
        assert ranks.gather((ranks.rank, send)) == [(at, other[0]) for at, other in enumerate(every)]
        rows = np.array([[ranks.rank, q, turn] for q in range(ranks.size)])
        assert ranks.counts(rows).tolist() == [[q, ranks.rank, turn] for q in range(ranks.size)]
        whole = ranks.concatenate(column, [len(other[1]) for other in every])
        assert whole.tobytes() == b"".join(other[1].tobytes() for other in every)
    return 0

on(int(sys.argv[1]), talk)
"""


@pytest.mark.parametrize("size", [2, 3, 8])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_collective_gives_each_rank_what_the_others_sent(size: int, seed: int) -> None:
    """Any dtype and row shape, empty runs, and rows behind the runs that are for nobody."""
    assert ended(TALK, str(size), str(seed)) == (0, "", "")


def test_ranks_exchange_under_a_limit_for_files() -> None:
    """`ulimit -f` holds for files in memory, too: they have no holes that would count."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 20, 64 << 20))\n"

    assert ended(limit + TALK, "8", "1") == (0, "", "")


SLOW = """
come, tell = os.pipe()

def slow(ranks):
    first, second = np.arange(ranks.size), -np.arange(ranks.size)
    if ranks.rank == 1:
        read = ranks._memory.read
        def late(*args):
            ranks._memory.read = read
            os.read(come, 1)  # rank 0 has written for the next collective
            read(*args)
        ranks._memory.read = late
    ones = [1] * ranks.size
    found = ranks.exchange(first, ones, ones)
    if ranks.rank == 0:
        wait = ranks._wait
        def telling():
            os.write(tell, b"1")
            wait()
        ranks._wait = telling
    ranks.exchange(second, ones, ones)
    return 0 if found.tolist() == [ranks.rank] * ranks.size else 1

on(2, slow)
"""


def test_a_rank_that_still_reads_is_not_overtaken_by_the_next_collective() -> None:
    """Two files are used in turn: the next writes go elsewhere."""
    assert ended(SLOW) == (0, "", "")


GIVES_BACK = """
from dglrun.mpi import host_memory
host_memory._KEPT = 1 << 20

def held(ranks):
    return sum(os.stat(file).st_blocks * 512 for file in ranks._memory._files[ranks.rank])

def give_back(ranks):
    ranks.concatenate(np.zeros(3 << 20, np.uint8), [3 << 20] * ranks.size)
    much = held(ranks)
    ranks.gather("one file is of this")
    ranks.gather("and the other one of this again")
    few = held(ranks)
    ranks.concatenate(np.zeros(1 << 19, np.uint8), [1 << 19] * ranks.size)
    ranks.gather("little is kept")
    ranks.gather("and written over")
    return 0 if much >= 3 << 20 and few < 1 << 17 and held(ranks) > 1 << 18 else 1

on(2, give_back)
"""


ONE_AFTER_THE_OTHER = """
from dglrun.mpi import host_memory
host_memory._KEPT = 1 << 20

def held(ranks):
    return sum(os.stat(file).st_blocks * 512 for file in ranks._memory._files[ranks.rank])

def send(ranks):
    most = 0
    for turn in range(16):
        to = turn // 2 % ranks.size
        send = [(3 << 18) * (rank == to) for rank in range(ranks.size)]
        receive = [3 << 18 if to == ranks.rank else 0] * ranks.size
        ranks.exchange(np.zeros(3 << 18, np.uint8), send, receive)
        most = max(most, held(ranks))
    return 0 if most <= 4 << 20 else 1

on(5, send)
"""


def test_memory_does_not_grow_with_the_ranks_that_get_much_one_after_the_other() -> None:
    """As where nodes are ordered by part: each place would keep the largest block for itself."""
    assert ended(ONE_AFTER_THE_OTHER) == (0, "", "")


def test_memory_of_a_large_collective_is_given_back() -> None:
    """A table of nodes is told once, and the rest of the run needs blocks of some MiB."""
    assert ended(GIVES_BACK) == (0, "", "")


@pytest.mark.parametrize(
    ("work", "code", "complaint"),
    [
        ("sys.exit(74)", 74, ""),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "test: rank 1 was ended by SIGKILL\n"),
        ("os.kill(os.getpid(), signal.SIGTERM)", 143, "test: rank 1 was ended by SIGTERM\n"),
        ("1 / 0", exitcodes.SOFTWARE, "ZeroDivisionError: division by zero\n"),
    ],
)
def test_the_first_rank_that_fails_ends_all_with_its_code(work: str, code: int, complaint: str) -> None:
    """The others wait for it, without a deadline that could end them."""
    script = f"def fail(ranks):\n    if ranks.rank == 1:\n        {work}\n    ranks.gather(0)\n\non(3, fail)"

    found, said, complained = ended(script)

    assert (found, said) == (code, "")
    assert complained.endswith(complaint)
    assert complaint or not complained


def test_a_failure_is_told_where_children_are_ignored() -> None:
    """A program that ignores SIGCHLD hands that on to those that it starts; it hides exit codes."""
    script = (
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "def fail(ranks):\n    if ranks.rank == 1:\n        sys.exit(74)\n    ranks.gather(0)\n\non(2, fail)"
    )

    assert ended(script) == (74, "", "")


def test_a_rank_that_is_stopped_is_ended_as_well() -> None:
    """At once: it would take no other signal than SIGKILL."""
    script = (
        "def stop(ranks):\n"
        "    if ranks.rank == 0: os.kill(os.getpid(), signal.SIGSTOP)\n"
        "    sys.exit(74)\n\n"
        "on(2, stop)"
    )

    assert ended(script) == (74, "", "")


def test_a_rank_that_waits_too_long_ends_all_with_124() -> None:
    """As under MPI: whoever hangs is not asked."""
    script = (
        "def hang(ranks):\n    signal.pause() if ranks.rank else ranks.gather(0)\n\non(2, hang, timeout=0.5)"
    )

    assert ended(script) == (124, "", "rank 0: waited more than 0.5 s for the other ranks\n")


WORK = """
import time

def work(ranks):
    ranks.gather(0)
    until = time.monotonic() + 6
    while ranks.rank and time.monotonic() < until:
        pass
    return ranks.gather(0)[0]

on(2, work, timeout=2)
"""


def test_a_rank_may_work_longer_than_another_waits() -> None:
    """A large part takes its time; the wait counts from the last time at which a rank worked."""
    assert ended(WORK) == (0, "", "")


def test_a_deadline_of_months_is_one() -> None:
    """The kernel waits for 24 days at most."""
    assert ended("on(2, lambda ranks: ranks.gather(0)[0], deadline=1e7)") == (0, "", "")


def test_after_the_deadline_all_ranks_are_ended_with_124() -> None:
    """One line says so."""
    script = "on(2, lambda ranks: signal.pause(), deadline=0.5)"

    assert ended(script) == (124, "", "test: the ranks had not ended after 0.5 s\n")


WAIT = """
import pathlib

def wait(ranks):
    path = pathlib.Path(sys.argv[1], str(ranks.rank))
    path.with_suffix(".draft").write_text(str(os.getpid()))
    path.with_suffix(".draft").rename(path)
    ranks.gather(0)
    signal.pause() if ranks.rank else ranks.gather(0)

on(2, wait)
"""


@pytest.mark.parametrize(
    ("number", "code", "complaint"),
    [
        (signal.SIGTERM, 143, "test: ended by SIGTERM\n"),
        (signal.SIGINT, 130, "test: interrupted\n"),
        (signal.SIGKILL, -9, ""),
    ],
)
def test_the_end_of_the_command_is_that_of_its_ranks(
    tmp_path: Path, number: signal.Signals, code: int, complaint: str
) -> None:
    """Also where it is killed and can end nobody itself."""
    with started(WAIT, str(tmp_path)) as process:
        paths = [tmp_path / str(rank) for rank in range(2)]
        wait_for("both ranks", lambda: all(path.exists() for path in paths))
        pids = [int(path.read_text()) for path in paths]

        process.send_signal(number)

        assert process.communicate(timeout=60) == ("", complaint)
    assert process.returncode == code
    wait_for("the end of both ranks", lambda: not any(map(running, pids)))


def test_ctrl_c_on_a_terminal_reaches_the_command_alone(tmp_path: Path) -> None:
    """Ranks are in groups of their own, so none of them says a word of it."""
    with started(WAIT, str(tmp_path)) as process:
        paths = [tmp_path / str(rank) for rank in range(2)]
        wait_for("both ranks", lambda: all(path.exists() for path in paths))

        groups = {os.getpgid(int(path.read_text())) for path in paths}

        assert os.getpgid(process.pid) not in groups
        process.terminate()
        process.communicate(timeout=60)
