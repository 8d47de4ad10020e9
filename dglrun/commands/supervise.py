"""`dglrun supervise`: started by the launcher on each worker, through `kubectl exec -i`."""

import sys
from pathlib import Path

from dglrun.agent import main as agent
from dglrun.commands import program
from dglrun.commands.arguments import Parser, UsageError
from dglrun.contract import exitcodes


def main(argv: list[str]) -> int:
    """Start a supervisor, or show the running one; returns the exit code.

    Its signals are its own: the supervisor must outlive the stream, and sets its handlers itself.
    """
    try:
        args = _parser().read(argv)
    except UsageError as error:
        return program.complain("dglrun supervise", error, exitcodes.USAGE)
    if sys.stdin is not None and sys.stdin.isatty():
        return program.complain("dglrun supervise", program.INTERNAL, exitcodes.USAGE)
    folder = args.folder.absolute()
    return agent.start(folder) if args.do == "start" else agent.show(folder)


def _parser() -> Parser:
    parser = Parser("dglrun supervise", description="Internal: the process on a worker that owns the others.")
    parser.add_argument("do", choices=["start", "attach"], help="begin a run, or show the running one")
    parser.add_argument("--folder", type=Path, required=True, help="run folder of this worker")
    return parser
