"""Type-wise (heterogeneous) and homogeneous IDs, as user guide 7.5 defines them, vectorised.

Type t owns the homogeneous IDs `offsets[t]` to `offsets[t + 1] - 1`. The guide's converter looks for the
type by `bisect_left(...) - 1`, which is one too low for the first ID of every type; here it is the last
type whose offset is not above the ID, so types without IDs are never found.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dglrun.arrays import Ints

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@dataclass(frozen=True)
class IdMap:
    """The two numberings of a graph's nodes, or of its edges.

    Attributes:
        types: Names of the types; the position is the type ID.
        offsets: First homogeneous ID of each type and, last, their number; int64, shape (types + 1,).
    """

    types: tuple[str, ...]
    offsets: Ints

    @staticmethod
    def of(types: Iterable[str], counts: Iterable[int]) -> "IdMap":
        """The numbering of types with these numbers of nodes or edges.

        Raises:
            ValueError: the lengths differ, or a count is negative.
        """
        names, sizes = tuple(types), list(counts)
        if len(names) != len(sizes) or any(size < 0 for size in sizes):
            raise ValueError(f"expected a count from 0 on for each of {names}, got {sizes}")
        return IdMap(names, np.cumsum([0, *sizes], dtype=np.int64))

    @property
    def total(self) -> int:
        """Number of homogeneous IDs."""
        return int(self.offsets[-1])

    def type_id(self, name: str) -> int:
        """The type ID of a type's name.

        Raises:
            ValueError: there is no such type.
        """
        return self.types.index(name)

    def size(self, type_id: int) -> int:
        """Number of IDs of a type."""
        return int(self.offsets[type_id + 1] - self.offsets[type_id])

    def to_homogeneous(self, type_id: int, ids: "ArrayLike") -> Ints:
        """Type-wise IDs of one type as homogeneous IDs, same shape, int64.

        Raises:
            ValueError: an ID is not one of the type's.
        """
        found = np.asarray(ids, np.int64)
        _refuse_outside(found, self.size(type_id), f"type {self.types[type_id]!r}")
        return np.add(found, self.offsets[type_id], dtype=np.int64)

    def to_typed(self, ids: "ArrayLike") -> tuple[Ints, Ints]:
        """Homogeneous IDs as (type IDs, type-wise IDs), same shape, int64.

        Raises:
            ValueError: an ID is outside the graph.
        """
        found = np.asarray(ids, np.int64)
        _refuse_outside(found, self.total, "the graph")
        types = np.searchsorted(self.offsets, found, side="right") - 1
        return types, found - self.offsets[types]

    def ranges(self, start: int, stop: int) -> Iterable[tuple[int, int, int]]:
        """The homogeneous range start..stop by type: (type ID, first and end type-wise ID), none empty."""
        for type_id in range(len(self.types)):
            first, end = int(self.offsets[type_id]), int(self.offsets[type_id + 1])
            low, high = max(start, first), min(stop, end)
            if low < high:
                yield type_id, low - first, high - first


def _refuse_outside(ids: Ints, size: int, owner: str) -> None:
    wrong = (ids < 0) | (ids >= size)
    if wrong.any():
        raise ValueError(f"{owner} has the IDs 0 to {size - 1}, got {ids[wrong].flat[0]}")
