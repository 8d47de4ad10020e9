"""One rank: `python -m dglrun.distribute`, the program that mpirun starts."""

import argparse
import sys

from dglrun.distribute import command


def main(argv: list[str]) -> int:
    """Parse the flags of `dglrun dispatch` and run."""
    parser = argparse.ArgumentParser(prog="dglrun dispatch")
    command.add_flags(parser)
    return command.run(parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
