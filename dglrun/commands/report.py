"""`dglrun report`: edge cut, balances and halo of a partition folder."""

import argparse
import json
import sys
from pathlib import Path

from dglrun.contract import exitcodes
from dglrun.errors import DataError
from dglrun.formats.dgl.folder import load_folder
from dglrun.formats.output_folder import replacing_file
from dglrun.report import charts, table
from dglrun.report.measure import Quality, measure, status


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `report` to dglrun's commands."""
    parser = subparsers.add_parser("report", help="tell how good a partition is", description=__doc__)
    parser.add_argument("part_config", type=Path, help="the partition's JSON (<graph>.json)")
    parser.add_argument("--train-mask", default="train_mask", help="node feature that marks training nodes")
    parser.add_argument("--json", type=Path, help="write the numbers here")
    parser.add_argument("--html", type=Path, help="write a page with charts here")
    parser.add_argument("--png", type=Path, help="write the charts here (needs matplotlib)")


def run(args: argparse.Namespace) -> int:
    """Print the table and write what was asked for."""
    try:
        quality = measure(load_folder(args.part_config), args.train_mask)
        print(table.render(quality), end="")
        return _write(quality, args)
    except DataError as error:
        print(f"dglrun report: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"dglrun report: {error}", file=sys.stderr)
        return exitcodes.IO


def _write(quality: Quality, args: argparse.Namespace) -> int:
    if args.json is not None:
        with replacing_file(args.json) as draft:
            draft.write_text(json.dumps(status(quality), indent=1) + "\n")
    if args.html is not None:
        with replacing_file(args.html) as draft:
            charts.write_html(quality, draft)
    if args.png is not None:
        try:
            with replacing_file(args.png) as draft:
                charts.write_png(quality, draft)
        except ImportError:
            print("dglrun report: --png needs matplotlib; --html needs nothing", file=sys.stderr)
            return exitcodes.USAGE
    return exitcodes.OK
