"""Edges that leave a part: DGL's partition_graph stores them in the part of their source, too."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dglrun.arrays import Array, group_by
from dglrun.dispatch.edges import EdgeRun
from dglrun.formats.dgl.partition_book import Ranges


class HaloEdges(NamedTuple):
    """Edges from a part's own nodes to others', by ascending ID; all arrays have shape (edges,).

    Attributes:
        src: Shuffle-global IDs of the sources, int32 or int64, as `Ranges.dtype` of the nodes says.
        dst: Those of the destinations; same dtype.
        ids: Shuffle-global IDs of the edges, int32 or int64, as `Ranges.dtype` of the edges says.
    """

    src: Array
    dst: Array
    ids: Array


def leaving(
    chunks: Mapping[int, Sequence[Sequence[EdgeRun]]], nodes: Ranges, edges: Ranges
) -> list[HaloEdges]:
    """The halo edges of each part.

    Args:
        chunks: By part and edge type: runs of edges as `Edges.chunks`, of all parts.
        nodes: Ranges of all nodes.
        edges: Ranges of all edges.
    """
    found = [_crossing(part, chunks[part], nodes, edges) for part in range(nodes.parts)]
    columns = [np.concatenate([each[at] for each in found]) for at in range(3)]
    del found
    order = group_by(nodes.parts_of(columns[0]), nodes.parts)
    src, dst, ids = (np.split(column[order.rows], np.cumsum(order.counts)[:-1]) for column in columns)
    return [HaloEdges(*each) for each in zip(src, dst, ids, strict=True)]


def _crossing(part: int, chunks: Sequence[Sequence[EdgeRun]], nodes: Ranges, edges: Ranges) -> HaloEdges:
    """The edges of a part whose sources are other parts' nodes."""
    first, end = nodes.bounds(part)
    none = HaloEdges(np.empty(0, nodes.dtype), np.empty(0, nodes.dtype), np.empty(0, edges.dtype))
    found, following = [none], edges.bounds(part)[0]
    for run in (run for runs in chunks for run in runs):
        rows = np.flatnonzero((run.src < first) | (run.src >= end))
        found.append(HaloEdges(run.src[rows], run.dst[rows], (rows + following).astype(edges.dtype)))
        following += len(run.src)
    return HaloEdges(*(np.concatenate(column) for column in zip(*found, strict=True)))
