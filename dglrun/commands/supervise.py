"""`dglrun supervise`: started by the launcher on each worker, through `kubectl exec -i`."""

import sys

from dglrun.agent import main as agent
from dglrun.commands import program
from dglrun.commands.arguments import Parser, UsageError
from dglrun.contract import exitcodes


def main(argv: list[str]) -> int:
    """Start this worker's supervisor; returns the exit code.

    Its signals are its own: the supervisor must outlive the stream, and sets its handlers itself.
    """
    try:
        Parser(
            "dglrun supervise", description="Internal: starts the process on a worker that owns the others."
        ).read(argv)
    except UsageError as error:
        return program.complain("dglrun supervise", error, exitcodes.USAGE)
    if sys.stdin is not None and sys.stdin.isatty():
        return program.complain("dglrun supervise", program.INTERNAL, exitcodes.USAGE)
    return agent.start()
