"""Entry point: `python3 -m dglrun.pod_waiter`.

The signal handlers come before all other imports: as process 1 of a container it is not ended by a
signal without a handler, and the pod may be deleted at any moment.
"""

import os
import signal
import sys
from types import FrameType

_SIGTERM_EXIT = 143


def _end(_number: int, _frame: FrameType | None) -> None:
    os.write(2, b"watcher-loop: ended by a signal\n")
    os._exit(_SIGTERM_EXIT)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    from dglrun.pod_waiter.program import main

    code = main(os.environ)
    sys.stdout.flush()
    sys.stderr.flush()
    # The followers' threads may sit in a read; nothing is left to be cleaned up.
    os._exit(code)
