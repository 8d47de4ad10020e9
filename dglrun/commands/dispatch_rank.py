"""One rank: `python -m dglrun.commands.dispatch_rank`, the program that mpirun starts."""

import argparse
import sys

from dglrun.commands import dispatch


def main(argv: list[str]) -> int:
    """Parse the flags of `dglrun dispatch` and run."""
    parser = argparse.ArgumentParser(prog="dglrun dispatch")
    dispatch.add_flags(parser)
    return dispatch.run(parser.parse_args(argv), is_rank=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
