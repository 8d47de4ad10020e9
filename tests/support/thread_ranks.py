"""Ranks that are threads: the collectives of `Ranks` through shared lists and a barrier."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from dglrun.arrays import Array

T = TypeVar("T")

SECONDS = 300.0
"""A rank waits no longer for one that left a collective out; one that fails ends the others at once."""


class ThreadRanks:
    """One of several threads that dispatch together; `barriers` are those that a failed rank breaks."""

    library = "threads"

    def __init__(
        self, rank: int, barrier: threading.Barrier, board: list[Any], barriers: list[threading.Barrier]
    ) -> None:
        self.rank = rank
        self.size = len(board)
        self._barrier = barrier
        self._board = board
        self._barriers = barriers

    def split(self, color: int) -> "ThreadRanks":
        mine = [rank for rank, each in enumerate(self.gather(color)) if each == color]
        barrier, board = self.gather((threading.Barrier(len(mine)), [None] * len(mine)))[mine[0]]
        self._barriers.append(barrier)
        return ThreadRanks(mine.index(self.rank), barrier, board, self._barriers)

    def gather(self, value: T) -> list[T]:
        self._board[self.rank] = value
        self._barrier.wait(SECONDS)
        found = list(self._board)
        self._barrier.wait(SECONDS)
        return found

    def counts(self, rows: Array) -> Array:
        return np.stack([found[self.rank] for found in self.gather(rows)])

    def exchange(self, column: Array, send: Sequence[int], receive: Sequence[int]) -> Array:
        runs = np.split(column[: sum(send)], np.cumsum(send)[:-1])
        received = [found[self.rank].copy() for found in self.gather(runs)]
        assert [len(run) for run in received] == list(receive)
        return np.concatenate(received)

    def concatenate(self, own: Array, rows: Sequence[int]) -> Array:
        found = self.gather(own)
        assert [len(array) for array in found] == list(rows)
        return np.concatenate(found)


def on_ranks(size: int, work: Callable[[ThreadRanks], T]) -> list[T]:
    """Run `work` on every rank; raises what a rank raised."""
    barrier, board = threading.Barrier(size), [None] * size
    barriers = [barrier]
    results: list[Any] = [None] * size
    errors: list[BaseException] = []

    def one(rank: int) -> None:
        try:
            results[rank] = work(ThreadRanks(rank, barrier, board, barriers))
        except BaseException as error:
            errors.append(error)
            for each in barriers:
                each.abort()

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise next((e for e in errors if not isinstance(e, threading.BrokenBarrierError)), errors[0])
    return results
