"""The edges of a part in bounded blocks, whatever the format that its graph is stored in."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from dglrun.arrays import Ints
from dglrun.formats.dgl.graphs import StoredGraph

BLOCK = 1 << 20


@dataclass(frozen=True)
class EdgeBlock:
    """Some edges of a part; all arrays have shape (edges,) and are int64 in the files that dglrun writes.

    Attributes:
        src: Part-local numbers of the sources.
        dst: Part-local numbers of the destinations.
        numbers: Part-local edge numbers; a range where they count up.
    """

    src: Ints
    dst: Ints
    numbers: Ints | range

    @cached_property
    def edges(self) -> Ints:
        """Part-local edge numbers, shape (edges,)."""
        if isinstance(self.numbers, range):
            return np.arange(self.numbers.start, self.numbers.stop)
        return self.numbers

    def cut(self, inner_nodes: int, ends: Ints) -> Ints:
        """Count the inner edges whose source is a halo node.

        Args:
            inner_nodes: Inner nodes of the part.
            ends: By edge type: the number after that of its last inner edge, int64, shape (types,).

        Returns:
            By edge type: int64, shape (types,).
        """
        cut = self.src >= inner_nodes
        if isinstance(self.numbers, range):  # those of each type are neighbours
            stops = (ends - self.numbers.start).clip(0, len(cut)).tolist()
            return np.array([np.count_nonzero(cut[low:high]) for low, high in pairwise((0, *stops))])
        types = np.searchsorted(ends, self.numbers[cut], side="right")  # of halo edges: their number
        return np.bincount(types, minlength=len(ends))[: len(ends)]


def edge_blocks(
    graph: StoredGraph, layout: str | None = None, block_rows: int = BLOCK
) -> Iterator[EdgeBlock]:
    """The edges of a part in blocks, in the order of the format.

    Args:
        graph: The part's graph.
        layout: `coo`, `csr` or `csc`; None: the first of its formats.
        block_rows: Edges in a block at most.

    Raises:
        KeyError: the graph has no such format.
        FormatError: the file ends before an array does.
    """
    name = layout or next(iter(graph.formats))
    found = graph.formats[name]
    if name == "coo":
        yield from _coo_blocks(graph, 0, len(found["src"]), block_rows)
        return
    indptr = found["indptr"].rows(0, len(found["indptr"]))
    for start, other in found["indices"].blocks(block_rows):
        at = np.arange(start, start + len(other))
        row = np.searchsorted(indptr, at, side="right") - 1
        numbers = found["eids"].rows(start, start + len(other)) if len(found["eids"]) else at
        yield EdgeBlock(other, row, numbers) if name == "csc" else EdgeBlock(row, other, numbers)


def edge_blocks_between(
    graph: StoredGraph, start: int, stop: int, block_rows: int = BLOCK
) -> Iterator[EdgeBlock]:
    """The edges with the numbers `start` to `stop` (exclusive), in the order of the first format.

    Raises:
        FormatError: the file ends before an array does.
    """
    if next(iter(graph.formats)) == "coo":
        yield from _coo_blocks(graph, start, stop, block_rows)
        return
    for block in edge_blocks(graph, block_rows=block_rows):
        inside = (block.edges >= start) & (block.edges < stop)
        yield EdgeBlock(block.src[inside], block.dst[inside], block.edges[inside])


def _coo_blocks(graph: StoredGraph, start: int, stop: int, block_rows: int) -> Iterator[EdgeBlock]:
    """In coo the number of an edge is its row."""
    src, dst = (graph.formats["coo"][end] for end in ("src", "dst"))
    last = min(stop, len(src))
    for at in range(start, last, block_rows):
        upto = min(at + block_rows, last)
        yield EdgeBlock(src.rows(at, upto), dst.rows(at, upto), range(at, upto))
