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
        keys: Group of each row, shape (rows,); any integers from 0 to `groups` - 1.
        groups: Number of groups, at most 65536.
    """
    # numpy's stable sort of 8 and 16 bits is a radix sort, linear in the rows; of wider types it is not.
    keys = keys.astype(np.uint8 if groups <= 256 else np.uint16, copy=False)
    counts = np.bincount(keys, minlength=groups).astype(np.int64)
    if groups == 1:
        return Groups(np.arange(len(keys)), counts)
    if groups == 2:
        second = keys.astype(bool)
        return Groups(np.concatenate((np.flatnonzero(~second), np.flatnonzero(second))), counts)
    return Groups(np.argsort(keys, kind="stable"), counts)


def number_rows(groups: Array, following: Ints) -> Ints:
    """Number rows inside their groups, in their order.

    Args:
        groups: Group of each row, shape (rows,).
        following: The next number of each group, shape (groups,); moved on by the rows numbered here.

    Returns:
        The number of each row, int64, shape (rows,).
    """
    numbers = np.empty(len(groups), np.int64)
    for group, rows in group_by(groups, len(following)).runs():
        numbers[rows] = following[group] + np.arange(len(rows))
        following[group] += len(rows)
    return numbers


def imbalance(loads: Ints) -> float:
    """The largest load over the mean load; 1 is even, and stands for no load at all."""
    total = int(loads.sum())
    return int(loads.max()) * len(loads) / total if total else 1.0


def share(rows: int, rank: int, size: int) -> tuple[int, int]:
    """Rows `[start, stop)` that a rank reads of a table of `rows` rows."""
    return rows * rank // size, rows * (rank + 1) // size
