"""Who owns which range of the shuffled IDs: parts in order, types in order inside each part."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dglrun.arrays import Array, Ints

_FEW = 16
"""Up to this many parts, comparing with each boundary beats a binary search for each ID."""


@dataclass(frozen=True)
class Ranges:
    """Ranges of nodes, or of edges, over all parts and types.

    Attributes:
        counts: int64, shape (parts, types): how many of each type each part owns.
    """

    counts: Ints

    @property
    def parts(self) -> int:
        """Number of parts."""
        return len(self.counts)

    @property
    def total(self) -> int:
        """Number of IDs over all parts and types."""
        return int(self.counts.sum())

    @cached_property
    def starts(self) -> Ints:
        """First ID of each (part, type): int64, shape (parts, types)."""
        ends = np.cumsum(self.counts, dtype=np.int64)
        return (ends - self.counts.ravel()).reshape(self.counts.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smaller of int32 and int64 that holds every ID (and its complement)."""
        return id_dtype(self.total)

    def bounds(self, part: int) -> tuple[int, int]:
        """First ID of a part and the ID after its last one."""
        start = int(self.starts[part, 0]) if self.counts.shape[1] else 0
        return start, start + int(self.counts[part].sum())

    def parts_of(self, ids: Array) -> Array:
        """The part of each ID: uint8 up to 256 parts, else uint16; same shape."""
        firsts = self.starts[1:, 0]
        dtype = part_dtype(self.parts)
        if len(firsts) > _FEW:
            return np.searchsorted(firsts.astype(ids.dtype), ids, side="right").astype(dtype)
        found = np.zeros(ids.shape, dtype)
        for first in firsts:
            found += ids >= first
        return found

    def types_of(self, ids: Array) -> Array:
        """The type of each ID: int64, same shape."""
        if self.counts.shape[1] == 1:
            return np.zeros(ids.shape, np.int64)
        found = np.searchsorted(self.starts.ravel(), ids, side="right") - 1
        return found % self.counts.shape[1]

    def json(self, names: Sequence[str]) -> dict[str, list[list[int]]]:
        """The node_map or edge_map of the partition's JSON: {type: [[start, end) of each part]}."""
        ends = self.starts + self.counts
        return {
            name: [[int(self.starts[part, at]), int(ends[part, at])] for part in range(self.parts)]
            for at, name in enumerate(names)
        }


def id_dtype(count: int) -> np.dtype[Any]:
    """int32 where `count` IDs fit, else int64."""
    return np.dtype(np.int32 if count < 2**31 else np.int64)


def part_dtype(parts: int) -> np.dtype[Any]:
    """uint8 where part numbers fit, else uint16; both sort in linear time."""
    return np.dtype(np.uint8 if parts <= 256 else np.uint16)
