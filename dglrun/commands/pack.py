"""`dglrun pack DIR`: the files of a folder as a stream on stdout; a missing folder is an empty one.

Notes on what is left out go to stderr, each on a line of its own.
"""

import sys
from pathlib import Path

from dglrun.commands import program
from dglrun.commands.arguments import Parser, UsageError
from dglrun.contract import exitcodes
from dglrun.transfer import tar_stream


def main(argv: list[str]) -> int:
    """Write the stream; returns the exit code: 74 for a file that cannot be packed."""
    return program.run("dglrun pack", lambda: _pack(argv))


def _pack(argv: list[str]) -> int:
    parser = Parser(
        "dglrun pack", description="Internal: write the files of a folder to stdout as a tar stream."
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder; if it is missing, no file")
    parser.add_argument(
        "--unless",
        metavar="NAME",
        default="",
        help="write no file if DIR has this one: DIR is the receiver's own then",
    )
    args = parser.read(argv)
    if sys.stdout.isatty():
        raise UsageError(program.INTERNAL)
    try:
        items, notes = tar_stream.output_items(args.folder, args.unless, tar_stream.Alive(sys.stdout.buffer))
        for note in notes:
            print(tar_stream.NOTE + note, file=sys.stderr)
        tar_stream.pack(items, sys.stdout.buffer, tar_stream.ZEROS)
    except tar_stream.PackError as error:
        return program.complain("dglrun pack", error, exitcodes.IO)
    sys.stdout.buffer.flush()
    return exitcodes.OK
