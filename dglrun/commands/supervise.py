"""`dglrun supervise`: how a launcher of an earlier image starts this worker's agent."""

import signal
import sys

from dglrun.agent import main as agent
from dglrun.commands import program
from dglrun.commands.arguments import Parser, UsageError
from dglrun.contract import exitcodes


def main(argv: list[str]) -> int:
    """Start the agent, as `python -m dglrun.agent` does; returns the exit code."""
    try:
        Parser("dglrun supervise", description="Internal: starts this worker's agent.").read(argv)
    except UsageError as error:
        return program.complain("dglrun supervise", error, exitcodes.USAGE)
    if sys.stdin is not None and sys.stdin.isatty():
        return program.complain("dglrun supervise", program.INTERNAL, exitcodes.USAGE)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # raises: the start removes unfinished files
    return agent.start()
