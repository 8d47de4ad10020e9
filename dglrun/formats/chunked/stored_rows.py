"""Rows that lie in files and are read when they are needed: takes the place of an array for the writers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from dglrun.arrays import Array


@dataclass(frozen=True)
class StoredRows:
    """Rows `start` to `stop` of a table; a slice of it reads nothing, `numpy.asarray` reads all of it.

    Attributes:
        read: Gives the rows between two numbers: shape (rows, *tail), of `dtype`.
        start: First row.
        stop: Row after the last one.
        tail: Shape of a row.
        dtype: Of the values.
    """

    read: Callable[[int, int], Array]
    start: int
    stop: int
    tail: tuple[int, ...]
    dtype: Any

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def shape(self) -> tuple[int, ...]:
        """As of an array."""
        return len(self), *self.tail

    @property
    def ndim(self) -> int:
        """As of an array."""
        return 1 + len(self.tail)

    def __getitem__(self, rows: slice) -> "StoredRows":
        first, last, _ = rows.indices(len(self))
        return replace(self, start=self.start + first, stop=self.start + max(first, last))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        found = self.read(self.start, self.stop)
        return found if dtype is None else found.astype(dtype, copy=False)


class InOrder:
    """Reads rows for `StoredRows` from blocks; what is asked for after what was read last goes on there.

    A reader that begins anew for each stretch would decode the beginning of a large row group each time.
    """

    def __init__(self, blocks: Callable[[int], Iterator[Array]]) -> None:
        """Remember how to read.

        Args:
            blocks: Gives all blocks from a row on, shape (rows, *tail) each.
        """
        self._blocks = blocks
        self._at = -1
        self._left: Iterator[Array] = iter(())

    def __call__(self, start: int, stop: int) -> Array:
        """The rows start..stop, at least one."""
        if start != self._at:
            self._left = self._blocks(start)
        found, wanted = [], stop - start
        while wanted:
            block = next(self._left)
            found.append(block[:wanted])
            if len(block) > wanted:
                self._left = chain([block[wanted:]], self._left)
            wanted -= len(found[-1])
        self._at = stop
        return np.concatenate(found) if len(found) > 1 else found[0]
