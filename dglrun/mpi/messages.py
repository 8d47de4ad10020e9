"""Collective steps of the ranks: all-to-all of numbers in bounded blocks, and agreement on errors."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from mpi4py import MPI

from dglrun.arrays import Array, Ints
from dglrun.errors import BackendMissingError, DataError

T = TypeVar("T")
DONE, MORE, FAILED = 0, 1, 2
Expected = DataError | BackendMissingError


class AgreedError(Exception):
    """An error that all ranks know of and raise together: one message, one exit code."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


def bucket(values: Array, codes: Array, number: int) -> tuple[Array, Ints, Array]:
    """Group values by code, order kept: (grouped values, count of each code, the permutation)."""
    small = codes.astype(np.uint8 if number <= 256 else np.uint16)
    order = np.argsort(small, kind="stable")  # of 8 and 16 bits this is a radix sort
    return values[order], np.bincount(small, minlength=number).astype(np.int64), order


def all_to_all(comm: Any, grouped: Array, counts: Ints) -> tuple[Array, Ints]:
    """Send each rank its group; return what came, grouped by sender, and the count of each sender."""
    incoming = np.empty(comm.size, np.int64)
    comm.Alltoall(counts, incoming)
    found = np.empty(int(incoming.sum()), grouped.dtype)
    kind = MPI._typedict[grouped.dtype.char]
    comm.Alltoallv(
        [grouped, counts.tolist(), _starts(counts), kind], [found, incoming.tolist(), _starts(incoming), kind]
    )
    return found, incoming


def _starts(counts: Ints) -> list[int]:
    return [0, *np.cumsum(counts)[:-1].tolist()]


def proceed(comm: Any, error: Expected | None, more: bool) -> bool:
    """Agree whether any rank has more to do; if any met an error, all raise the first one.

    Raises:
        AgreedError: on every rank, with message and code of the lowest rank that failed.
    """
    mine = FAILED if error else MORE if more else DONE
    state = comm.allreduce(mine, op=MPI.MAX)
    if state == FAILED:
        found = comm.allgather((str(error), error.exit_code) if error else None)
        raise AgreedError(*next(each for each in found if each))
    return bool(state == MORE)


def run_on_all_ranks(comm: Any, step: Callable[[], T]) -> T:
    """Take a step that any rank may fail alone; collective.

    Raises:
        AgreedError: on every rank, if the input is bad or a library missing on any of them.
    """
    try:
        value = step()
    except (DataError, BackendMissingError) as error:
        proceed(comm, error, False)
        raise
    proceed(comm, None, False)
    return value
