"""`python -m mpi4py -m dglrun.commands.keep_rank`: each worker keeps its own part; the manifest comes last.

Rank i writes the files of part i into the folder of this job, rank 0 the partition's JSON as well. When all
have written theirs, rank 0 writes the manifest.
"""

import argparse
import sys
from pathlib import Path

from dglrun.commands import elapsed, program
from dglrun.commands.arguments import Parser, above
from dglrun.commands.keep_partition import add_kept, record, require_unchanged, say_kept
from dglrun.contract import exitcodes
from dglrun.errors import DataError, RunError
from dglrun.formats.dgl import part_config
from dglrun.formats.kept import reference
from dglrun.formats.kept.kept_partition import KeptFile
from dglrun.formats.kept.partition_store import PartitionStore
from dglrun.formats.kept.reference import Reference
from dglrun.mpi.collectives import Ranks, connect, run_on_all_ranks, say_once
from dglrun.transfer.partition_files import PartitionFiles


def main(argv: list[str]) -> int:
    """Keep; called by every rank with the same arguments.

    Returns:
        0; the code of the first rank that failed, on every rank, with its words once.
    """
    args = _arguments(argv)
    ranks = connect(args.timeout)
    try:
        with elapsed.showing_on_first(ranks.rank, "dglrun: keeping the parts"):
            run(args, ranks)
    except DataError as error:
        say_once(ranks, f"dglrun: {error}")
        return error.exit_code
    return exitcodes.OK


def run(args: argparse.Namespace, ranks: Ranks) -> None:
    """Write all parts and then the manifest; collective.

    Raises:
        DataError: on every rank, when any part could not be written.
    """
    begun = ranks.gather(run_on_all_ranks(ranks, lambda: None if ranks.rank else _begun(args)))[0]
    if begun is None:
        raise AssertionError("rank 0 has read the reference")
    found, folder = begun
    store = PartitionStore(found.place, args.deadline)
    try:
        files = run_on_all_ranks(ranks, lambda: _write(store, found, folder, args.config, ranks.rank))
        written = {name: file for each in ranks.gather(files) for name, file in each.items()}
        run_on_all_ranks(
            ranks, lambda: _publish(store, found, folder, args, written if not ranks.rank else {})
        )
    except BaseException:
        if ranks.rank == 0:
            store.drop(found.input, folder)
        raise


def _begun(args: argparse.Namespace) -> tuple[Reference, str]:
    """What rank 0 tells the others: the reference, and a folder for this job's files."""
    try:
        found = reference.read(args.reference)
    except RunError as error:
        raise DataError(str(error)) from error
    require_unchanged(args, found.input)
    return found, PartitionStore(found.place).new_folder()


def _write(
    store: PartitionStore, found: Reference, folder: str, config: Path, rank: int
) -> dict[str, KeptFile]:
    """Write the files of this rank's part."""
    own = PartitionFiles(part_config.load(config, int(found.input.options["parts"]))).files(rank)
    return store.write_files(
        found.input, folder, {item.name: item.path for item in own if rank == 0 or item.name != config.name}
    )


def _publish(
    store: PartitionStore, found: Reference, folder: str, args: argparse.Namespace, files: dict[str, KeptFile]
) -> None:
    if not files:
        return
    kept = store.publish(record(found.input, folder, args, files), args.again)
    say_kept(store, kept, folder)


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = Parser("dglrun.commands.keep_rank", description="Internal: keep the part of this worker.")
    add_kept(parser)
    parser.add_argument("--timeout", type=above(0), required=True)
    return parser.read(argv)


if __name__ == "__main__":
    sys.exit(program.internal(main))
