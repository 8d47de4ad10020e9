"""`python -m dglrun.agent`: started by the launcher on each worker, through `kubectl exec -i`.

Beside the commands of `dglrun`, whose parsers and messages would be a sixth of an agent's start. Its signals
are its own: the agent must outlive the stream, and sets its handlers itself.
"""

import sys

from dglrun.agent import main
from dglrun.contract import exitcodes


def run(argv: list[str]) -> int:
    """Start this worker's agent; returns the exit code."""
    if argv:
        sys.stderr.write(f"dglrun.agent: expected no arguments, got {argv}\n")
        return exitcodes.USAGE
    if sys.stdin is not None and sys.stdin.isatty():
        sys.stderr.write(
            "dglrun: internal command, run by dglrun itself; dglrun --help lists the commands for you\n"
        )
        return exitcodes.USAGE
    return main.start()


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
