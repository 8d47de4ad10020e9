"""`python -m dglrun.commands.dgl_api`: what DGL's partition_graph writes, from a chunked graph.

DGL assigns the nodes, as partition_graph lets it; the parts are written by our dispatch, in bounded memory.
They have the same nodes, edges, fields and features under the same rules (docs/adr/0018). Beside each part
are orig_nids.dgl and orig_eids.dgl, so that `dglrun verify --in-dir` can hold it against its source.
"""

import argparse
import sys
import time
from functools import partial
from importlib import metadata
from pathlib import Path

from dglrun.commands import elapsed, flags, program
from dglrun.commands.arguments import Parser
from dglrun.contract import exitcodes
from dglrun.dispatch import earlier_parts, graphbolt, pipeline, write_part_config
from dglrun.dispatch.checkpoint import remove_stale_ranks
from dglrun.dispatch.source import Options
from dglrun.errors import DataError
from dglrun.formats import assignment, output_folder, writable
from dglrun.formats.chunked import check, input_file
from dglrun.formats.chunked.dgl_order import in_dgls_order
from dglrun.formats.chunked.metadata import FILENAME, ChunkedGraph
from dglrun.mpi.collectives import SingleRank
from dglrun.partitioning import DGL_METHODS, by_dgl, freed_memory
from dglrun.partitioning.training_nodes import masked_types

ASSIGNMENT = "assignment"
"""Folder of the assignment, beside the draft of the parts."""


def main(argv: list[str]) -> int:
    """Assign and write; 65 where the input is not what it must be, 2 for a flag."""
    args = _arguments(argv)
    if args.use_graphbolt and (reason := graphbolt.lacking()):
        print(f"dglrun: {reason}", file=sys.stderr, flush=True)
        return exitcodes.USAGE
    try:
        run(args)
    except DataError as error:
        print(f"dglrun: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return exitcodes.OK


def run(args: argparse.Namespace) -> None:
    """Partition.

    Raises:
        DataError: the chunked graph is bad, or cannot be cut into so many parts; or the folder cannot be
            written.
    """
    source = ChunkedGraph.load(args.in_dir, FILENAME)
    check.check_parts(source, args.num_parts)
    if args.balance_train:
        masked_types(source)
    writable.require_folder(args.out_dir)
    name = f"{source.name}.json"
    with output_folder.locked(args.out_dir):
        earlier_parts.refuse_overwriting(args.out_dir, source.name, (name,), args.num_parts)
    check.check_counts(source)
    if note := _without_effect(args):
        print(note, file=sys.stderr, flush=True)
    # Beside the parts a job's script may keep data of its own.
    owned = partial(earlier_parts.owned, graph_name=source.name)
    with output_folder.replacing(args.out_dir, owned, (name,), among_others=True) as draft:
        if args.use_graphbolt:
            from dglrun.commands import dgl_partition_graph  # noqa: PLC0415 - torch and dgl are heavy

            dgl_partition_graph.write(args, source, draft)
        else:
            assigned = draft.with_name(ASSIGNMENT)
            _assign(args, in_dgls_order(source), assigned)
            freed_memory.give_back()
            _write(args, source, assigned, draft)
        remove_stale_ranks(args.out_dir, ())  # of a dispatch that was killed, which would go on with them
        earlier_parts.forget(args.out_dir)


def _without_effect(args: argparse.Namespace) -> str:
    """What the user is told who asks for balance where chance gives it; else empty."""
    asked = {"--balance-train": args.balance_train, "--balance-edges": args.balance_edges}
    given = " and ".join(flag for flag, is_given in asked.items() if is_given)
    if not given or args.method != "random":
        return ""
    return f"dglrun: note: {given}: no effect with --method random: each part gets its share by chance"


def _assign(args: argparse.Namespace, source: ChunkedGraph, folder: Path) -> None:
    with elapsed.showing(f"dglrun: DGL's partitioning, {args.method}"):
        parts = by_dgl.assign(
            source, args.method, args.num_parts, args.balance_train, args.balance_edges, args.seed
        )
    library = {"library": f"dgl {metadata.version('dgl')}"}
    assignment.write(folder, source, parts, assignment.AssignmentMeta(args.num_parts, args.method, library))


def _write(args: argparse.Namespace, source: ChunkedGraph, assigned: Path, draft: Path) -> None:
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"dispatch: {time.monotonic() - started:7.1f} s  {text}", flush=True)

    options = Options(
        in_dir=input_file.absolute(args.in_dir),
        partitions_dir=assigned.absolute(),
        out_dir=draft.absolute(),
        save_orig_nids=True,
        save_orig_eids=True,
        like_partition_graph=True,
    )
    with elapsed.showing("dglrun: writing the parts"):
        pipeline.dispatch(options, SingleRank(), say)
    for name in set(write_part_config.filenames(source.name)) - {f"{source.name}.json"}:
        (draft / name).unlink()  # the name that DGL's dispatch gives it; partition_graph has none


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = Parser("dglrun.commands.dgl_api", description="Internal: what DGL's partition_graph writes.")
    parser.add_argument("--in-dir", type=flags.folder, required=True)
    parser.add_argument("--out-dir", type=Path, required=True)
    parser.add_argument("--num-parts", type=int, required=True)
    parser.add_argument("--method", choices=DGL_METHODS, required=True)
    parser.add_argument("--balance-train", action="store_true")
    parser.add_argument("--balance-edges", action="store_true")
    parser.add_argument("--use-graphbolt", action="store_true", help="write GraphBolt's form too")
    parser.add_argument("--seed", type=int, default=1)
    return parser.read(argv)


if __name__ == "__main__":
    sys.exit(program.internal(main))
