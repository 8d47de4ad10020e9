"""Edge cut and loads of a distributed assignment: each rank asks the owners for its neighbours' parts."""

import numpy as np

from dglrun.arrays import Ints
from dglrun.formats.assignment import Parts
from dglrun.mpi.collectives import Ranks, ask_owners
from dglrun.partitioning.csr import Csr
from dglrun.partitioning.partition_quality import PartitionQuality

BLOCK = 1 << 21
"""Half-edges asked about at once."""


def measure(
    ranks: Ranks, starts: Ints, rows: Csr, types: Ints, parts: Parts, shape: tuple[int, int]
) -> PartitionQuality:
    """Score the whole assignment; every rank gets the result.

    Args:
        ranks: The ranks that own nodes.
        starts: First row of each rank and, last, the number of rows; int64, shape (ranks + 1,).
        rows: This rank's rows.
        types: Node type ID of each row, int64, shape (rows,).
        parts: Part of each row, uint16, shape (rows,).
        shape: Number of node types and of parts.
    """
    num_types, num_parts = shape
    edges = np.bincount(parts, weights=rows.in_degree, minlength=num_parts).astype(np.int64)
    nodes = np.bincount(types * num_parts + parts, minlength=num_types * num_parts)
    return PartitionQuality(
        sum(ranks.gather(_cut(ranks, starts, rows, parts))),
        np.sum(ranks.gather(edges), axis=0),
        np.sum(ranks.gather(nodes.astype(np.int64)), axis=0).reshape(shape),
    )


def _cut(ranks: Ranks, starts: Ints, rows: Csr, parts: Parts) -> int:
    """Input edges cut, counted where the own row is the lower end (the pair stands at both ends)."""
    cut, at, more = 0, 0, True
    first = int(starts[ranks.rank])
    while more:
        end = min(at + BLOCK, len(rows.adjncy))
        own = _rows_of(rows.xadj, at, end)
        neighbours = rows.adjncy[at:end]
        lower = np.flatnonzero(neighbours > own + first)
        owners = np.searchsorted(starts[1:-1], neighbours[lower], side="right")
        theirs = ask_owners(ranks, owners, neighbours[lower], lambda wanted: parts[wanted - first])
        differs = parts[own[lower]] != theirs
        cut += int(rows.count[at:end][lower][differs].sum(dtype=np.int64))
        at = end
        more = any(ranks.gather(at < len(rows.adjncy)))
    return cut


def _rows_of(xadj: Ints, start: int, end: int) -> Ints:
    """The row of each entry start..end of adjncy."""
    first = int(np.searchsorted(xadj, start, side="right")) - 1
    last = int(np.searchsorted(xadj, end, side="left"))
    bounds = np.clip(xadj[first : last + 1], start, end)
    return np.repeat(np.arange(first, first + len(bounds) - 1), np.diff(bounds))
