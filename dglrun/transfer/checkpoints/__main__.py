"""`python -m dglrun.transfer.checkpoints`: one keeper, whose order is a line on stdin."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace

from dglrun.agent import prctl
from dglrun.contract import exitcodes
from dglrun.transfer.checkpoints import keeper
from dglrun.transfer.checkpoints.limit import Limit
from dglrun.transfer.checkpoints.link import LauncherTarget, Link
from dglrun.transfer.checkpoints.order import KeeperOrder, decode
from dglrun.transfer.checkpoints.target import KeepError, Target
from dglrun.transfer.pull.order import OrderError

NICE = 10
"""Training goes first."""


def main() -> int:
    """Keep; returns the exit code."""
    try:
        order = decode(sys.stdin.readline())
    except OrderError as error:
        sys.stderr.write(f"dglrun.transfer.checkpoints: {error}\n")
        return exitcodes.USAGE
    with contextlib.suppress(OSError):
        prctl.end_with_parent(signal.SIGKILL)  # no file that is being sent is seen by anybody
        os.nice(NICE)
    link = Link(order)
    try:
        keeper.serve(order, link, _target(order, link))
    except KeepError as error:
        sys.stderr.write(f"{error}\n")
        return error.code
    return exitcodes.OK


def _target(order: KeeperOrder, link: Link) -> Target:
    limit = Limit(order.rate, _lifting(order))
    if not order.place:
        return LauncherTarget(link, limit)
    from dglrun.transfer.checkpoints.stored import StoredTarget  # noqa: PLC0415 - pyarrow, and a few 10 MB

    try:
        return StoredTarget(order, limit)
    except KeepError as error:
        link.ask({"do": "failed", "what": str(error), "code": error.code})
        raise


def _lifting(order: KeeperOrder) -> Callable[[], bool]:
    """Asks the launcher whether it finishes, by a connection of its own: the other may be amid a file."""
    link = Link(replace(order, patience=0.0))

    def is_lifted() -> bool:
        try:
            return bool(link.ask({"do": "hurry"}).get("hurry"))
        except KeepError:  # it cannot be reached now; the bound stays
            return False

    return is_lifted


if __name__ == "__main__":
    sys.exit(main())
