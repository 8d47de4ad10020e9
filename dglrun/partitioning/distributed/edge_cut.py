"""Edge cut and loads of a distributed assignment: each rank asks the owners for the parts of nodes."""

import numpy as np

from dglrun.arrays import Ints, share
from dglrun.formats.assignment import Parts
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.id_map import IdMap
from dglrun.mpi.collectives import Ranks, add_up, in_rounds
from dglrun.mpi.exchange import ask_owners, rows_at_once
from dglrun.mpi.shared_index import index_tables
from dglrun.partitioning.csr import Csr
from dglrun.partitioning.distributed import distributed_csr
from dglrun.partitioning.distributed.vertex_distribution import CyclicDistribution
from dglrun.partitioning.partition_quality import PartitionQuality

BLOCK = 1 << 20
"""Half-edges asked about at once, at most."""


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
    edges = np.bincount(parts, weights=rows.in_degree, minlength=shape[1]).astype(np.int64)
    return _added(ranks, _cut(ranks, starts, rows, parts), edges, types, parts, shape)


def measure_by_input(
    ranks: Ranks,
    graph: ChunkedGraph,
    nodes: CyclicDistribution,
    parts: Parts,
    num_parts: int,
    block_rows: int,
) -> PartitionQuality:
    """Score an assignment without the graph's rows: each rank reads its share of the edges; collective.

    Args:
        ranks: All ranks.
        graph: The graph.
        nodes: Which rank owns which node.
        parts: Part of each of this rank's nodes, uint16, shape (nodes.size(rank),).
        num_parts: Parts.
        block_rows: Edges read and asked about at once, at most; fewer where the share is small.

    Raises:
        AgreedError: a bad edge row or an ID out of range, on any rank.
    """
    index = index_tables(ranks, graph.edge_tables(), is_one_share=True)
    start, stop = share(sum(graph.num_edges), ranks.rank, ranks.size)
    blocks = distributed_csr.edges(graph, index, start, stop, rows_at_once(stop - start, block_rows))
    edges, cut = np.zeros(num_parts, np.int64), 0
    for src, dst in in_rounds(ranks, blocks, distributed_csr.NO_EDGES):
        owners, local = nodes.locate(np.concatenate([src, dst]))
        theirs = ask_owners(ranks, owners, local, lambda wanted: parts[wanted])
        cut += int(np.count_nonzero(theirs[: len(src)] != theirs[len(src) :]))
        edges += np.bincount(theirs[len(src) :], minlength=num_parts)
    types = IdMap.of(graph.ntypes, graph.num_nodes).to_typed(nodes.ids(ranks.rank))[0]
    return _added(ranks, cut, edges, types, parts, (len(graph.ntypes), num_parts))


def _added(
    ranks: Ranks, cut: int, edges: Ints, types: Ints, parts: Parts, shape: tuple[int, int]
) -> PartitionQuality:
    """The sum of what the ranks have counted; collective."""
    num_types, num_parts = shape
    nodes = np.bincount(types * num_parts + parts, minlength=num_types * num_parts)
    return PartitionQuality(
        sum(ranks.gather(cut)),
        add_up(ranks, edges),
        add_up(ranks, nodes).reshape(shape),
    )


def _cut(ranks: Ranks, starts: Ints, rows: Csr, parts: Parts) -> int:
    """Input edges cut, counted where the own row is the lower end (the pair stands at both ends)."""
    cut, length = 0, len(rows.adjncy)
    first, step = int(starts[ranks.rank]), rows_at_once(length, BLOCK)
    blocks = ((at, min(at + step, length)) for at in range(0, length, step))
    for at, end in in_rounds(ranks, blocks, (length, length)):
        own = _rows_of(rows.xadj, at, end)
        neighbours = rows.adjncy[at:end]
        lower = np.flatnonzero(neighbours > own + first)
        owners = np.searchsorted(starts[1:-1], neighbours[lower], side="right")
        theirs = ask_owners(ranks, owners, neighbours[lower], lambda wanted: parts[wanted - first])
        differs = parts[own[lower]] != theirs
        cut += int(rows.count[at:end][lower][differs].sum(dtype=np.int64))
    return cut


def _rows_of(xadj: Ints, start: int, end: int) -> Ints:
    """The row of each entry start..end of adjncy."""
    first = int(np.searchsorted(xadj, start, side="right")) - 1
    last = int(np.searchsorted(xadj, end, side="left"))
    bounds = np.clip(xadj[first : last + 1], start, end)
    return np.repeat(np.arange(first, first + len(bounds) - 1), np.diff(bounds))
