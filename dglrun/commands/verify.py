"""`dglrun verify`: prove that a partition folder is sound, and that it is its source."""

import argparse
import sys
import time
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from dglrun.commands import elapsed, flags
from dglrun.contract import exitcodes
from dglrun.errors import DataError
from dglrun.formats.dgl.folder import PartitionFolder, load_folder
from dglrun.mpi.collectives import SingleRank
from dglrun.verify import loader, serving
from dglrun.verify.keys import GraphKeys, OriginalIds, StableIds, read_assignment
from dglrun.verify.part import PartChecks
from dglrun.verify.source import SourceChecks, load_source

_SHOWN = 20


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of `verify`."""
    parser.add_argument("part_config", type=Path, metavar="PART_CONFIG", help="the partition's JSON")
    parser.add_argument(
        "--in-dir",
        type=flags.folder,
        metavar="DIR",
        help="the chunked graph that it was made of: folder, or s3://bucket/prefix",
    )
    flags.add_metadata_filename(parser)
    parser.add_argument(
        "--partitions-dir", type=Path, metavar="DIR", help="the assignment that it was made by"
    )
    parser.add_argument("--dgl", action="store_true", help="run DGL's own loader too (DGL_DIST_DEBUG)")
    parser.add_argument(
        "--dgl-python",
        type=Path,
        metavar="FILE",
        help="a Python with torch and dgl, for --dgl (default: the one of dglrun)",
    )
    parser.add_argument(
        "--for-training",
        action="store_true",
        help="refuse what DGL's server cannot load (parts without a row of a featured type)",
    )
    parser.add_argument(
        "--serving-only",
        action="store_true",
        help="check nothing but that: reads the names in the files, whatever their size",
    )


def run(args: argparse.Namespace) -> int:
    """Verify; 0 if all checks pass, 65 if not.

    Raises:
        DataError: the folder or its source cannot be read.
    """
    with elapsed.showing(f"dglrun verify: {args.part_config}"):
        return _verify(args)


def _verify(args: argparse.Namespace) -> int:
    started = time.monotonic()
    folder = load_folder(args.part_config)
    if args.serving_only:
        return exitcodes.OK if _serving(folder, refuse=True) else exitcodes.DATA
    sound = all(_report(f"part {part}", PartChecks(folder, part).problems()) for part in range(folder.parts))
    if sound and args.in_dir is not None:
        sound = _report("source", _source(folder, args))
    if args.dgl:
        sound = _report("DGL's loader", loader.problems(folder, args.dgl_python)) and sound
    sound = _serving(folder, args.for_training) and sound
    verdict = "OK" if sound else "FAILED"
    print(f"{verdict}: {folder.name}: {folder.parts} parts ({time.monotonic() - started:.1f} s)")
    return exitcodes.OK if sound else exitcodes.DATA


def _source(folder: PartitionFolder, args: argparse.Namespace) -> Iterable[str]:
    alone = SingleRank()
    graph = load_source(args.in_dir, folder, alone, args.metadata_filename)
    assigned = read_assignment(args.partitions_dir, graph, folder, alone) if args.partitions_dir else None
    keys: GraphKeys
    ids = [folder.original_ids(part, kind) for part in range(folder.parts) for kind in ("node", "edge")]
    if all(found is not None for found in ids):
        keys = OriginalIds(folder, graph, alone)
    elif assigned is not None:
        keys = StableIds(folder, assigned.parts)
    else:
        raise DataError(
            f"{folder.path}: the parts have no orig_nids.dgl and orig_eids.dgl; "
            "comparing with the source needs them or --partitions-dir"
        )
    return SourceChecks(folder, graph, keys, assigned, alone).problems()


def _serving(folder: PartitionFolder, refuse: bool) -> bool:
    """Warn of what DGL's server cannot load, or refuse it."""
    found = list(islice(serving.problems(folder), _SHOWN))
    for text in found:
        print(f"{'refused' if refuse else 'warning'}: {text}", file=sys.stderr)
    return not (found and refuse)


def _report(what: str, problems: Iterable[str]) -> bool:
    """Print the first problems; True if there is none."""
    found = list(islice(problems, _SHOWN + 1))
    for text in found[:_SHOWN]:
        print(f"wrong: {text}", file=sys.stderr)
    if len(found) > _SHOWN:
        print("wrong: and more", file=sys.stderr)
    if not found:
        print(f"{what}: sound")
    return not found
