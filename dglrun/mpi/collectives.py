"""The processes that work together, one alone or the ranks of an MPI job, and how they agree on errors.

A rank alone needs no MPI; ranks of one machine that need none are in `forked_ranks`. With several, a
collective may have a deadline: a rank that waits longer ends itself with exit code 124, and whoever started
it ends the others.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from enum import IntEnum
from importlib.util import find_spec
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from dglrun.arrays import Array, Ints
from dglrun.errors import BackendMissingError, DataError
from dglrun.mpi.mpirun import WORLD_SIZE
from dglrun.mpi.watchdog import Watchdog

T = TypeVar("T")

_OF_MPIRUN = (WORLD_SIZE, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_SIZE", "PMI_RANK")
"""Variables that mpirun gives its ranks (Open MPI, MPICH and their kin): then MPI is asked. Others that begin
in the same way are settings, which may stand in any environment."""

_MAX_PAUSE = 1e-3
"""Seconds that a rank sleeps at most before it asks again whether the others have come."""
_PAUSE_SHARE = 1 / 8
"""Of the time waited so far: the first pauses are short, ranks in step lose a tenth of a millisecond."""
_LITTLE = 1 << 14
"""Bytes up to which they are gathered without blocking: more would move only as often as a rank asks."""

Expected = DataError | BackendMissingError
"""What may stop one rank without being a bug: all ranks then stop with its message."""


class AgreedError(DataError):
    """An expected error of one rank that all ranks know of: each raises it with the same message.

    Attributes:
        exit_code: That of the rank's own error.
    """

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class Ranks(Protocol):
    """The processes that work together, as each of them sees them; every method is collective.

    Attributes:
        rank: Number of this process, from 0.
        size: Number of processes.
    """

    rank: int
    size: int

    def gather(self, value: T) -> list[T]:
        """Give every rank the small values of all ranks, in their order."""

    def counts(self, rows: Array) -> Array:
        """Send row q of `rows` to rank q.

        Args:
            rows: int64, shape (size, k), contiguous; the same k on every rank.

        Returns:
            Row q is the one that rank q sent here; int64, shape (size, k).
        """

    def exchange(self, column: Array, send: Sequence[int], receive: Sequence[int]) -> Array:
        """Send consecutive runs of rows to ranks 0, 1, ...; returns the received runs in rank order.

        Args:
            column: Its first `sum(send)` rows are the runs: shape (rows, ...), contiguous; any dtype and row
                shape, the same on every rank.
            send: Rows for each rank.
            receive: Rows from each rank, as they know it from `counts`.

        Returns:
            Shape (sum(receive), ...), dtype and row shape of `column`.
        """

    def concatenate(self, own: Array, rows: Sequence[int]) -> Array:
        """Give every rank the arrays of all ranks one after the other.

        Args:
            own: This rank's array: shape (rows, ...), contiguous; any dtype and row shape, the same on every
                rank.
            rows: Length of every rank's array.

        Returns:
            Shape (sum(rows), ...), dtype and row shape of `own`.
        """


class SingleRank:
    """One process without MPI: it gets its own arrays back, not copied, with their dtype and row shape."""

    rank = 0
    size = 1

    def gather(self, value: T) -> list[T]:
        """The value itself."""
        return [value]

    def counts(self, rows: Array) -> Array:
        """See `Ranks.counts`: the rows themselves."""
        return rows

    def exchange(self, column: Array, send: Sequence[int], receive: Sequence[int]) -> Array:
        """See `Ranks.exchange`: the first `sum(send)` rows themselves."""
        return column[: sum(send)]

    def concatenate(self, own: Array, rows: Sequence[int]) -> Array:
        """See `Ranks.concatenate`: the array itself."""
        return own


class MpiRanks:
    """The ranks of an MPI communicator.

    `exchange` and `concatenate` send bytes, so that MPI need not know the dtype; for shapes see `Ranks`.
    A rank sleeps until the others have come: inside of a blocking collective MPI asks for them without a
    pause, and a rank that waits would take the CPU from those that it waits for. So those of little data do
    not block, and those of much data begin with one that does not.

    Args:
        timeout: Seconds that a rank waits in one collective for others that do not work (`Watchdog`); None:
            as long as mpirun lets it.
        comm: The communicator (mpi4py); None: all ranks that mpirun started.

    Raises:
        BackendMissingError: there is no mpi4py, or it is of another MPI than this rank's mpirun.

    Attributes:
        comm: The communicator, for libraries that take one.
    """

    def __init__(self, timeout: float | None = None, comm: Any = None) -> None:
        self._mpi = _mpi()
        self.comm = self._mpi.COMM_WORLD if comm is None else comm
        if comm is None:
            _require_world(self.comm.size, self.library)
        self._watchdog = None if timeout is None else Watchdog(timeout, self.comm.rank)
        self._lacks_pulse = self._watchdog is not None
        self.rank: int = self.comm.rank
        self.size: int = self.comm.size

    @property
    def library(self) -> str:
        """Name and version of the MPI library."""
        return str(self._mpi.Get_library_version().split(",")[0])

    def split(self, color: int) -> "MpiRanks":
        """The ranks that gave the same color, in the same order, under the same deadline; collective."""
        with self._met():
            some = MpiRanks(None, self.comm.Split(color, self.comm.rank))
        some._watchdog = self._watchdog
        return some

    def gather(self, value: T) -> list[T]:
        """See `Ranks.gather`."""
        said = np.frombuffer(self._mpi.pickle.dumps(value), np.uint8)
        lengths = np.empty(self.size, np.int64)
        with self._deadline():
            self._wait(self.comm.Iallgather(np.array([len(said)]), lengths))
            told = np.empty(lengths.sum(), np.uint8)
            mine, all_said = [said, len(said), self._mpi.BYTE], self._runs(told, lengths.tolist(), 1)
            if len(told) <= _LITTLE:
                self._wait(self.comm.Iallgatherv(mine, all_said))
            else:  # all are here, for their lengths
                self.comm.Allgatherv(mine, all_said)
        return [self._mpi.pickle.loads(each) for each in np.split(told, np.cumsum(lengths)[:-1])]

    def counts(self, rows: Array) -> Array:
        """See `Ranks.counts`."""
        received = np.empty_like(rows)
        with self._deadline():
            self._wait(self.comm.Ialltoall(rows, received))
        return received

    def exchange(self, column: Array, send: Sequence[int], receive: Sequence[int]) -> Array:
        """See `Ranks.exchange`."""
        received = np.empty((sum(receive), *column.shape[1:]), column.dtype)
        width = column.itemsize * int(np.prod(column.shape[1:], dtype=np.int64))
        with self._met():
            self.comm.Alltoallv(self._runs(column, send, width), self._runs(received, receive, width))
        return received

    def concatenate(self, own: Array, rows: Sequence[int]) -> Array:
        """See `Ranks.concatenate`."""
        received = np.empty((sum(rows), *own.shape[1:]), own.dtype)
        width = own.itemsize * int(np.prod(own.shape[1:], dtype=np.int64))
        mine = [own, own.nbytes, self._mpi.BYTE]
        with self._met():
            self.comm.Allgatherv(mine, self._runs(received, rows, width))
        return received

    def abort(self, code: int) -> None:
        """End all ranks with this exit code; does not return."""
        sys.stdout.flush()
        sys.stderr.flush()
        self.comm.Abort(code)

    def _runs(self, column: Array, rows: Sequence[int], width: int) -> list[Any]:
        """An MPI buffer of bytes with the length and place of each rank's run."""
        lengths = np.asarray(rows, np.int64) * width
        places = np.concatenate(([0], np.cumsum(lengths)[:-1]))
        return [column, (lengths.tolist(), places.tolist()), self._mpi.BYTE]

    @contextmanager
    def _met(self) -> Iterator[None]:
        """Wait until all ranks have come; the deadline holds for this and for what is done inside."""
        with self._deadline():
            self._wait(self.comm.Ibarrier())
            yield

    def _deadline(self) -> AbstractContextManager[None]:
        return nullcontext() if self._watchdog is None else self._watchdog.waiting()

    def _wait(self, request: Any) -> None:
        """Sleep until a collective of little data has come to its end."""
        since = time.monotonic()
        while not request.Test():
            time.sleep(min(_MAX_PAUSE, (time.monotonic() - since) * _PAUSE_SHARE))
        if self._lacks_pulse:
            self._give_pulse()

    def _give_pulse(self) -> None:
        """Let the watchdog hear of the others; collective, once all have come for the first time."""
        self._lacks_pulse = False
        # The watchdog's thread calls MPI, too.
        if self._watchdog is not None and self._mpi.Query_thread() == self._mpi.THREAD_MULTIPLE:
            self._watchdog.pulse = MpiPulse(self._mpi, self.comm.Dup())


