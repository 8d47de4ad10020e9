"""CSC and CSR of a part, sorted in slices of rows so that memory stays a fraction of the edges."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dglrun.arrays import Array, Ints
from dglrun.formats.dgl.arrays import ArrayFile

SLICE = 4 << 20
"""Edges sorted at once, at least."""
_SLICES = 16


@dataclass(frozen=True)
class Side:
    """One end of every edge.

    Attributes:
        runs: Arrays of node numbers in edge order: int32 or int64, shape (edges of the run,) each.
        first: What to subtract to get part-local numbers.
    """

    runs: Sequence[Array]
    first: int

    @property
    def edges(self) -> int:
        """Number of edges."""
        return sum(map(len, self.runs))


def put(file: ArrayFile, name: str, rows: Side, columns: Side, nodes: int) -> None:
    """Write indptr, indices and eids of one compressed format.

    They are int64, of shapes (nodes + 1,), (edges,) and (edges,). Inside a row the edges keep their order, so
    they are sorted by edge type (DGL's `etype_sorted`).

    Args:
        file: The graph file.
        name: `csc` (rows are destinations) or `csr` (rows are sources).
        rows: The end by which edges are grouped.
        columns: The other end, in runs of the same lengths.
        nodes: Nodes of the part, halo included.
    """
    indptr = np.zeros(nodes + 1, np.int64)
    for run in _merged(rows.runs, max(SLICE, nodes)):
        indptr[1:] += np.bincount(run - rows.first, minlength=nodes)
    np.cumsum(indptr, out=indptr)
    file.put(f"{name}/indptr", 0, indptr)
    for low, high in _slices(indptr, max(SLICE, rows.edges // _SLICES)):
        keys, values, edges = _select(rows, columns, low, high)
        order = sort_order(keys)
        file.put(f"{name}/indices", int(indptr[low]), values[order])
        file.put(f"{name}/eids", int(indptr[low]), edges[order])


def _merged(runs: Sequence[Array], least: int) -> Iterator[Array]:
    """Join short runs, as each count walks over all nodes."""
    held: list[Array] = []
    for run in runs:
        held.append(run)
        if sum(map(len, held)) >= least:
            yield np.concatenate(held)
            held = []
    if held:
        yield np.concatenate(held)


def _slices(indptr: Ints, edges: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows with about `edges` edges each, at least one row."""
    low, last = 0, len(indptr) - 1
    while low < last:
        high = int(np.searchsorted(indptr, indptr[low] + edges, side="right")) - 1
        high = min(max(high, low + 1), last)
        yield low, high
        low = high


def _select(rows: Side, columns: Side, low: int, high: int) -> tuple[Array, Array, Ints]:
    """Row (counted from `low`), column and number of the edges with rows `low` to `high`."""
    keys, values, edges, first = [], [], [], 0
    for row, column in zip(rows.runs, columns.runs, strict=True):
        local = row - (rows.first + low)
        inside = np.flatnonzero((local >= 0) & (local < high - low))
        keys.append(local[inside])
        values.append(column[inside] - columns.first)
        edges.append(inside + first)
        first += len(row)
    if not keys:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    return np.concatenate(keys), np.concatenate(values), np.concatenate(edges)


def sort_order(keys: Array) -> Ints:
    """Stable order of integers, 16 bits at a time (each pass is linear).

    Args:
        keys: int32 or int64, shape (rows,), from 0 to 2**48 - 1.

    Returns:
        Row numbers in ascending order of their keys, int64, shape (rows,).
    """
    order = np.argsort((keys & 0xFFFF).astype(np.uint16), kind="stable")
    shift, top = 16, int(keys.max(initial=0))
    while top >> shift:
        digits = (keys >> shift & 0xFFFF).astype(np.uint16)
        order = order[np.argsort(digits[order], kind="stable")]
        shift += 16
    return order
