"""Each rank reads its share of the edges and gets the rows (CSR) of its own nodes.

The edges of all types, one after another, are cut into equal ranges of rows, whatever files they lie in;
csv files are counted by one rank each. Half-edges travel in blocks to the owners of their nodes.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dglrun.arrays import Ints
from dglrun.errors import DataError
from dglrun.formats.chunked import read
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.chunked.row_index import RowIndex
from dglrun.formats.id_map import IdMap
from dglrun.mpi import messages
from dglrun.partitioning import csr
from dglrun.partitioning.distributed.vertex_distribution import CyclicDistribution

Index = Mapping[str, tuple[RowIndex, ...]]


def share_index(comm: Any, graph: ChunkedGraph) -> Index:
    """Index the edge files, each by one rank, and compare the rows with the metadata.

    Raises:
        AgreedError: a file is unreadable, or an edge type has another number of rows.
    """
    files = [(etype, path) for etype in graph.etypes for path in graph.edges[etype].paths]
    mine = files[comm.rank :: comm.size]
    every = comm.allgather(
        messages.run_on_all_ranks(
            comm, lambda: [read.index_file(path, graph.edges[etype]) for etype, path in mine]
        )
    )
    rows = [every[at % comm.size][at // comm.size] for at in range(len(files))]
    index = {
        etype: tuple(row for (owner, _), row in zip(files, rows, strict=True) if owner == etype)
        for etype in graph.etypes
    }
    messages.run_on_all_ranks(comm, lambda: _check(graph, index))
    return index


def _check(graph: ChunkedGraph, index: Index) -> None:
    for etype in graph.etypes:
        got, wanted = sum(found.rows for found in index[etype]), graph.edge_count(etype)
        if got != wanted:
            raise DataError(f"edges of {etype}: the metadata says {wanted} rows, the files have {got}")


def share(total: int, rank: int, size: int) -> tuple[int, int]:
    """First and end of a rank's range of `total` things."""
    return total * rank // size, total * (rank + 1) // size


def edges(
    graph: ChunkedGraph, index: Index, start: int, stop: int, block_rows: int
) -> Iterator[tuple[Ints, Ints]]:
    """Homogeneous (sources, destinations) of the rows start..stop of all edge types together.

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
        spec, files = graph.edges[etype], index[etype]
        for src, dst in read.edge_blocks(spec, low, high, block_rows, limits=limits, files=files):
            yield src + nodes.offsets[ends[0]], dst + nodes.offsets[ends[1]]


def rows(comm: Any, graph: ChunkedGraph, nodes: CyclicDistribution, block_rows: int) -> csr.Csr:
    """Read, exchange and merge: the rows of this rank's nodes.

    Peak memory is about 16 bytes for each half-edge of the rank, plus some blocks.

    Args:
        comm: All ranks.
        graph: The graph.
        nodes: Which rank owns which node.
        block_rows: Edges read and exchanged at once.

    Raises:
        AgreedError: bad input on any rank.
    """
    index = share_index(comm, graph)
    start, stop = share(sum(graph.num_edges), comm.rank, comm.size)
    source = edges(graph, index, start, stop, block_rows)
    buckets = csr.Buckets.of(nodes.nodes, nodes.owners)
    found: list[csr.Keys] = []
    while True:
        block, error = _next(source)
        if not messages.proceed(comm, error, block is not None):
            break
        found += _exchange(comm, _half_edges(block, nodes, buckets), buckets)
    first = int(nodes.starts[comm.rank]) if comm.rank < nodes.owners else 0
    return csr.build(found, buckets, nodes.size(comm.rank), first)


def _next(
    source: Iterator[tuple[Ints, Ints]],
) -> tuple[tuple[Ints, Ints] | None, DataError | None]:
    try:
        return next(source, None), None
    except DataError as error:
        return None, error


def _half_edges(
    block: tuple[Ints, Ints] | None, nodes: CyclicDistribution, buckets: csr.Buckets
) -> tuple[csr.Keys, Ints]:
    """Keys of a block's half-edges, each with owner and bucket as one code; a self-loop is one half-edge."""
    if block is None:
        return np.zeros(0, np.uint64), np.zeros(0, np.int64)
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


def _exchange(comm: Any, half_edges: tuple[csr.Keys, Ints], buckets: csr.Buckets) -> list[csr.Keys]:
    """Send half-edges to their owners; a group from each sender, by ascending bucket."""
    keys, codes = half_edges
    grouped, counts, _ = messages.bucket(keys, codes, comm.size * buckets.number)
    received, senders = messages.all_to_all(comm, grouped, counts.reshape(comm.size, -1).sum(axis=1))
    return np.split(received, np.cumsum(senders)[:-1])
