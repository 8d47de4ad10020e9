"""The edges of a part in bounded blocks, whatever the format that its graph is stored in."""

from collections.abc import Iterator
from dataclasses import dataclass

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
        edges: Part-local edge numbers.
    """

    src: Ints
    dst: Ints
    edges: Ints


def edge_blocks(graph: StoredGraph, layout: str | None = None) -> Iterator[EdgeBlock]:
    """The edges of a part in blocks of at most `BLOCK`, in the order of the format.

    Args:
        graph: The part's graph.
        layout: `coo`, `csr` or `csc`; None: the first of its formats.

    Raises:
        KeyError: the graph has no such format.
        FormatError: the file ends before an array does.
    """
    name = layout or next(iter(graph.formats))
    found = graph.formats[name]
    if name == "coo":
        for start, src in found["src"].blocks(BLOCK):
            dst = found["dst"].rows(start, start + len(src))
            yield EdgeBlock(src, dst, np.arange(start, start + len(src)))
        return
    indptr = found["indptr"].rows(0, len(found["indptr"]))
    for start, other in found["indices"].blocks(BLOCK):
        at = np.arange(start, start + len(other))
        row = np.searchsorted(indptr, at, side="right") - 1
        numbers = found["eids"].rows(start, start + len(other)) if len(found["eids"]) else at
        yield EdgeBlock(other, row, numbers) if name == "csc" else EdgeBlock(row, other, numbers)
