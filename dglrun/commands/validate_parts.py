"""`python -m mpi4py -m dglrun.commands.validate_parts`: each worker checks and measures its own part.

No worker has another's part. Each proves that its own is sound, and hashes its share of the source's rows and
the rows of its part; sums over all ranks prove that every node, edge and feature row is somewhere once.
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

from dglrun.arrays import Ints
from dglrun.commands import elapsed, flags, program
from dglrun.commands.arguments import Parser, above
from dglrun.contract import env, exitcodes
from dglrun.errors import DataError
from dglrun.formats.chunked.metadata import FILENAME
from dglrun.formats.dgl.folder import PartitionFolder, load_folder
from dglrun.mpi import source_sums
from dglrun.mpi.checksum import Hashes
from dglrun.mpi.collectives import Ranks, connect, run_on_all_ranks, say_once
from dglrun.mpi.watchdog import WAIT
from dglrun.report.measure import Quality, measure, status
from dglrun.report.table import render
from dglrun.verify import loader, serving
from dglrun.verify.keys import OriginalIds, read_assignment
from dglrun.verify.part import PartChecks
from dglrun.verify.source import KnownSums, PartEdgeSums, SourceChecks, load_source

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
        say_once(ranks, f"dglrun: {error}")
        return error.exit_code
    return exitcodes.OK


def run(args: argparse.Namespace, ranks: Ranks) -> None:
    """Check, measure, write the numbers on rank 0; collective.

    Raises:
        DataError: on every rank, when any part is not what it must be.
    """
    start = time.monotonic()
    run_on_all_ranks(ranks, lambda: _require_place(ranks.rank))
    folder = run_on_all_ranks(ranks, lambda: _load(args.part_config, ranks.size))
    wanted = args.verify != "never"
    run_on_all_ranks(ranks, lambda: _require_servable(folder, ranks.rank))
    how, cuts = _verify(args, folder, ranks) if wanted else ("not verified (--verify never)", {})
    found = _add(ranks.gather(run_on_all_ranks(ranks, lambda: _measured(folder, ranks.rank, cuts))), folder)
    if ranks.rank == 0:
        args.json.write_text(json.dumps({**status(found), "verified": wanted}) + "\n")
        print(render(found), end="")
        print(f"{folder.parts} parts: {how} ({time.monotonic() - start:.1f} s)", flush=True)


def _load(part_config: Path, ranks: int) -> PartitionFolder:
    folder = load_folder(part_config)
    if folder.parts != ranks:
        raise DataError(f"{part_config}: expected {ranks} parts, one for each rank, got {folder.parts}")
    return folder


def _require_place(rank: int) -> None:
    """Refuse a rank on another worker than its part's: training would look for part i on worker i."""
    index = os.environ.get(env.WORKER_INDEX)
    if index is not None and int(index) != rank:
        raise DataError(f"rank {rank} runs on worker {index}: expected rank i on worker i")


def _require_servable(folder: PartitionFolder, part: int) -> None:
    if problem := _first(serving.problems_of(folder, part)):
        raise DataError(problem)


def _verify(args: argparse.Namespace, folder: PartitionFolder, ranks: Ranks) -> tuple[str, dict[int, Ints]]:
    """Prove that the parts are sound and together the source; collective.

    Returns:
        Against what; and the cut edges of this rank's part by edge type, int64, shape (types,).
    """
    checks = run_on_all_ranks(ranks, lambda: _with_sound_rows(folder, ranks.rank))
    graph = load_source(args.in_dir, folder, ranks)
    assigned = read_assignment(args.partitions_dir, graph, folder, ranks)
    keys = OriginalIds(folder, graph, ranks)
    metadata = args.in_dir / FILENAME
    sums = {} if args.verify == "always" else source_sums.read(ranks, folder.path.parent, graph, metadata)
    own = run_on_all_ranks(ranks, lambda: _with_sound_edges(checks, keys if sums else None))
    known = KnownSums(sums, own)
    if problem := _first(SourceChecks(folder, graph, keys, assigned, ranks, known).problems()):
        same = (
            f"dglrun verify {folder.path.name} --in-dir {args.in_dir} --partitions-dir {args.partitions_dir}"
        )
        raise DataError(
            f"the partition is not its source: {problem}; numbers are original IDs, rank i has part i. "
            f"With all parts in one folder `{same}` says it too"
        )
    # DGL's loader holds a part in memory, whatever its size; ours does not.
    is_cheap = sum(ranks.gather(_size(folder, ranks.rank))) <= args.limit
    if args.dgl and (is_cheap or args.verify == "always"):
        run_on_all_ranks(ranks, lambda: _refuse(loader.problems(folder, parts=(ranks.rank,))))
    how = f"verified against {'what dispatch read of the source' if sums else 'the source'}"
    return how, {ranks.rank: checks.cut}


def _with_sound_rows(folder: PartitionFolder, part: int) -> PartChecks:
    """Prove that a part's nodes, and the fields of its nodes and edges, are sound in themselves."""
    checks = PartChecks(folder, part)
    _refuse(checks.row_problems())
    return checks


def _with_sound_edges(checks: PartChecks, keys: OriginalIds | None) -> dict[str, Hashes]:
    """Prove the same of the edges; returns their sums by table if there are keys, from the same reading."""
    sums = PartEdgeSums(checks.folder, checks.part, keys) if keys else None
    if sums is None or not sums.can_be_added:
        _refuse(checks.edge_problems())
        return {}
    _refuse(checks.edge_problems(sums.add))
    return sums.by_table()


def _refuse(problems: Iterator[str]) -> None:
    if problem := _first(problems):
        raise DataError(f"the partition does not hold: {problem}")


def _first(problems: Iterator[str]) -> str | None:
    """Some problems in one text, None where there is none."""
    return "; ".join(islice(problems, SHOWN)) or None


def _size(folder: PartitionFolder, part: int) -> int:
    """Bytes of a part's files."""
    root = folder.path.parent
    return sum((root / name).stat().st_size for name in folder.files[part].values())


def _measured(folder: PartitionFolder, part: int, cuts: dict[int, Ints]) -> tuple[Any, Any, Any]:
    found = measure(folder, parts=(part,), cuts=cuts)
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
    parser.add_argument("--timeout", type=above(0), default=WAIT, help="seconds that a rank waits for others")
    return parser.read(argv)


if __name__ == "__main__":
    sys.exit(program.internal(main))
