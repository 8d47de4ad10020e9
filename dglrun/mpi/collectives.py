"""The processes that dispatch together: one alone, or the ranks of an MPI job.

A rank alone needs no MPI. With several, every collective has a deadline: a rank that waits longer
ends itself with exit code 124 and mpirun ends the others.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import numpy as np

from dglrun.arrays import Array
from dglrun.contract import exitcodes
from dglrun.errors import DataError

T = TypeVar("T")


class AgreedError(DataError):
    """Bad input that every rank knows of: each raises the same message."""


class Ranks(Protocol):
    """What the pipeline needs of its processes.

    Attributes:
        rank: Number of this process, from 0.
        size: Number of processes.
    """

    rank: int
    size: int

    def gather(self, value: T) -> list[T]:
        """Give every rank the small values of all ranks, in their order."""

    def counts(self, rows: Array) -> Array:
        """Send row q of an int64 array (size, k) to rank q; returns the rows received, same shape."""

    def exchange(self, column: Array, send: Sequence[int], receive: Sequence[int]) -> Array:
        """Send consecutive runs of rows to ranks 0, 1, ...; returns the received runs in rank order.

        Args:
            column: Contiguous array whose first `sum(send)` rows are the runs.
            send: Rows for each rank.
            receive: Rows from each rank, as they know it from `counts`.
        """

    def concatenate(self, own: Array, rows: Sequence[int]) -> Array:
        """Give every rank the arrays of all ranks one after the other; `rows` are their lengths."""


class SingleRank:
    """One process without MPI."""

    rank = 0
    size = 1

    def gather(self, value: T) -> list[T]:
        """The value itself."""
        return [value]

    def counts(self, rows: Array) -> Array:
        """The rows themselves."""
        return rows

    def exchange(self, column: Array, send: Sequence[int], receive: Sequence[int]) -> Array:
        """The column itself."""
        return column[: sum(send)]

    def concatenate(self, own: Array, rows: Sequence[int]) -> Array:
        """The array itself."""
        return own


class MpiRanks:
    """The ranks of MPI's world communicator."""

    def __init__(self, timeout: float) -> None:
        from mpi4py import MPI  # noqa: PLC0415 - a rank alone must run where no MPI is installed

        self._mpi = MPI
        self._world = MPI.COMM_WORLD
        self._watchdog = Watchdog(timeout, self._world.rank)
        self.rank: int = self._world.rank
        self.size: int = self._world.size

    def gather(self, value: T) -> list[T]:
        """See `Ranks.gather`."""
        with self._watchdog.waiting():
            return self._world.allgather(value)

    def counts(self, rows: Array) -> Array:
        """See `Ranks.counts`."""
        received = np.empty_like(rows)
        with self._watchdog.waiting():
            self._world.Alltoall(rows, received)
        return received

    def exchange(self, column: Array, send: Sequence[int], receive: Sequence[int]) -> Array:
        """See `Ranks.exchange`."""
        received = np.empty((sum(receive), *column.shape[1:]), column.dtype)
        width = column.itemsize * int(np.prod(column.shape[1:], dtype=np.int64))
        with self._watchdog.waiting():
            self._world.Alltoallv(_runs(column, send, width), _runs(received, receive, width))
        return received

    def concatenate(self, own: Array, rows: Sequence[int]) -> Array:
        """See `Ranks.concatenate`."""
        received = np.empty((sum(rows), *own.shape[1:]), own.dtype)
        width = own.itemsize * int(np.prod(own.shape[1:], dtype=np.int64))
        mine = [own, own.nbytes, self._mpi.BYTE]
        with self._watchdog.waiting():
            self._world.Allgatherv(mine, _runs(received, rows, width))
        return received

    def abort(self, code: int) -> None:
        """End all ranks with this exit code; does not return."""
        sys.stdout.flush()
        sys.stderr.flush()
        self._world.Abort(code)


class Watchdog:
    """Ends the process when it has waited longer than allowed for the other ranks."""

    def __init__(self, timeout: float, rank: int) -> None:
        self._timeout = timeout
        self._rank = rank
        self._since: float | None = None
        threading.Thread(target=self._watch, daemon=True).start()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Mark the time spent inside as waiting."""
        self._since = time.monotonic()
        try:
            yield
        finally:
            self._since = None

    def _watch(self) -> None:
        while not self._expired():
            time.sleep(min(1.0, self._timeout / 4))
        print(
            f"rank {self._rank}: waited more than {self._timeout:g} s for the other ranks "
            "(--process-group-timeout)",
            file=sys.stderr,
            flush=True,
        )
        os._exit(exitcodes.TIMEOUT)

    def _expired(self) -> bool:
        since = self._since
        return since is not None and time.monotonic() - since > self._timeout


def connect(timeout: float) -> Ranks:
    """The ranks that mpirun started, or this process alone."""
    return MpiRanks(timeout) if world_size() > 1 else SingleRank()


def world_size() -> int:
    """How many ranks mpirun says there are (Open MPI, MPICH and their kin); 1 without it."""
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
        if name in os.environ:
            return int(os.environ[name])
    return 1


def run_on_all_ranks(ranks: Ranks, work: Callable[[], T]) -> T:
    """Do local work on every rank; if the user's data stops one, all raise the same error.

    Raises:
        AgreedError: the message of the lowest rank that failed.
    """
    result, problem = _attempt(work)
    raise_first(ranks, problem)
    return result  # type: ignore[return-value]


def raise_first(ranks: Ranks, problem: str | None) -> None:
    """Raise on every rank what the lowest failing rank reports; collective.

    Raises:
        AgreedError: some rank has a problem.
    """
    found = [text for text in ranks.gather(problem) if text is not None]
    if found:
        raise AgreedError(found[0])


def _attempt(work: Callable[[], T]) -> tuple[T | None, str | None]:
    try:
        return work(), None
    except DataError as error:
        return None, str(error)


def _runs(column: Array, rows: Sequence[int], width: int) -> list[Any]:
    """An MPI buffer of bytes with the length and place of each rank's run."""
    from mpi4py import MPI  # noqa: PLC0415 - only ranks of MPI come here

    lengths = np.asarray(rows, np.int64) * width
    places = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    return [column, (lengths.tolist(), places.tolist()), MPI.BYTE]
