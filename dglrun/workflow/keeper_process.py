"""The process that keeps checkpoints of a training in this pod, where there is no agent to keep them.

It goes on when the training has ended, since what that wrote last is still to be kept.
"""

import contextlib
import subprocess
from collections.abc import Mapping, Sequence


class KeeperProcess:
    """A started keeper.

    Args:
        argv: The command.
        order: The line that it reads from stdin; it has keys, which a command line would show to all.
        env: Its whole environment.

    Raises:
        OSError: it could not be started.
    """

    def __init__(self, argv: Sequence[str], order: str, env: Mapping[str, str]) -> None:
        self._popen = subprocess.Popen(
            list(argv),
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,  # what it has to say on stderr goes to the log
            process_group=0,
        )
        if self._popen.stdin is None:
            raise AssertionError("Popen was given PIPE")
        with contextlib.suppress(BrokenPipeError), self._popen.stdin as stdin:
            stdin.write(order.encode() + b"\n")  # far less than a pipe takes without a reader

    def poll(self) -> int | None:
        """Its exit code as Popen gives it, None while it runs."""
        return self._popen.poll()

    def end(self) -> None:
        """Kill it, and wait until it has ended."""
        self._popen.kill()
        self._popen.wait()
