"""Ranks on one machine without MPI: forks of one process, so that Python and its packages start once.

They sleep while they wait, and exchange through files in memory, in a few large copies: under MPI sender and
receiver must be awake together for each few KiB, and on fewer processors than ranks they wait for that
without sleeping. Libraries that need an MPI communicator cannot run on them.
"""

import mmap
import multiprocessing
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from multiprocessing import connection
from multiprocessing.context import ForkProcess
from typing import TypeVar

import numpy as np

from dglrun.agent import ending_signals, prctl
from dglrun.arrays import Array, Ints
from dglrun.contract import exitcodes
from dglrun.formats import open_files
from dglrun.mpi import host_memory
from dglrun.mpi.host_memory import Files, HostMemory, named
from dglrun.mpi.mpirun import RANK_ENV
from dglrun.mpi.watchdog import Watchdog

T = TypeVar("T")

_LONGEST_WAIT = 3600.0
"""Seconds: the kernel takes none of more than 24 days."""


class Barrier:
    """Lets no rank go on before all have come; they sleep in the kernel. To be made before the fork.

    Rank 0 counts the others and lets them go. A tenth of the time of multiprocessing's, which takes turns at
    a lock.

    Args:
        size: Number of ranks.
    """

    def __init__(self, size: int) -> None:
        flags = os.EFD_SEMAPHORE | os.EFD_CLOEXEC
        self._come = os.eventfd(0, flags)
        self._may_go = [os.eventfd(0, flags) for _ in range(1, size)]

    def wait(self, rank: int) -> None:
        """Wait for the others, as this rank."""
        if rank:
            os.eventfd_write(self._come, 1)
            os.eventfd_read(self._may_go[rank - 1])
            return
        for _ in self._may_go:
            os.eventfd_read(self._come)
        for each in self._may_go:
            os.eventfd_write(each, 1)

    def close(self) -> None:
        """Give its descriptors back, in the process that has forked the ranks."""
        for each in (self._come, *self._may_go):
            os.close(each)


class SharedPulse:
    """How often each rank has told that it works.

    Args:
        beats: By rank, int64, shape (ranks,), shared by all.
        rank: This rank.
    """

    def __init__(self, beats: Ints, rank: int) -> None:
        self._beats = beats
        self._rank = rank
        self._known = self._of_others()

    def beat(self) -> None:
        """See `Pulse.beat`."""
        self._beats[self._rank] += 1

    def heard(self) -> bool:
        """See `Pulse.heard`."""
        before, self._known = self._known, self._of_others()
        return self._known != before

    def _of_others(self) -> int:
        return int(self._beats.sum() - self._beats[self._rank])


@dataclass(frozen=True)
class Shared:
    """What the ranks have in common, made before they are forked.

    Attributes:
        files: By rank, of `host_memory.create`.
        barrier: Theirs.
        beats: See `SharedPulse`.
    """

    files: Sequence[Files]
    barrier: Barrier
    beats: Ints

    @staticmethod
    def of(size: int) -> "Shared":
        """That of so many ranks.

        Raises:
            OSError: there are no descriptors left.
        """
        beats = np.frombuffer(mmap.mmap(-1, 8 * size), np.int64)
        with named("what the ranks share"):
            return Shared(host_memory.create(size), Barrier(size), beats)

    def close(self) -> None:
        """Give the descriptors back, in the process that has forked the ranks."""
        for file in chain(*self.files):
            os.close(file)
        self.barrier.close()


class ForkedRanks:
    """One of the ranks; see `dglrun.mpi.collectives.Ranks`, which this is one of.

    Args:
        rank: Its number.
        shared: What all have.
        timeout: Seconds that a rank waits in one collective for others that do not work (`Watchdog`).
    """

    def __init__(self, rank: int, shared: Shared, timeout: float) -> None:
        self.rank = rank
        self.size = len(shared.files)
        self._memory = HostMemory(rank, shared.files)
        self._barrier = shared.barrier
        self._watchdog = Watchdog(timeout, rank, SharedPulse(shared.beats, rank))

    def gather(self, value: T) -> list[T]:
        """See `Ranks.gather`."""
        said = np.frombuffer(pickle.dumps(value), np.uint8)
        self._memory.leave({self._of_all: said})
        self._wait()
        return [value if rank == self.rank else self._told(rank) for rank in range(self.size)]

    def counts(self, rows: Array) -> Array:
        """See `Ranks.counts`."""
        one_each = [1] * self.size
        return self.exchange(rows, one_each, one_each)

    def exchange(self, column: Array, send: Sequence[int], receive: Sequence[int]) -> Array:
        """See `Ranks.exchange`."""
        received = np.empty((sum(receive), *column.shape[1:]), column.dtype)
        runs, places = _runs(column, send), _runs(received, receive)
        self._memory.leave({rank: run for rank, run in enumerate(runs) if rank != self.rank})
        places[self.rank][:] = runs[self.rank]
        self._wait()
        for rank, place in enumerate(places):
            if rank != self.rank:
                self._memory.read(rank, self.rank, place)
        return received

    def concatenate(self, own: Array, rows: Sequence[int]) -> Array:
        """See `Ranks.concatenate`."""
        received = np.empty((sum(rows), *own.shape[1:]), own.dtype)
        places = _runs(received, rows)
        mine = _bytes(own)
        self._memory.leave({self._of_all: mine})
        places[self.rank][:] = mine
        self._wait()
        for rank, place in enumerate(places):
            if rank != self.rank:
                self._memory.read(rank, self._of_all, place)
        return received

    @property
    def _of_all(self) -> int:
        """The place of what is for every rank; those before are for one each."""
        return self.size

    def _told(self, rank: int) -> T:  # type: ignore[type-var]
        found: T = pickle.loads(self._memory.take(rank, self._of_all).data)  # noqa: S301 - of a fork of the same process
        return found

    def _wait(self) -> None:
        with self._watchdog.waiting():
            self._barrier.wait(self.rank)


