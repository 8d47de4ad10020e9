"""Arrays of rows: their types, rows grouped by where they go, and the rows that a rank reads."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Groups:
    """A stable order of rows by group.

    Attributes:
        rows: Row numbers, group after group: int64, shape (rows,).
        counts: Rows of each group: int64, shape (groups,).
    """

    rows: Ints
    counts: Ints

    def runs(self) -> Iterator[tuple[int, Ints]]:
        """Yield `(group, its rows)` for the groups that have rows."""
        start = 0
        for at, count in enumerate(self.counts.tolist()):
            if count:
                yield at, self.rows[start : start + count]
            start += count


def group_by(keys: Array, groups: int) -> Groups:
    """Group rows by key.

    Args:
        keys: Group of each row, of an unsigned type of at most 16 bits (sorted in linear time).
        groups: Number of groups.
    """
    counts = np.bincount(keys, minlength=groups).astype(np.int64)
    if groups == 1:
        return Groups(np.arange(len(keys)), counts)
    if groups == 2:
        second = keys.astype(bool)
        return Groups(np.concatenate((np.flatnonzero(~second), np.flatnonzero(second))), counts)
    return Groups(np.argsort(keys, kind="stable"), counts)


def share(rows: int, rank: int, size: int) -> tuple[int, int]:
    """Rows `[start, stop)` that a rank reads of a table of `rows` rows."""
    return rows * rank // size, rows * (rank + 1) // size
