"""Bring the parts back into the order of the nodes and write `<ntype>.txt`.

In rounds every rank gets a stretch of all parts (two bytes a node). Ranks that see one folder share the
writing; where folders are not shared (worker pods with own disks) each folder gets the whole assignment.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dglrun.formats import assignment
from dglrun.formats.assignment import AssignmentMeta, Parts
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.id_map import IdMap
from dglrun.mpi.collectives import MpiRanks
from dglrun.partitioning.distributed.vertex_distribution import CyclicDistribution

ROUND = 1 << 20
"""Nodes of each rank in one round."""


def stretches(ranks: MpiRanks, nodes: CyclicDistribution, parts: Parts) -> Iterator[tuple[int, Parts]]:
    """First homogeneous ID and parts of successive stretches of all nodes; collective."""
    longest = nodes.size(0)
    for at in range(0, longest, ROUND):
        length = min(ROUND, longest - at)
        mine = np.zeros(length, np.uint16)
        found = parts[at : at + length]
        mine[: len(found)] = found
        every = ranks.concatenate(mine, [length] * ranks.size).reshape(ranks.size, length)
        first = at * nodes.owners
        yield first, every[: nodes.owners].T.ravel()[: nodes.nodes - first]


def groups(ranks: MpiRanks, folder: Path) -> tuple[MpiRanks, int]:
    """The ranks that see this rank's folder, and the number of the first of them; collective."""
    folder.mkdir(parents=True, exist_ok=True)
    token = folder / f".rank-{ranks.rank}"
    token.write_bytes(b"")
    ranks.gather("every token is there")
    seen = [rank for rank in range(ranks.size) if (folder / f".rank-{rank}").exists()]
    ranks.gather("every rank has looked")
    token.unlink()
    return ranks.split(min(seen)), min(seen)


def write(
    ranks: MpiRanks,
    folder: Path,
    graph: ChunkedGraph,
    nodes: CyclicDistribution,
    parts: Parts,
    meta: AssignmentMeta,
) -> None:
    """Write the assignment; collective.

    Args:
        ranks: All ranks.
        folder: The assignment's folder, as each rank sees it.
        graph: The graph.
        nodes: Which rank owns which node.
        parts: Part of each of this rank's nodes.
        meta: The metadata, the same on every rank.
    """
    group, first_rank = groups(ranks, folder)
    drafts = {ntype: folder / f"{ntype}.txt.partial-{first_rank}" for ntype in graph.ntypes}
    if group.rank == 0:
        for draft in drafts.values():
            draft.write_bytes(b"")
    group.gather("the drafts are there")
    numbers = IdMap.of(graph.ntypes, graph.num_nodes)
    ends, widths = [0] * len(graph.ntypes), np.array([len(str(p)) + 1 for p in range(meta.num_parts)])
    for turn, (first, found) in enumerate(stretches(ranks, nodes, parts)):
        for kind, low, high in numbers.ranges(first, first + len(found)):
            start = low + int(numbers.offsets[kind]) - first
            mine = found[start : start + high - low]
            if turn % group.size == group.rank:
                _write_at(drafts[graph.ntypes[kind]], ends[kind], assignment.lines(mine, meta.num_parts))
            ends[kind] += int(widths[mine].sum())
    group.gather("the drafts are whole")
    if group.rank == 0:
        assignment.publish(folder, drafts, meta)
    ranks.gather("the assignment is published")


def _write_at(path: Path, offset: int, text: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