def _bytes(column: Array) -> Array:
    return column.reshape(-1).view(np.uint8)


def _runs(column: Array, rows: Sequence[int]) -> list[Array]:
    """The bytes of consecutive runs of rows: views, uint8, shape (bytes,) each."""
    data, width = _bytes(column), column.itemsize * int(np.prod(column.shape[1:], dtype=np.int64))
    ends = np.cumsum(rows) * width
    return [data[end - count * width : end] for end, count in zip(ends.tolist(), rows, strict=True)]


# --- their life


def run(size: int, work: Callable[[ForkedRanks], int], *, name: str, deadline: float, timeout: float) -> int:
    """Fork ranks and wait for their end.

    A rank that fails ends all; an exception in this process, such as Terminated, ends them before it goes on,
    and so does its own end by SIGKILL. To be called before this process has begun threads of its own.

    Args:
        size: How many.
        work: What each does; returns its exit code. An exception is a bug: its traceback is printed.
        name: The command, for messages.
        deadline: Seconds; then all ranks are ended.
        timeout: Seconds that a rank waits in one collective for others that do not work.

    Returns:
        0; the exit code of the rank that failed first, 128 + n where signal n ended it; 124 after the
        deadline.

    Raises:
        OSError: there are no descriptors or processes left.
    """
    open_files.limit()  # some for each rank
    shared, parent = Shared.of(size), os.getpid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would hide how ranks have ended

    def one(rank: int) -> None:
        _be_a_rank(parent)
        try:
            code = work(ForkedRanks(rank, shared, timeout))
        except Exception:
            traceback.print_exc()
            code = exitcodes.SOFTWARE
        sys.exit(code)

    fork = multiprocessing.get_context("fork")
    ranks = [fork.Process(target=one, args=(rank,), name=f"rank {rank}") for rank in range(size)]
    try:
        with ending_signals.put_off():  # until a rank is known here, or this process would go on without it
            for rank in ranks:
                with named(f"the start of {rank.name}"):
                    rank.start()
        return _until_the_end(ranks, name, deadline)
    finally:
        _end(ranks)
        shared.close()


def _be_a_rank(parent: int) -> None:
    """In the fork: signals end it at once, even inside of C code, and so does the end of its parent.

    Ctrl-C reaches the parent alone, which ends the ranks and says so once.
    """
    prctl.end_with_parent(signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel was told
        os._exit(exitcodes.SIGTERM)
    os.setpgid(0, 0)
    for each in ending_signals.ENDING:
        signal.signal(each, signal.SIG_DFL)
    os.environ.update(RANK_ENV)


def _until_the_end(ranks: Sequence[ForkProcess], name: str, deadline: float) -> int:
    """Wait until all have ended well, one has not, or the deadline has passed."""
    until = time.monotonic() + deadline
    running = {rank.sentinel: number for number, rank in enumerate(ranks)}
    while running:
        ended = connection.wait(list(running), min(_LONGEST_WAIT, max(0.0, until - time.monotonic())))
        if not ended and time.monotonic() >= until:
            print(f"{name}: the ranks had not ended after {deadline:g} s", file=sys.stderr, flush=True)
            return exitcodes.TIMEOUT
        for sentinel in ended:
            number = running.pop(sentinel)  # type: ignore[arg-type]
            ranks[number].join()
            if (code := ranks[number].exitcode) != 0:
                return _failed(number, code, name)
    return exitcodes.OK


def _failed(rank: int, code: int | None, name: str) -> int:
    """The exit code of a rank that has failed; says what nobody else has said."""
    if code is None:
        print(f"{name}: how rank {rank} ended is not known", file=sys.stderr, flush=True)
        return exitcodes.SOFTWARE
    if code > 0:
        return code
    known = {each.value: each.name for each in signal.Signals}
    how = known.get(-code, f"signal {-code}")
    print(f"{name}: rank {rank} was ended by {how}", file=sys.stderr, flush=True)
    return 128 - code


def _end(ranks: Sequence[ForkProcess]) -> None:
    """Leave none. By SIGKILL: a rank has nothing to clean up, and takes SIGTERM only once it is set up."""
    for rank in ranks:
        if rank.pid is not None:
            rank.kill()
            rank.join()
