"""Flags that several commands share."""

import argparse
from pathlib import Path

from dglrun.commands.arguments import above
from dglrun.errors import DataError
from dglrun.formats.chunked import input_file
from dglrun.formats.chunked.input_file import File
from dglrun.formats.chunked.metadata import FILENAME

_DAY = 86400.0


def add_chunked_graph(parser: argparse.ArgumentParser) -> None:
    """The folder of the chunked graph that a command reads, and its metadata file."""
    parser.add_argument(
        "--in-dir",
        type=folder,
        required=True,
        metavar="DIR",
        help="folder of the chunked graph, or s3://bucket/prefix",
    )
    add_metadata_filename(parser)


def folder(text: str) -> File:
    """The type of a flag that takes a folder or a URI."""
    try:
        return input_file.named(text)
    except DataError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


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


def add_deadline(parser: argparse._ActionsContainer, when: str = "") -> None:
    """How long the ranks may take.

    Args:
        parser: The command's parser, or a group of it.
        when: What makes the flag count, with a comma.
    """
    parser.add_argument(
        "--deadline",
        type=above(0),
        default=_DAY,
        metavar="SECONDS",
        help=f"{when}until all ranks are ended (default: {_DAY:.0f})",
    )
