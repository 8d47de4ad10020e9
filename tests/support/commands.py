"""Commands of dglrun called in this process."""

import argparse
from types import ModuleType


def run_command(module: ModuleType, *argv: str) -> int:
    """Parse `argv` (the command's name first) as dglrun would and run it."""
    parser = argparse.ArgumentParser()
    module.add_parser(parser.add_subparsers())
    return int(module.run(parser.parse_args(argv)))
