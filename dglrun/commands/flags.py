"""Flags that several commands share."""

import argparse
from pathlib import Path

from dglrun.formats.chunked.metadata import FILENAME


def add_chunked_graph(parser: argparse.ArgumentParser) -> None:
    """The folder of the chunked graph that a command reads, and its metadata file."""
    parser.add_argument(
        "--in-dir", type=Path, required=True, metavar="DIR", help="folder of the chunked graph"
    )
    add_metadata_filename(parser)


def add_metadata_filename(parser: argparse.ArgumentParser) -> None:
    """The name of the metadata file."""
    parser.add_argument(
        "--metadata-filename",
        default=FILENAME,
        metavar="NAME",
        help=f"metadata file inside --in-dir (default: {FILENAME})",
    )


def add_out_dir(parser: argparse.ArgumentParser, what: str) -> None:
    """The folder that a command writes."""
    parser.add_argument(
        "--out-dir", type=Path, required=True, metavar="DIR", help=f"folder of {what} to write"
    )
