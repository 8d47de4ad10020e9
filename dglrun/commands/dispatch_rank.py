"""One rank: `python -m dglrun.commands.dispatch_rank`, the program that mpirun starts."""

import argparse
import sys

from dglrun.commands import dispatch, program
from dglrun.commands.arguments import Parser, whole


def main(argv: list[str]) -> int:
    """Parse the flags of `dglrun dispatch` and run."""
    parser = Parser("dglrun dispatch", description="Internal: one rank of dglrun dispatch.")
    dispatch.add_flags(parser)
    parser.add_argument("--lost-parts", type=_parts, default=())
    return dispatch.run(parser.read(argv), is_rank=True)


def _parts(text: str) -> tuple[int, ...]:
    try:
        return tuple(map(whole(0), text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected part numbers, got {text!r}") from None


if __name__ == "__main__":
    sys.exit(program.internal(main))
