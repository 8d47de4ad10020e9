"""`python -m mpi4py -m dglrun.commands.validate_parts`: each worker checks and measures its own part.

No worker has another's part. Each proves that its part is sound and is just what the assignment gives it
of the source, so together they prove that every node, edge and feature row is somewhere once.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from dglrun.commands import elapsed, flags, program
from dglrun.commands.arguments import Parser, above
from dglrun.contract import env, exitcodes
from dglrun.errors import DataError
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.dgl.folder import PartitionFolder, load_folder
from dglrun.mpi.collectives import Ranks, connect, run_on_all_ranks
from dglrun.report.measure import Quality, measure, status
from dglrun.report.table import render
from dglrun.verify import loader, serving
from dglrun.verify.keys import StableIds, read_assignment
from dglrun.verify.part import PartChecks
from dglrun.verify.source import SourceChecks

SHOWN = 5


def main(argv: list[str]) -> int:
    """Check and measure; called by every rank with the same arguments.

    Returns:
        0; 65 on every rank when any part does not hold, with the words of the first such rank.
    """
    args = _arguments(argv)
    ranks = connect(args.timeout)
    try:
        with elapsed.showing_on_first(ranks.rank, "dglrun: checking the parts"):
            run(args, ranks)
    except DataError as error:
        if ranks.rank == 0:
            print(f"dglrun: {error}", file=sys.stderr, flush=True)
        ranks.gather("the message is out")
        return error.exit_code
    return exitcodes.OK


def run(args: argparse.Namespace, ranks: Ranks) -> None:
    """Check, measure, write the numbers on rank 0; collective.

    Raises:
        DataError: on every rank, when any part is not what it must be.
    """
    start = time.monotonic()
    run_on_all_ranks(ranks, lambda: _require_place(ranks.rank))
    folder = run_on_all_ranks(ranks, lambda: load_folder(args.part_config))
    cheap = sum(ranks.gather(_size(folder, ranks.rank))) <= args.limit  # each rank reads the whole source
    wanted = args.verify == "always" or (args.verify == "auto" and cheap)
    run_on_all_ranks(ranks, lambda: _require_servable(folder, ranks.rank))
    if wanted:
        run_on_all_ranks(ranks, lambda: _verify(args, folder, ranks.rank))
    found = _add(ranks.gather(run_on_all_ranks(ranks, lambda: _measured(folder, ranks.rank))), folder)
    if ranks.rank == 0:
        args.json.write_text(json.dumps({**status(found), "verified": wanted}) + "\n")
        print(render(found), end="")
        how = "verified against the source" if wanted else "not verified (--verify always would)"
        print(f"{folder.parts} parts: {how} ({time.monotonic() - start:.1f} s)", flush=True)


def _require_place(rank: int) -> None:
    """Refuse a rank on another worker than its part's: training would look for part i on worker i."""
    index = os.environ.get(env.WORKER_INDEX)
    if index is not None and int(index) != rank:
        raise DataError(f"rank {rank} runs on worker {index}: expected rank i on worker i")


def _require_servable(folder: PartitionFolder, part: int) -> None:
    if problem := _first(serving.problems_of(folder, part)):
        raise DataError(problem)


def _verify(args: argparse.Namespace, folder: PartitionFolder, part: int) -> None:
    problem = _first(_problems(args, folder, part))
    if problem:
        raise DataError(f"the partition does not hold: {problem}")


def _problems(args: argparse.Namespace, folder: PartitionFolder, part: int) -> Iterator[str]:
    yield from PartChecks(folder, part).problems()
    graph = ChunkedGraph.load(args.in_dir)
    if sorted(graph.ntypes) != sorted(folder.ntypes) or sorted(graph.etypes) != sorted(folder.etypes):
        raise DataError(f"{args.in_dir}: has other types than {folder.path}")
    assigned = read_assignment(args.partitions_dir, graph, folder)
    keys = StableIds(folder, assigned)
    for text in SourceChecks(folder, graph, keys, assigned, parts=(part,)).problems():
        yield f"part {part}: {text}"
    if args.dgl:
        yield from loader.problems(folder, parts=(part,))


def _first(problems: Iterator[str]) -> str | None:
    """Some problems in one text, None where there is none."""
    return "; ".join(islice(problems, SHOWN)) or None


def _size(folder: PartitionFolder, part: int) -> int:
    """Bytes of a part's files."""
    root = folder.path.parent
    return sum((root / name).stat().st_size for name in folder.files[part].values())


def _measured(folder: PartitionFolder, part: int) -> tuple[Any, Any, Any]:
    found = measure(folder, parts=(part,))
    return found.cut, found.halo, found.train


def _add(counts: list[tuple[Any, Any, Any]], folder: PartitionFolder) -> Quality:
    """The counts of all parts, each rank's own rows being the only ones that it has filled."""
    cut, halo = (sum(found[at] for found in counts) for at in (0, 1))
    masks = [found[2] for found in counts if found[2] is not None]
    return replace(measure(folder, parts=()), cut=cut, halo=halo, train=sum(masks) if masks else None)


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = Parser("dglrun.commands.validate_parts", description="Internal: check the part of this worker.")
    parser.add_argument("part_config", type=Path)
    parser.add_argument("--in-dir", type=flags.folder, required=True)
    parser.add_argument("--partitions-dir", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--verify", choices=("auto", "always", "never"), required=True)
    parser.add_argument("--limit", type=int, required=True)
    parser.add_argument("--dgl", action="store_true", help="ask DGL's own loader too")
    parser.add_argument(
        "--timeout", type=above(0), default=86400.0, help="seconds that a rank waits for others"
    )
    return parser.read(argv)


if __name__ == "__main__":
    sys.exit(program.internal(main))
