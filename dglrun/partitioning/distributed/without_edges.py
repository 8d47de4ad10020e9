"""Assignments that need no edges, made or read by all ranks: at random, and one that the user brings."""

from pathlib import Path

import numpy as np

from dglrun.arrays import share
from dglrun.formats.assignment import Parts
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.id_map import IdMap
from dglrun.mpi.collectives import Ranks
from dglrun.mpi.shared_assignment import read_stretches
from dglrun.partitioning import random_partition
from dglrun.partitioning.distributed.vertex_distribution import CyclicDistribution, to_owners


def random_parts(
    ranks: Ranks, graph: ChunkedGraph, nodes: CyclicDistribution, num_parts: int, seed: int
) -> Parts:
    """Each part gets its share of each type; collective. The same as in one process with this seed.

    Args:
        ranks: All ranks.
        graph: The graph.
        nodes: Which rank owns which node.
        num_parts: Parts.
        seed: Seed.

    Returns:
        Part of each of this rank's nodes, uint16, shape (nodes.size(rank),).
    """
    start, stop = share(nodes.nodes, ranks.rank, ranks.size)
    ranges = IdMap.of(graph.ntypes, graph.num_nodes).ranges(start, stop)
    found = [
        random_partition.assign(graph.num_nodes[kind], num_parts, (seed, kind), low, high)
        for kind, low, high in ranges
    ]
    return to_owners(ranks, nodes, start, np.concatenate([np.zeros(0, np.uint16), *found]))


def brought(
    ranks: Ranks, graph: ChunkedGraph, nodes: CyclicDistribution, num_parts: int, folder: Path
) -> Parts:
    """The user's own `<ntype>.txt`, each rank its share of every file; collective.

    Args:
        ranks: All ranks.
        graph: The graph.
        nodes: Which rank owns which node.
        num_parts: Parts.
        folder: The user's folder, which every rank sees under this path.

    Returns:
        Part of each of this rank's nodes, uint16, shape (nodes.size(rank),).

    Raises:
        AgreedError: a file is missing, has another number of lines, or a line is no part, on any rank.
    """
    found, first = [], 0
    for ntype, count in zip(graph.ntypes, graph.num_nodes, strict=True):
        (lines,) = read_stretches(ranks, folder, [ntype], [count], num_parts)
        parts = lines.parts.astype(np.uint16, copy=False)
        found.append(to_owners(ranks, nodes, first + lines.start, parts))
        first += count
    return np.concatenate(found)
