"""One rank: `python -m dglrun.commands.dispatch_rank`, the program that mpirun starts."""

import sys

from dglrun.commands import dispatch, program
from dglrun.commands.arguments import Parser


def main(argv: list[str]) -> int:
    """Parse the flags of `dglrun dispatch` and run."""
    parser = Parser("dglrun dispatch", description="Internal: one rank of dglrun dispatch.")
    dispatch.add_flags(parser)
    return dispatch.run(parser.read(argv), is_rank=True)


if __name__ == "__main__":
    sys.exit(program.internal(main))