class MpiPulse:
    """Messages without content between all ranks, on a communicator of their own.

    Args:
        mpi: mpi4py's MPI.
        comm: The communicator, for this alone: libraries take any message on theirs.
    """

    def __init__(self, mpi: Any, comm: Any) -> None:
        self._mpi = mpi
        self._comm = comm
        self._sent: list[Any] = []

    def beat(self) -> None:
        """See `Pulse.beat`."""
        self._sent = [request for request in self._sent if not request.Test()]
        others = (rank for rank in range(self._comm.size) if rank != self._comm.rank)
        self._sent += [self._comm.Isend(self._nothing(), rank) for rank in others]

    def heard(self) -> bool:
        """See `Pulse.heard`."""
        found = False
        while self._comm.Iprobe():
            self._comm.Recv(self._nothing())
            found = True
        return found

    def _nothing(self) -> list[Any]:
        return [bytearray(), 0, self._mpi.BYTE]


def connect(timeout: float, is_rank: bool = False) -> Ranks:
    """The ranks that mpirun started, or this process alone, as MPI says; variables tell only whether to ask.

    Args:
        timeout: See `MpiRanks`.
        is_rank: Whether to ask MPI in any case, if it is installed: for programs that mpirun starts.

    Raises:
        BackendMissingError: see `MpiRanks`; a rank of several never goes on as if it were alone.
    """
    if is_started_by_mpirun() or (is_rank and find_spec("mpi4py") is not None):
        ranks = MpiRanks(timeout)
        return ranks if ranks.size > 1 else SingleRank()
    return SingleRank()


