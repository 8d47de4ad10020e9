"""The simple undirected graph that partitioners want, as rows of neighbours (CSR).

Partitioners demand no self-loops, no duplicate edges, and every edge in both directions. An edge u -> v
becomes two half-edges, packed into 64 bits so that one sort brings a row's neighbours together:

    bit 63..32  local number of the half-edge's own node
    bit 31..1   number of its neighbour in the whole graph
    bit 0       1 where the own node is the destination: counts its in-degree

A self-loop is one half-edge that counts in the degree and is then left out. Nothing needs to be put back
later: the assignment is about nodes, and dispatch reads the edges from the input.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]

MAX_NODES = 1 << 31
"""Numbers of nodes have 31 bits here, as in every back end's 32-bit build."""
STRETCH = 1 << 21
"""Half-edges taken from the sorted keys at once."""


@dataclass(frozen=True)
class Csr:
    """Rows of a simple undirected graph; on one rank, the rows of its nodes.

    Attributes:
        xadj: Start of each row in adjncy, int64, shape (rows + 1,).
        adjncy: Neighbours' numbers in the whole graph, int32, ascending in each row.
        count: Input edges that each entry stands for, both directions, int32, shape of adjncy.
        in_degree: Input edges that end in each node, self-loops and duplicates included, int64.
    """

    xadj: Ints
    adjncy: Indices
    count: Indices
    in_degree: Ints


def pack(own: Ints, neighbour: Ints, is_destination: bool) -> Keys:
    """Half-edges as keys; `own` are local numbers, `neighbour` numbers in the whole graph."""
    keys = own.astype(np.uint64)
    keys <<= np.uint64(31)
    keys |= neighbour.view(np.uint64)
    keys <<= np.uint64(1)
    if is_destination:
        keys |= np.uint64(1)
    return keys


def build(keys: Keys, rows: int, first: int) -> Csr:
    """Sort half-edges and merge those between the same two nodes.

    Args:
        keys: Half-edges of this rank's nodes in any order; sorted in place.
        rows: Number of this rank's nodes.
        first: Number of the first of them in the whole graph (to know self-loops).
    """
    keys.sort()
    xadj, in_degree = np.zeros(rows + 1, np.int64), np.zeros(rows, np.int64)
    columns, counts = [], []
    for stretch in _stretches(keys):
        row, neighbours, count = _merge(stretch, first, in_degree)
        low = int(row[0]) if len(row) else 0
        sizes = np.bincount(row - low)
        xadj[low + 1 : low + 1 + len(sizes)] += sizes
        columns.append(neighbours)
        counts.append(count)
    return Csr(np.cumsum(xadj, out=xadj), _joined(columns), _joined(counts), in_degree)


def _stretches(keys: Keys) -> Iterator[Keys]:
    """Cut the sorted keys where the own node changes."""
    at = 0
    while at < len(keys):
        end = min(at + STRETCH, len(keys))
        if end < len(keys):
            following = (int(keys[end - 1]) >> 32) + 1
            end = int(np.searchsorted(keys, np.uint64(following << 32)))
        yield keys[at:end]
        at = end


def _merge(keys: Keys, first: int, in_degree: Ints) -> tuple[Ints, Indices, Indices]:
    """Unique (row, neighbour) of sorted half-edges with their number; adds to `in_degree`."""
    pairs = keys >> np.uint64(1)
    own = (keys >> np.uint64(32)).view(np.int64)
    low = int(own[0])
    ends = np.bincount(own[(keys & np.uint64(1)).astype(bool)] - low)
    in_degree[low : low + len(ends)] += ends
    starts = np.flatnonzero(np.concatenate(([True], pairs[1:] != pairs[:-1])))
    sizes = np.diff(starts, append=len(keys)).astype(np.int32)
    own = own[starts]
    neighbours = (pairs[starts] & np.uint64(MAX_NODES - 1)).view(np.int64)
    others = neighbours != own + first
    return own[others], neighbours[others].astype(np.int32), sizes[others]


def _joined(pieces: list[Indices]) -> Indices:
    """Concatenate and let each piece go as soon as it is copied."""
    found, at = np.empty(sum(map(len, pieces)), np.int32), 0
    pieces.reverse()
    while pieces:
        piece = pieces.pop()
        found[at : at + len(piece)] = piece
        at += len(piece)
    return found
