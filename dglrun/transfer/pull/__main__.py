"""`python -m dglrun.transfer.pull`: one receiver, whose order is a line on stdin.

With --detach it says `started` and goes on by itself: the stream that has started it may end.
"""

import os
import sys

from dglrun.contract import exitcodes
from dglrun.errors import RunError
from dglrun.transfer.pull.order import OrderError, decode
from dglrun.transfer.pull.receiver import Complete, Receiver

STARTED = "started"


def main(argv: list[str], complete: Complete | None = None) -> int:
    """Receive; returns the exit code.

    Args:
        argv: Nothing, or --detach.
        complete: See `Receiver`.
    """
    if argv not in ([], ["--detach"]):
        sys.stderr.write(f"dglrun.transfer.pull: expected nothing or --detach, got {argv}\n")
        return exitcodes.USAGE
    try:
        order = decode(sys.stdin.readline())
    except OrderError as error:
        sys.stderr.write(f"dglrun.transfer.pull: {error}\n")
        return exitcodes.USAGE
    try:
        receiver = Receiver(order, complete)
    except (OSError, ValueError) as error:  # the keys are none: nothing could be told by them later
        sys.stderr.write(f"dglrun.transfer.pull: the order's keys cannot be used: {error}\n")
        return exitcodes.SOFTWARE
    if not argv:
        return _receive(receiver)
    if os.fork() == 0:
        _go_on_alone(receiver)
    print(STARTED, flush=True)
    return exitcodes.OK


def _receive(receiver: Receiver) -> int:
    try:
        receiver.run()
    except RunError as error:
        sys.stderr.write(f"{error}\n")
        return error.code
    return exitcodes.OK


def _go_on_alone(receiver: Receiver) -> None:
    """Own session, no stream: what is to be said goes to the owner of the files."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    code = exitcodes.SOFTWARE
    try:
        code = _receive(receiver)
    finally:
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
