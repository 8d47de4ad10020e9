"""Bring the parts back into the order of the nodes and write `<ntype>.txt`.

In rounds every rank gets a stretch of all parts (two bytes a node). Ranks that see one folder share the
writing; where folders are not shared (worker pods with own disks) each folder gets the whole assignment.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from dglrun.formats import assignment, output_folder
from dglrun.formats.assignment import AssignmentMeta, Parts
from dglrun.formats.assignment_shares import assignment_file
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.id_map import IdMap
from dglrun.mpi.collectives import MpiRanks, run_on_all_ranks
from dglrun.mpi.exchange import ROUND_BYTES, rows_at_once
from dglrun.mpi.shared_folder import Members
from dglrun.partitioning.distributed.vertex_distribution import CyclicDistribution


def stretches(ranks: MpiRanks, nodes: CyclicDistribution, parts: Parts) -> Iterator[tuple[int, Parts]]:
    """The parts of all nodes in homogeneous order (user guide 7.5), stretch after stretch; collective.

    Args:
        ranks: All ranks.
        nodes: Which rank owns which node.
        parts: Part of each of this rank's nodes, uint16, shape (nodes.size(rank),).

    Yields:
        The first homogeneous ID of a stretch and the part of each of its nodes, uint16, shape (nodes of the
        stretch,), at most `ROUND_BYTES` together.
    """
    longest = nodes.size(0)
    # All ranks' rows of a stretch together are a part of one rank's share.
    rows = max(1, rows_at_once(longest, ROUND_BYTES // 2) // ranks.size)
    for at in range(0, longest, rows):
        length = min(rows, longest - at)
        mine = np.zeros(length, np.uint16)
        found = parts[at : at + length]
        mine[: len(found)] = found
        every = ranks.concatenate(mine, [length] * ranks.size).reshape(ranks.size, length)
        first = at * nodes.owners
        yield first, every[: nodes.owners].T.ravel()[: nodes.nodes - first]


def write(
    ranks: MpiRanks,
    folder: Path,
    graph: ChunkedGraph,
    nodes: CyclicDistribution,
    parts: Parts,
    meta: AssignmentMeta,
    members: Members,
) -> None:
    """Write the assignment; collective.

    Args:
        ranks: All ranks.
        folder: The assignment's folder, as each rank sees it, locked.
        graph: The graph.
        nodes: Which rank owns which node.
        parts: Part of each of this rank's nodes, uint16, shape (nodes.size(rank),).
        meta: The metadata, the same on every rank.
        members: The ranks that see this rank's folder.

    Raises:
        AgreedError: some rank's folder holds files that are not ours, or another run is writing there.
    """
    group = ranks.split(members.first)
    with ExitStack() as stack:

        def begin() -> None:
            if group.rank == 0:
                stack.enter_context(assignment.publishing(folder, graph.ntypes, meta))

        run_on_all_ranks(ranks, begin)
        _write_stretches(ranks, group, output_folder.draft_of(folder), graph, nodes, parts, meta.num_parts)
        group.gather("the drafts are whole")
    ranks.gather("the assignment is published")


def _write_stretches(
    ranks: MpiRanks,
    group: MpiRanks,
    folder: Path,
    graph: ChunkedGraph,
    nodes: CyclicDistribution,
    parts: Parts,
    num_parts: int,
) -> None:
    """Fill the files of a folder, each rank of its group in its turn; collective."""
    files = [assignment_file(folder, ntype) for ntype in graph.ntypes]
    numbers = IdMap.of(graph.ntypes, graph.num_nodes)
    ends, widths = [0] * len(graph.ntypes), np.array([len(str(p)) + 1 for p in range(num_parts)])
    for turn, (first, found) in enumerate(stretches(ranks, nodes, parts)):
        for kind, low, high in numbers.ranges(first, first + len(found)):
            start = low + int(numbers.offsets[kind]) - first
            mine = found[start : start + high - low]
            if turn % group.size == group.rank:
                _write_at(files[kind], ends[kind], assignment.lines(mine, num_parts))
            ends[kind] += int(widths[mine].sum())


def _write_at(path: Path, offset: int, text: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