def is_started_by_mpirun() -> bool:
    """Whether the environment is that of a rank."""
    return any(name in os.environ for name in _OF_MPIRUN)


def _mpi() -> Any:
    """mpi4py's MPI; its import starts MPI."""
    try:
        from mpi4py import MPI  # noqa: PLC0415 - a rank alone must run where no MPI is installed
    except ImportError as error:
        raise BackendMissingError(
            f"mpirun's ranks need mpi4py, which cannot be imported ({error}); install (Debian) python3-mpi4py"
        ) from None
    return MPI


def _require_world(size: int, library: str) -> None:
    """Refuse to be one of several who each hold themselves for the only one."""
    wanted = os.environ.get(WORLD_SIZE, str(size))
    if wanted != str(size):
        raise BackendMissingError(
            f"mpirun started {wanted} ranks, but mpi4py's MPI ({library}) sees {size}: mpirun and mpi4py "
            "must be of one MPI installation (Debian: openmpi-bin, python3-mpi4py)"
        )


# --- what is made of the collectives: sums, agreement on errors and on the end of streams


def add_up(ranks: Ranks, own: Ints) -> Ints:
    """The sum of the ranks' numbers on every rank, element by element; collective.

    Args:
        ranks: The processes.
        own: This rank's: integers of any shape, the same on every rank.

    Returns:
        int64, shape of `own`.
    """
    found: Ints = np.sum(ranks.gather(own), axis=0, dtype=np.int64)
    return found


def say_once(ranks: Ranks, text: str) -> None:
    """Say on stderr, by rank 0, what all ranks know; collective: the first that leaves ends the others."""
    if ranks.rank == 0:
        print(text, file=sys.stderr, flush=True)
    ranks.gather("the message is out")


def run_on_all_ranks(ranks: Ranks, work: Callable[[], T]) -> T:
    """Do local work on every rank; if an expected error stops one, all raise the same error; collective.

    Raises:
        AgreedError: with the message of the lowest rank that failed.
    """
    result, error = _attempt(work)
    raise_first(ranks, error)
    return result  # type: ignore[return-value]


def raise_first(ranks: Ranks, error: Expected | None) -> None:
    """Raise on every rank the error of the lowest rank that has one; collective.

    Raises:
        AgreedError: some rank has an error.
    """
    told = ranks.gather(None if error is None else (str(error), error.exit_code))
    for each in told:
        if each is not None:
            raise AgreedError(*each)


class StreamState(IntEnum):
    """Whether a rank has more blocks to send."""

    DONE = 0
    MORE = 1
    FAILED = 2


@dataclass
class BlockStream(Generic[T]):
    """A rank's blocks in collective rounds: a rank that has none left takes part with an empty one.

    Attributes:
        blocks: The rank's own blocks.
        empty: What it sends after the last one.
        state: Whether the block that `next` gave is one of them, for the other ranks.
        error: What was found in the place of a block.
    """

    blocks: Iterator[T]
    empty: T
    state: StreamState = StreamState.MORE
    error: Expected | None = None

    def next(self) -> T:
        """The block of the next round."""
        if self.state is StreamState.DONE:
            return self.empty
        block, self.error = _attempt(lambda: next(self.blocks, None))
        if self.error is not None:
            self.state = StreamState.FAILED
        elif block is None:
            self.state = StreamState.DONE
        return self.empty if block is None else block


def has_more(ranks: Ranks, states: Sequence[int], error: Expected | None) -> bool:
    """Whether any rank sent a block in this round, so that another round follows.

    Args:
        ranks: The processes.
        states: The `StreamState` of every rank; all ranks have the same.
        error: This rank's error.

    Raises:
        AgreedError: some rank has failed; collective in this case only.
    """
    if StreamState.FAILED in states:
        raise_first(ranks, error)
    return StreamState.MORE in states


def in_rounds(ranks: Ranks, blocks: Iterator[T], empty: T) -> Iterator[T]:
    """Give this rank's blocks one after the other, and empty ones until no rank has any left; collective.

    Args:
        ranks: The processes.
        blocks: This rank's blocks; a `DataError` in it stops all ranks.
        empty: What a rank without further blocks takes part with.

    Raises:
        AgreedError: the blocks of some rank end in an error.
    """
    stream = BlockStream(blocks, empty)
    while True:
        block = stream.next()
        if not has_more(ranks, ranks.gather(stream.state), stream.error):
            return
        yield block


def _attempt(work: Callable[[], T]) -> tuple[T | None, Expected | None]:
    try:
        return work(), None
    except (DataError, BackendMissingError) as error:
        return None, error
