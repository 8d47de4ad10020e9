"""`python -m dglrun.commands.kill_leftovers FOLDER`: end what a broken mpirun has left on this worker.

mpirun ends its ranks itself, and its daemons end them when mpirun is gone; this is for what neither
reached. Ranks are known by the run folder in their environment.
"""

import sys
from pathlib import Path

from dglrun.agent import process_group
from dglrun.commands import program
from dglrun.commands.arguments import Parser
from dglrun.contract import exitcodes


def main(argv: list[str]) -> int:
    """Kill what carries the folder in its environment; tell how many there were."""
    parser = Parser("dglrun.commands.kill_leftovers", description="Internal: kill the ranks of a run.")
    parser.add_argument("folder", type=Path, help="run folder in their environment")
    ended = process_group.end_remains(parser.read(argv).folder)
    if ended:
        print(f"killed {len(ended)} processes that mpirun had left", flush=True)
    return exitcodes.OK


if __name__ == "__main__":
    sys.exit(program.internal(main))
