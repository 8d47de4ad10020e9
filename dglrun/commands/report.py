"""`dglrun report`: edge cut, balances and halo of a partition folder."""

import argparse
import json
from importlib.util import find_spec
from pathlib import Path

from dglrun.commands import elapsed, program
from dglrun.commands.arguments import UsageError, meant
from dglrun.contract import exitcodes
from dglrun.formats import writable
from dglrun.formats.dgl.folder import PartitionFolder, load_folder
from dglrun.formats.output_folder import replacing_file
from dglrun.partitioning.training_nodes import TRAIN_MASK
from dglrun.report import charts, table
from dglrun.report.measure import Quality, measure, status


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of `report`."""
    parser.add_argument("part_config", type=Path, metavar="PART_CONFIG", help="the partition's JSON")
    parser.add_argument(
        "--train-mask",
        metavar="NAME",
        help=f"node feature that marks training nodes (default: {TRAIN_MASK}, if there is one)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers here")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with charts here")
    parser.add_argument("--png", type=Path, metavar="FILE", help="write the charts here (needs matplotlib)")


def run(args: argparse.Namespace) -> int:
    """Print the table and write the files that are asked for; returns the exit code.

    Raises:
        UsageError: no such mask, or --png without matplotlib.
        DataError: the folder is damaged, or an output cannot be written.
    """
    for path in (args.json, args.html, args.png):
        if path is not None:
            writable.require_file(path)
    if args.png is not None and find_spec("matplotlib") is None:
        raise UsageError("--png needs matplotlib; --html needs nothing")
    folder = load_folder(args.part_config)
    with elapsed.showing(f"dglrun report: {args.part_config}"):
        quality = measure(folder, _mask(folder, args.train_mask))
    print(table.render(quality), end="")
    _write(quality, args)
    return exitcodes.OK


def _mask(folder: PartitionFolder, name: str | None) -> str:
    """The mask that is asked for.

    Raises:
        UsageError: no node type has it; lists those that there are.
    """
    known = {key.rpartition("/")[2] for key in folder.features(0, "node")}
    if name is not None and name not in known:
        near = meant(name, known)
        found = ", ".join(sorted(known)) or "none"
        raise UsageError(
            f"--train-mask: expected a node feature of {folder.path}, got {name!r}"
            + (f": {near}" if near else "")
            + f" (there are: {found})"
        )
    return name or TRAIN_MASK


def _write(quality: Quality, args: argparse.Namespace) -> None:
    if args.json is not None:
        with program.naming(args.json), replacing_file(args.json) as draft:
            draft.write_text(json.dumps(status(quality), indent=1) + "\n")
    if args.html is not None:
        with program.naming(args.html), replacing_file(args.html) as draft:
            charts.write_html(quality, draft)
    if args.png is not None:
        with program.naming(args.png), replacing_file(args.png) as draft:
            charts.write_png(quality, draft)
