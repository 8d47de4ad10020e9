"""An assignment's files, read by the ranks together: each rank the lines of its share of every file."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dglrun.arrays import Array
from dglrun.formats import assignment_shares
from dglrun.mpi.collectives import Ranks, run_on_all_ranks


class Stretch(NamedTuple):
    """A rank's contiguous stretch of the nodes of one type.

    Attributes:
        start: Original ID of its first node.
        parts: Part of each node: uint8 up to 256 parts, else uint16, shape (nodes of the stretch,).
    """

    start: int
    parts: Array


def read_stretches(
    ranks: Ranks, folder: Path, ntypes: Sequence[str], num_nodes: Sequence[int], num_parts: int
) -> list[Stretch]:
    """Read this rank's share of each `<ntype>.txt`; collective.

    Args:
        ranks: The processes.
        folder: Where the files are.
        ntypes: Names of node types.
        num_nodes: Nodes of each type.
        num_parts: Number of parts.

    Raises:
        AgreedError: a file is missing, has another number of lines, or a line is no part, on any rank.
    """
    files = [assignment_shares.assignment_file(folder, ntype) for ntype in ntypes]
    own = run_on_all_ranks(
        ranks,
        lambda: [assignment_shares.read_share(path, num_parts, ranks.rank, ranks.size) for path in files],
    )
    lines = ranks.gather([len(found) for found in own])
    totals = [sum(counts[at] for counts in lines) for at in range(len(files))]
    run_on_all_ranks(ranks, lambda: list(map(assignment_shares.check_lines, files, totals, num_nodes)))
    starts = (sum(counts[at] for counts in lines[: ranks.rank]) for at in range(len(files)))
    return list(map(Stretch, starts, own))
