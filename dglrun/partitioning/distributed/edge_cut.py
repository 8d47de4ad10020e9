"""Edge cut and loads of a distributed assignment: each rank asks the owners for its neighbours' parts."""

from typing import Any

import numpy as np
import numpy.typing as npt

from dglrun.arrays import Ints
from dglrun.formats.assignment import Parts
from dglrun.mpi import messages
from dglrun.partitioning.csr import Csr
from dglrun.partitioning.partition_quality import PartitionQuality

BLOCK = 1 << 21
"""Half-edges asked about at once."""


def measure(
    comm: Any, starts: Ints, rows: Csr, types: Ints, parts: Parts, shape: tuple[int, int]
) -> PartitionQuality:
    """Score the whole assignment; every rank gets the result.

    Args:
        comm: The ranks that own nodes.
        starts: First row of each rank and, last, the number of rows.
        rows: This rank's rows.
        types: Node type ID of each row.
        parts: Part of each row.
        shape: Number of node types and of parts.
    """
    num_types, num_parts = shape
    edges = np.bincount(parts, weights=rows.in_degree, minlength=num_parts).astype(np.int64)
    nodes = np.bincount(types * num_parts + parts, minlength=num_types * num_parts)
    return PartitionQuality(
        int(comm.allreduce(_cut(comm, starts, rows, parts))),
        comm.allreduce(edges),
        comm.allreduce(nodes.astype(np.int64)).reshape(shape),
    )


def _cut(comm: Any, starts: Ints, rows: Csr, parts: Parts) -> int:
    """Input edges cut, counted where the own row is the lower end (the pair stands at both ends)."""
    cut, at, more = 0, 0, True
    while more:
        end = min(at + BLOCK, len(rows.adjncy))
        own = _rows_of(rows.xadj, at, end)
        neighbours = rows.adjncy[at:end]
        lower = np.flatnonzero(neighbours > own + starts[comm.rank])
        theirs = _ask(comm, starts, neighbours[lower], parts)
        differs = parts[own[lower]] != theirs
        cut += int(rows.count[at:end][lower][differs].sum(dtype=np.int64))
        at = end
        more = messages.proceed(comm, None, at < len(rows.adjncy))
    return cut


def _rows_of(xadj: Ints, start: int, end: int) -> Ints:
    """The row of each entry start..end of adjncy."""
    first = int(np.searchsorted(xadj, start, side="right")) - 1
    last = int(np.searchsorted(xadj, end, side="left"))
    bounds = np.clip(xadj[first : last + 1], start, end)
    return np.repeat(np.arange(first, first + len(bounds) - 1), np.diff(bounds))


def _ask(comm: Any, starts: Ints, neighbours: npt.NDArray[np.int32], parts: Parts) -> Parts:
    """Parts of rows anywhere in the graph, in the order asked."""
    owners = np.searchsorted(starts[1:-1], neighbours, side="right")
    grouped, counts, order = messages.bucket(neighbours, owners, comm.size)
    wanted, senders = messages.all_to_all(comm, grouped, counts)
    answers, _ = messages.all_to_all(comm, parts[wanted - starts[comm.rank]], senders)
    found = np.empty_like(answers)
    found[order] = answers
    return found
