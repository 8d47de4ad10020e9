"""A chunked graph in one process: its CSR, and the assignment by a back end that is not distributed."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dglrun import cgroup
from dglrun.arrays import Ints
from dglrun.errors import DataError
from dglrun.formats.assignment import Parts
from dglrun.formats.chunked import read
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.id_map import IdMap
from dglrun.partitioning import csr, freed_memory, kaminpar, metis, random_partition, training_nodes, weights


def graph_rows(graph: ChunkedGraph) -> csr.Csr:
    """Rows of all nodes in homogeneous order (user guide 7.5).

    Raises:
        DataError: a bad edge row or an ID out of range, or too many nodes.
    """
    nodes = IdMap.of(graph.ntypes, graph.num_nodes)
    if not 0 < nodes.total < csr.MAX_NODES:
        raise DataError(f"{graph.name}: expected 1 to {csr.MAX_NODES - 1} nodes, got {nodes.total}")
    buckets, groups = csr.Buckets.of(nodes.total, 1), []
    for number, etype in enumerate(graph.etypes):
        src_type, dst_type = graph.ends(etype)
        limits = graph.num_nodes[src_type], graph.num_nodes[dst_type]
        for src, dst in read.edge_blocks(graph.edges[etype], 0, graph.num_edges[number], limits=limits):
            groups.append(_group(src + nodes.offsets[src_type], dst + nodes.offsets[dst_type], buckets))
    return csr.build(groups, buckets, nodes.total, 0)


def _group(src: Ints, dst: Ints, buckets: csr.Buckets) -> csr.Keys:
    """Both half-edges of each edge, of a self-loop one, by ascending bucket."""
    others = src != dst
    keys = np.concatenate([csr.pack(dst, src, True), csr.pack(src[others], dst[others], False)])
    codes = (keys >> np.uint64(32 + buckets.shift)).astype(np.uint16)
    return keys[np.argsort(codes, kind="stable")]


def random_parts(graph: ChunkedGraph, num_parts: int, seed: int) -> dict[str, Parts]:
    """Random parts by node type, uint16, shape (nodes of the type,); one seed gives one assignment."""
    pairs = zip(graph.ntypes, graph.num_nodes, strict=True)
    return {
        ntype: random_partition.assign(count, num_parts, (seed, kind))
        for kind, (ntype, count) in enumerate(pairs)
    }


@dataclass(frozen=True)
class _Nodes:
    """What weights are made of.

    Attributes:
        rows: Rows of all nodes.
        train: Which are training nodes, bool, shape (nodes,); None where they are not balanced.
        types: Type ID of each node, int64, shape (nodes,).
        columns: Weight column of each type, int64, shape (types,).
    """

    rows: csr.Csr
    train: training_nodes.Mask | None
    types: Ints
    columns: Ints

    @staticmethod
    def of(graph: ChunkedGraph, balance: weights.Balance) -> "_Nodes":
        """Read masks and edges; a missing mask is told before the edges are read."""
        train = training_nodes.mask(graph, 0, sum(graph.num_nodes)) if balance.train else None
        rows = graph_rows(graph)
        types = np.repeat(np.arange(len(graph.ntypes)), graph.num_nodes)
        return _Nodes(rows, train, types, weights.type_columns(graph.num_nodes, balance))


def metis_parts(
    graph: ChunkedGraph, num_parts: int, seed: int, balance: weights.Balance, imbalance: float
) -> tuple[dict[str, Parts], str]:
    """Parts by METIS; see `metis.assign`.

    Args:
        graph: The graph.
        num_parts: Parts.
        seed: Seed of METIS.
        balance: What to balance.
        imbalance: Load allowed in a part over the mean load, 1.05 for five per cent.

    Returns:
        Parts by node type, uint16, shape (nodes of the type,), and the library's name.

    Raises:
        BackendMissingError: no libmetis.
        DataError: a bad edge row, or a graph that METIS cannot count.
        BackendFailedError: METIS returned an error, or was killed.
    """
    lib = metis.load()
    nodes = _Nodes.of(graph, balance)
    loads = weights.multi(nodes.columns, nodes.types, nodes.rows.in_degree, nodes.train, balance)
    totals, largest = loads.sum(axis=0), loads.max(axis=0, initial=0)
    bounds = weights.tolerances(totals, largest, num_parts, imbalance)
    loads = weights.without_empty(loads, totals)
    parts = metis.assign(lib, nodes.rows, loads, bounds[totals > 0], num_parts, seed)
    return by_type(graph, parts), lib.name


def kaminpar_parts(
    graph: ChunkedGraph, work: Path, num_parts: int, seed: int, balance: weights.Balance, imbalance: float
) -> tuple[dict[str, Parts], str]:
    """Parts by KaMinPar, on all CPUs of the container; see `kaminpar.assign`.

    Args:
        graph: The graph.
        work: Folder that takes the rows while it runs: 8 bytes for each half-edge, 16 for each node.
        num_parts: Parts.
        seed: Seed of KaMinPar.
        balance: What to balance, as one weight for each node.
        imbalance: Weight allowed in a part over the mean weight, 1.05 for five per cent.

    Returns:
        Parts by node type, uint16, shape (nodes of the type,), and the package's name and version.

    Raises:
        BackendMissingError: it is not installed.
        DataError: a bad edge row, or too many nodes.
        BackendFailedError: it failed or was killed.
    """
    lib, nodes = kaminpar.load(), sum(graph.num_nodes)
    if num_parts == 1 or nodes <= num_parts:  # each node alone is as even as can be
        return by_type(graph, (np.arange(nodes) % num_parts).astype(np.uint16)), lib.name
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=kaminpar.PREFIX, dir=work) as folder:
        path = Path(folder, "graph.parhip")
        _write_weighted(graph, balance, path)
        freed_memory.give_back()  # its own copy is all that is needed now
        threads = max(1, int(cgroup.cpu_limit()))
        parts = kaminpar.assign(lib, path, nodes, num_parts, imbalance, threads, seed)
    return by_type(graph, parts), lib.name


def _write_weighted(graph: ChunkedGraph, balance: weights.Balance, path: Path) -> None:
    nodes = _Nodes.of(graph, balance)
    degrees, train = nodes.rows.in_degree, nodes.train
    training = 0 if train is None else int(np.count_nonzero(train))
    share = weights.training_share(len(degrees), int(degrees.sum()), training, balance)
    loads = weights.single(degrees, train, share, balance, nodes.columns[nodes.types])
    kaminpar.write(path, nodes.rows, loads[:, 0])


def by_type(graph: ChunkedGraph, parts: Parts) -> dict[str, Parts]:
    """Cut parts by node type.

    Args:
        graph: The graph.
        parts: Part of each node in homogeneous order, uint16, shape (nodes,).

    Returns:
        Views of `parts` by node type, shape (nodes of the type,).
    """
    ends = np.cumsum(graph.num_nodes)[:-1]
    return dict(zip(graph.ntypes, np.split(parts, ends), strict=True))
