"""Back end pm_dglpart: the program of ParMETIS's dgl branch, where the user's image has it on PATH.

Two programs bear the name. One takes `<stem> <parts per rank>` and writes `p<part>-...` files, the other
`<stem> <parts> <node list> <edge list>` and writes `<stem>_part.<P>`; given the other's arguments each
prints its usage and exits with 0. So the outcome is judged by the files, never by the exit code alone.
"""

import shutil
import tempfile
from pathlib import Path

from dglrun.errors import BackendFailedError, BackendMissingError, DataError
from dglrun.formats.assignment import Parts
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.output_folder import HIDDEN
from dglrun.formats.parmetis import pm_dglpart_output, to_parmetis
from dglrun.mpi import mpirun
from dglrun.partitioning import PROGRAM

STEM = "graph"
PREFIX = f"{HIDDEN}pm_dglpart-"
"""Of the working folder's name: hidden, so that what a killed run leaves in --out-dir is no user's file."""


def find() -> str:
    """The program's path.

    Raises:
        BackendMissingError: it is not on PATH.
    """
    path = shutil.which(PROGRAM)
    if path is None:
        raise BackendMissingError(
            "back end pm_dglpart: the program is not on PATH. It is part of ParMETIS's dgl branch, whose "
            "licence does not allow us to ship it; free alternatives: --backend zoltan, --backend kaminpar"
        )
    return path


def partition(
    graph: ChunkedGraph, work: Path, num_parts: int, ranks: int, by_degree: bool, deadline: float
) -> tuple[int, dict[str, Parts]]:
    """Write the text, run the program, read the parts (user guide 7.4, "Parallel METIS partitioning").

    Args:
        graph: The graph.
        work: Folder in which one of our own is made for the text and the program's temporary files, and
            removed afterwards.
        num_parts: Parts, a multiple of the ranks for the first form.
        ranks: Processes.
        by_degree: Weigh nodes by 1 + in-degree.
        deadline: Seconds for each mpirun.

    Returns:
        mpirun's exit code, and the parts by node type, uint16, shape (nodes of the type,); none if the code
        is not 0.

    Raises:
        DataError: bad input.
        BackendMissingError: no such program.
        BackendFailedError: it ended well without a result.
    """
    program = find()
    mpirun.require(package=None)
    ranks = max(each for each in range(1, ranks + 1) if num_parts % each == 0)
    work.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=PREFIX, dir=work))
    try:
        to_parmetis.to_text(graph, work, STEM, by_degree)
        code = _run((program, STEM, str(num_parts // ranks)), ranks, work, deadline)
        if code == 0 and not list(work.glob(f"p*-{STEM}_nodes.txt")):
            to_parmetis.to_lists(graph, work, STEM, ranks, by_degree)
            lists = (f"{STEM}_nfiles.txt", f"{STEM}_efiles.txt")
            code = _run((program, STEM, str(num_parts), *lists), ranks, work, deadline)
        return code, _result(graph, work, num_parts) if code == 0 else {}
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run(program: tuple[str, ...], ranks: int, work: Path, deadline: float) -> int:
    job = mpirun.Job(program, ranks, cwd=str(work.absolute()))
    return mpirun.run(mpirun.argv(job), deadline)


def _result(graph: ChunkedGraph, work: Path, num_parts: int) -> dict[str, Parts]:
    part_file = work / f"{STEM}_part.{num_parts}"
    try:
        if part_file.is_file():
            return pm_dglpart_output.from_part_file(graph, part_file, num_parts)
        return pm_dglpart_output.from_pieces(graph, work, STEM, num_parts)
    except DataError as error:
        raise BackendFailedError(f"pm_dglpart ended with 0 but left no whole result: {error}") from None
