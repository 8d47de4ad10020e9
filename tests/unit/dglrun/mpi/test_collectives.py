"""What ranks say to each other: errors that all know of, ends of streams, questions to owners."""

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dglrun.arrays import Array
from dglrun.errors import BackendMissingError, DataError
from dglrun.mpi import collectives
from dglrun.mpi.collectives import (
    AgreedError,
    Expected,
    MpiRanks,
    SingleRank,
    in_rounds,
    run_on_all_ranks,
)
from tests.support.commands import run_program
from tests.support.dglrun_pods import ROOT
from tests.support.needs import NEEDS_MPI
from tests.support.thread_ranks import ThreadRanks, on_ranks


@pytest.mark.mpi
@NEEDS_MPI
@pytest.mark.parametrize("before", ["", "ranks.gather(0); "])
def test_a_rank_that_waits_too_long_ends_all_with_124(before: str) -> None:
    """--process-group-timeout holds for every collective, the first one too."""
    ended = on_mpi_ranks(f"ranks = MpiRanks(0.5); {before}signal.pause() if ranks.rank else ranks.gather(0)")

    assert ended.returncode == 124
    late = "[01]" if before else "0"  # a rank 0 that comes late to the first collective is waited for
    assert re.search(f"rank {late}: waited more than 0.5 s for the other ranks", ended.stderr)


@pytest.mark.mpi
@NEEDS_MPI
def test_a_rank_may_work_longer_than_another_waits() -> None:
    """A large part takes its time; the wait counts from the last time at which a rank worked."""
    ended = on_mpi_ranks(
        "import time; ranks = MpiRanks(2); ranks.gather(0); until = time.monotonic() + 6\n"
        "while ranks.rank and time.monotonic() < until: pass\n"
        "assert ranks.gather(ranks.rank) == [0, 1]\n"
        "if not ranks.rank: print('met')"  # one rank alone: mpirun mixes what two say within a line
    )

    assert (ended.returncode, ended.stdout) == (0, "met\n"), ended.stderr


def on_mpi_ranks(program: str) -> "subprocess.CompletedProcess[str]":
    """Run a program, which has `signal` and `MpiRanks`, on two ranks of MPI."""
    words = (
        sys.executable,
        "-c",
        f"import signal; from dglrun.mpi.collectives import MpiRanks\n{program}",
    )
    argv = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", *words)
    return run_program(argv, seconds=300)


@dataclass
class LateComm:
    """A communicator whose other rank, which says the same, comes after this one has asked `asks` times."""

    asks: int
    rank: int = 0
    size: int = 2

    def Ibarrier(self) -> "LateComm":  # noqa: N802 - as in mpi4py
        return self

    def Iallgather(self, own: Array, told: Array) -> "LateComm":  # noqa: N802
        told[:] = own
        return self

    def Iallgatherv(self, own: list[Any], told: list[Any]) -> "LateComm":  # noqa: N802
        told[0][:] = np.tile(own[0], self.size)
        return self

    def Allgatherv(self, own: list[Any], told: list[Any]) -> None:  # noqa: N802
        assert self.asks < 0, "MPI is asked to wait, which takes a whole CPU"
        self.Iallgatherv(own, told)

    def Ialltoall(self, rows: Array, received: Array) -> "LateComm":  # noqa: N802
        received[:] = rows[0]
        return self

    def Test(self) -> bool:  # noqa: N802
        self.asks -= 1
        return self.asks < 0

    def Alltoallv(self, sent: list[Any], received: list[Any]) -> None:  # noqa: N802
        assert self.asks < 0, "MPI is asked to wait, which takes a whole CPU"
        received[0][:] = sent[0]

    def Split(self, color: int, rank: int) -> "LateComm":  # noqa: N802
        assert self.asks < 0, "MPI is asked to wait, which takes a whole CPU"
        return self


@dataclass
class NotedWaits:
    """A watchdog that notes whether a rank waits under its deadline."""

    waits: bool = False

    @contextmanager
    def waiting(self) -> Iterator[None]:
        self.waits = True
        yield
        self.waits = False


SINGLE_THREADED = SimpleNamespace(pickle=pickle, BYTE="bytes", THREAD_MULTIPLE=3, Query_thread=lambda: 2)
"""What is needed of mpi4py's MPI."""
PAIR = np.array([[1, 2], [3, 4]])


@pytest.mark.parametrize("timeout", [None, 3600.0])
@pytest.mark.parametrize(
    ("talk", "heard"),
    [
        (lambda ranks: ranks.gather("seven"), ["seven", "seven"]),
        (lambda ranks: ranks.gather("s" * (1 << 20)), ["s" * (1 << 20)] * 2),
        (lambda ranks: ranks.counts(PAIR).tolist(), [[1, 2], [1, 2]]),
        (lambda ranks: ranks.exchange(PAIR, [1, 1], [1, 1]).tolist(), PAIR.tolist()),
    ],
    ids=["gather", "gather much", "counts", "exchange"],
)
def test_a_rank_sleeps_until_the_others_come(
    monkeypatch: pytest.MonkeyPatch, talk: Callable[[MpiRanks], object], heard: object, timeout: float | None
) -> None:
    """Inside of a collective, MPI takes the CPU that the other ranks of the machine need."""
    pauses: list[float] = []
    monkeypatch.setattr(collectives, "_mpi", lambda: SINGLE_THREADED)
    monkeypatch.setattr(collectives, "Watchdog", lambda *_: SimpleNamespace(waiting=nullcontext))
    clock = SimpleNamespace(monotonic=lambda: 1e-3 * len(pauses), sleep=pauses.append)
    monkeypatch.setattr(collectives, "time", clock)

    assert talk(MpiRanks(timeout, LateComm(50))) == heard

    assert len(pauses) == 50
    assert pauses[:3] == pytest.approx([0, 1 / 8000, 2 / 8000])
    assert max(pauses) == 1e-3


