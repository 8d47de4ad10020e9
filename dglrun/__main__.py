"""`dglrun`: from here on Ctrl-C is one line and exit code 130; then the command line is read.

Its top imports what an interpreter has loaded by then, or nearly: what a command needs takes a tenth of a
second and more, in which people press Ctrl-C.
"""

import io
import os
import signal
import sys
from collections.abc import Sequence

INTERRUPTED = 128 + signal.SIGINT


def main(argv: Sequence[str] | None = None) -> int:
    """Run `dglrun <argv>` as all that this process does; returns the exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored, as under nohup
        signal.signal(signal.SIGINT, _end)
    _write_whole_lines()
    from dglrun.cli import workflow  # noqa: PLC0415 - after the handler
    from dglrun.errors import Terminated  # noqa: PLC0415

    try:
        code = workflow.main(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()  # while `_end` may still come, which would lose it
    except Terminated as ended:  # between two handlers: the work has not begun, or has ended
        _end(ended.number)
    if code == INTERRUPTED:  # and told: a second Ctrl-C adds nothing
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    return code


def _write_whole_lines() -> None:
    """Write a line and its end at once, also where PYTHONUNBUFFERED is set: others write to the same log."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.write_through:
            stream.reconfigure(line_buffering=True, write_through=False)


def _end(number: int, _frame: object = None) -> None:
    """End at once: an import may catch an exception, and there is nothing to clean up."""
    os.write(2, b"dglrun: interrupted\n" if number == signal.SIGINT else b"dglrun: ended by SIGTERM\n")
    os._exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
