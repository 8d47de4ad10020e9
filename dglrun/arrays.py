"""Arrays of rows: their types, rows grouped by where they go, and the rows that a rank reads."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

_Scalar = TypeVar("_Scalar", bound=np.generic)

NDArray = np.ndarray[Any, np.dtype[_Scalar]]
"""As in numpy.typing, whose import takes each rank 6 ms."""
Array = NDArray[Any]
Ints = NDArray[np.int64]

BFLOAT16 = np.dtype([("bfloat16", "<u2")])
"""torch's bfloat16, which numpy lacks: a record of its two bytes, so that nothing takes it for integers."""


def dtype_name(dtype: np.dtype[Any]) -> str:
    """The name of a dtype in metadata and messages."""
    return "bfloat16" if dtype == BFLOAT16 else dtype.name


def dtype_of(name: str) -> np.dtype[Any]:
    """The dtype of a name, such as `float32` or `bfloat16`.

    Raises:
        TypeError: numpy has no dtype of this name.
    """
    return BFLOAT16 if name == "bfloat16" else np.dtype(name)


def is_nonzero(values: Array) -> NDArray[np.bool_]:
    """Which values are not 0: bool, same shape; the sign of a zero does not count.

    Args:
        values: Any shape and any dtype of numbers, `BFLOAT16` too.
    """
    found: NDArray[np.bool_] = ((values.view("<u2") & 0x7FFF) if values.dtype == BFLOAT16 else values) != 0
    return found


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
        """Yield `(group, its rows)` for the groups that have rows; int64, shape (rows of the group,)."""
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

    Returns:
        The row numbers 0 to `rows` - 1 by group, in ascending order inside a group.
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
        groups: Group of each row, shape (rows,); any integers from 0 to the number of groups - 1.
        following: The next number of each group, int64, shape (groups,); moved on by the rows numbered here.

    Returns:
        The number of each row, int64, shape (rows,).
    """
    numbers = np.empty(len(groups), np.int64)
    for group, rows in group_by(groups, len(following)).runs():
        numbers[rows] = following[group] + np.arange(len(rows))
        following[group] += len(rows)
    return numbers


def spans(starts: Ints, sizes: Ints) -> Ints:
    """The numbers from each start on, one range after another.

    Args:
        starts: First number of each range, int64, shape (ranges,).
        sizes: Length of each range, int64, shape (ranges,); none below 0.

    Returns:
        int64, shape (sum of the sizes,).
    """
    before = np.cumsum(sizes) - sizes
    found: Ints = np.repeat(starts - before, sizes) + np.arange(int(sizes.sum()))
    return found


def imbalance(loads: Ints) -> float:
    """The largest load over the mean load; 1 is even, and stands for no load at all.

    Args:
        loads: Load of each part, int64, shape (parts,), none below 0.
    """
    total = int(loads.sum())
    return int(loads.max()) * len(loads) / total if total else 1.0


def share(rows: int, rank: int, size: int) -> tuple[int, int]:
    """Rows `[start, stop)` that a rank reads of a table of `rows` rows."""
    return rows * rank // size, rows * (rank + 1) // size
