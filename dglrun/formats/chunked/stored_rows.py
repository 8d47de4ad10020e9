"""Rows that lie in files and are read when they are needed: takes the place of an array for the writers."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

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
