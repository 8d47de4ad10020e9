"""`dglrun pack DIR`: the files of a folder as a stream on stdout; a missing folder is an empty one."""

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
    folder = parser.read(argv).folder
    if sys.stdout.isatty():
        raise UsageError(program.INTERNAL)
    try:
        tar_stream.pack(tar_stream.items(folder), sys.stdout.buffer)
    except tar_stream.PackError as error:
        return program.complain("dglrun pack", error, exitcodes.IO)
    sys.stdout.buffer.flush()
    return exitcodes.OK