def test_ranks_wait_for_each_other_before_they_form_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asleep, and under the deadline, as in every collective; the groups have it as well."""
    dog, asleep_under_deadline = NotedWaits(), []
    monkeypatch.setattr(collectives, "_mpi", lambda: SINGLE_THREADED)
    monkeypatch.setattr(collectives, "Watchdog", lambda *_: dog)
    clock = SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: asleep_under_deadline.append(dog.waits))
    monkeypatch.setattr(collectives, "time", clock)

    of_the_group: object = MpiRanks(3600, LateComm(5)).split(0)._watchdog

    assert asleep_under_deadline == [True] * 5
    assert of_the_group is dog


def failing(rank: int, bad: dict[int, Expected]) -> None:
    if rank in bad:
        raise bad[rank]


@pytest.mark.parametrize(
    ("bad", "message", "code"),
    [
        ({1: DataError("line 3")}, "line 3", 65),
        ({2: BackendMissingError("no libmetis"), 1: DataError("line 3")}, "line 3", 65),
        ({0: BackendMissingError("no libmetis")}, "no libmetis", 69),
    ],
)
def test_all_ranks_raise_the_error_of_the_lowest(bad: dict[int, Expected], message: str, code: int) -> None:
    """With its message and its exit code, so that all leave in the same way."""

    def told(ranks: ThreadRanks) -> tuple[str, int]:
        with pytest.raises(AgreedError) as error:
            run_on_all_ranks(ranks, lambda: failing(ranks.rank, bad))
        return str(error.value), error.value.exit_code

    assert on_ranks(3, told) == [(message, code)] * 3


def test_a_bug_of_one_rank_is_not_agreed_on() -> None:
    """Only what is expected is told to the others; a bug ends its rank, and mpirun the rest."""
    with pytest.raises(ZeroDivisionError):
        run_on_all_ranks(SingleRank(), lambda: 1 / 0)


def rounds_of(ranks: ThreadRanks, blocks: Iterator[str], seen: list[str]) -> list[str]:
    """Take part in rounds until no rank has a block left; returns what this rank sent, as `seen` grows."""
    for block in in_rounds(ranks, blocks, "empty"):
        seen.append(block)
    return seen


@pytest.mark.parametrize("lengths", [(0, 0), (3, 0), (1, 4), (2, 2)])
def test_rounds_go_on_until_the_last_rank_has_no_block(lengths: tuple[int, int]) -> None:
    """A rank that has no block left takes part with the empty one."""
    sent = on_ranks(2, lambda ranks: rounds_of(ranks, iter(["block"] * lengths[ranks.rank]), []))

    longest = max(lengths)
    assert sent == [["block"] * each + ["empty"] * (longest - each) for each in lengths]


def test_a_bad_block_ends_the_stream_of_all_ranks() -> None:
    """In the round in which it is found."""

    def blocks(rank: int) -> Iterator[str]:
        yield "first"
        if rank == 1:
            raise DataError("row 7")
        yield "second"

    def told(ranks: ThreadRanks) -> tuple[list[str], str]:
        seen: list[str] = []
        with pytest.raises(AgreedError) as error:
            rounds_of(ranks, blocks(ranks.rank), seen)
        return seen, str(error.value)

    assert on_ranks(2, told) == [(["first"], "row 7")] * 2


@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_SIZE", "DGLRUN_WORLD_SIZE"])
def test_a_rank_is_known_by_any_of_its_variables(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Then MPI is asked how many there are."""
    for each in os.environ.keys() & set(collectives._OF_MPIRUN):
        monkeypatch.delenv(each)
    alone = collectives.is_started_by_mpirun()
    monkeypatch.setenv(name, "1")

    assert (alone, collectives.is_started_by_mpirun()) == (False, True)


def test_a_setting_of_mpi_makes_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """PMIX_MCA_gds=hash stands in many images; `dispatch --ranks 8` ran as one process there."""
    monkeypatch.setenv("PMIX_MCA_gds", "hash")

    assert not collectives.is_started_by_mpirun()


def test_modules_are_imported_without_beginning_mpi() -> None:
    """MPI leaves variables in a process that begins it, by which each mpirun that it starts fails."""
    names = ("commands.partition_rank", "commands.dispatch_rank", "commands.validate_parts")
    imports = ", ".join(f"dglrun.{name}" for name in names)
    script = f"import sys, {imports}; sys.exit('mpi4py.MPI' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False).returncode == 0
