"""Each rank reads its share of the edges and gets the rows (CSR) of its own nodes.

The edges of all types, one after another, are cut into equal ranges of rows, whatever files they lie in;
csv files are counted by one rank each. Half-edges travel in blocks to the owners of their nodes.
"""

from collections.abc import Iterator

import numpy as np

from dglrun.arrays import Ints, group_by, share
from dglrun.formats.chunked import read
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.chunked.row_index import Index
from dglrun.formats.id_map import IdMap
from dglrun.mpi.collectives import Ranks, in_rounds
from dglrun.mpi.exchange import all_to_all, rows_at_once
from dglrun.mpi.shared_index import index_tables
from dglrun.partitioning import csr
from dglrun.partitioning.distributed.vertex_distribution import CyclicDistribution

NO_EDGES = (np.zeros(0, np.int64), np.zeros(0, np.int64))


def edges(
    graph: ChunkedGraph, index: Index, start: int, stop: int, block_rows: int
) -> Iterator[tuple[Ints, Ints]]:
    """The edges start..stop of all edge types together, in blocks.

    Args:
        graph: The graph.
        index: The edge files' index.
        start: First edge, its homogeneous number (user guide 7.5).
        stop: Edge after the last one.
        block_rows: Edges in a block at most.

    Yields:
        Homogeneous IDs of the sources and of the destinations; each int64, shape (edges of the block,).

    Raises:
        DataError: a bad row or an ID out of range; names file and line.
    """
    nodes, numbers = (
        IdMap.of(graph.ntypes, graph.num_nodes),
        IdMap.of(graph.etypes, graph.num_edges),
    )
    for kind, low, high in numbers.ranges(start, stop):
        etype = graph.etypes[kind]
        ends = graph.ends(etype)
        limits = graph.num_nodes[ends[0]], graph.num_nodes[ends[1]]
        spec, files = graph.edges[etype], index[graph.edges[etype]]
        for src, dst in read.edge_blocks(spec, low, high, block_rows, limits=limits, files=files):
            yield src + nodes.offsets[ends[0]], dst + nodes.offsets[ends[1]]


def rows(ranks: Ranks, graph: ChunkedGraph, nodes: CyclicDistribution, block_rows: int) -> csr.Csr:
    """Read, exchange and merge: the rows of this rank's nodes.

    Peak memory is about 16 bytes for each half-edge of the rank, plus some blocks.

    Args:
        ranks: All ranks.
        graph: The graph.
        nodes: Which rank owns which node.
        block_rows: Edges read and exchanged at once, at most; fewer where the share is small.

    Raises:
        AgreedError: bad input on any rank.
    """
    index = index_tables(ranks, graph.edge_tables(), is_one_share=True)
    start, stop = share(sum(graph.num_edges), ranks.rank, ranks.size)
    blocks = edges(graph, index, start, stop, rows_at_once(stop - start, block_rows))
    buckets = csr.Buckets.of(nodes.nodes, nodes.owners)
    found: list[csr.Keys] = []
    for block in in_rounds(ranks, blocks, NO_EDGES):
        found += _exchange(ranks, _half_edges(block, nodes, buckets), buckets)
    first = int(nodes.starts[ranks.rank]) if ranks.rank < nodes.owners else 0
    return csr.build(found, buckets, nodes.size(ranks.rank), first)


def _half_edges(
    block: tuple[Ints, Ints], nodes: CyclicDistribution, buckets: csr.Buckets
) -> tuple[csr.Keys, Ints]:
    """Keys of a block's half-edges, each with owner and bucket as one code; a self-loop is one half-edge."""
    src, dst = block
    starts = nodes.starts
    src_owner, src_local = nodes.locate(src)
    dst_owner, dst_local = nodes.locate(dst)
    src_row, dst_row = starts[src_owner] + src_local, starts[dst_owner] + dst_local
    keys = [csr.pack(dst_local, src_row, True), csr.pack(src_local, dst_row, False)]
    codes = [
        owner * buckets.number + (local >> buckets.shift)
        for owner, local in ((dst_owner, dst_local), (src_owner, src_local))
    ]
    if len(loops := np.flatnonzero(src == dst)):
        keys[1], codes[1] = np.delete(keys[1], loops), np.delete(codes[1], loops)
    return np.concatenate(keys), np.concatenate(codes)


def _exchange(ranks: Ranks, half_edges: tuple[csr.Keys, Ints], buckets: csr.Buckets) -> list[csr.Keys]:
    """Send half-edges to their owners; a group from each sender, by ascending bucket."""
    keys, codes = half_edges
    groups = group_by(codes, ranks.size * buckets.number)
    counts = groups.counts.reshape(ranks.size, -1).sum(axis=1)
    received, senders = all_to_all(ranks, keys[groups.rows], counts)
    return np.split(received, np.cumsum(senders)[:-1])
