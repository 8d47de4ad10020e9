"""The processes of one worker: start, output, end, and the end of all that descends from them."""

import contextlib
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Collection, Mapping
from pathlib import Path

from dglrun.agent import prctl, procfs
from dglrun.agent.exit_status import ExitStatus
from dglrun.agent.line_splitter import LineSplitter
from dglrun.agent.spec import Process, ProcessRole

LAST_LINES = 20
RUN_FOLDER_VARIABLE = "DGLRUN_FOLDER"
"""Environment of each process: by it a later agent finds what an earlier one could not end."""
_KEEPER = "keeper"
"""In the run folder: pid and start time of the agent's fork, whose environment in /proc is the agent's."""


class Child:
    """One started process.

    Args:
        process: What it is.
        env: Its whole environment.
    """

    def __init__(self, process: Process, env: Mapping[str, str]) -> None:
        self.process = process
        self.end: ExitStatus | None = None
        self.tail: deque[str] = deque(maxlen=LAST_LINES)
        """Its last lines of output."""
        self.wrote = time.monotonic()
        """When it has written something, or was started."""
        self._splitter = LineSplitter(time.monotonic())
        self._popen = subprocess.Popen(
            process.argv,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - the agent has one thread only
        )
        if self._popen.stdout is None:
            raise AssertionError("Popen was given PIPE")
        self._output = self._popen.stdout
        os.set_blocking(self._output.fileno(), False)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._popen.pid

    @property
    def is_trainer(self) -> bool:
        """Whether its exit code decides."""
        return self.process.role is ProcessRole.TRAINER

    def fileno(self) -> int:
        """The read end of its output."""
        return self._output.fileno()

    def read(self) -> tuple[list[str], bool]:
        """New lines of output, and whether the output has ended."""
        blocks, ended = _drain(self.fileno())
        self.wrote = time.monotonic() if blocks else self.wrote
        lines = self._splitter.feed(blocks, self.wrote) if blocks else []
        lines += self._splitter.flush() if ended else []
        self.tail.extend(lines)
        return lines, ended

    def has_ended(self, end: ExitStatus) -> list[str]:
        """Note its end; returns the last lines of output."""
        self.end = end
        self._popen.returncode = end.code
        lines, _ended = self.read()
        rest = self._splitter.flush()
        self.tail.extend(rest)
        return lines + rest

    def close(self) -> None:
        """Close the pipe; a process that still writes to it then gets SIGPIPE."""
        self._output.close()


def reap() -> list[tuple[int, ExitStatus]]:
    """The children that have ended, adopted orphans among them."""
    found = []
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found.append((ended[0], ExitStatus.of_status(ended[1])))
    return found


def signal_all(number: int, spared: Collection[int] = ()) -> int:
    """Send a signal to all that descend from this process but those; returns to how many that still live."""
    found = procfs.descendants(os.getpid(), procfs.table())
    alive = [entry for entry in found if not entry.is_zombie and entry.pid not in spared]
    for entry in alive:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(entry.pid, number)
    return len(alive)


def end_remains(folder: Path, patience: float = 5.0) -> tuple[int, ...]:
    """Kill what an earlier agent of this folder left running; returns the process ids."""
    remains = _remains(folder)
    deadline = time.monotonic() + patience
    alive = remains
    while alive and time.monotonic() < deadline:
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
        alive = _remains(folder)
    return remains


def record_keeper(folder: Path, pid: int) -> None:
    """Note the fork that keeps checkpoints, for `end_remains` of a later agent.

    Raises:
        OSError: the file cannot be written.
    """
    if entry := procfs.table().get(pid):
        (folder / _KEEPER).write_text(f"{pid} {entry.started}")


def _remains(folder: Path) -> tuple[int, ...]:
    entries = procfs.table()
    alive = [pid for pid, entry in entries.items() if not entry.is_zombie and pid != os.getpid()]
    known = procfs.with_variable(RUN_FOLDER_VARIABLE, str(folder), alive)
    keeper = _keeper(folder)
    return known + tuple(pid for pid in alive if (pid, entries[pid].started) == keeper and pid not in known)


def _keeper(folder: Path) -> tuple[int, int] | None:
    """Pid and start time of the last keeper; the pid alone may be another process by now."""
    try:
        pid, started = (folder / _KEEPER).read_text().split()
        return int(pid), int(started)
    except (OSError, ValueError):
        return None


def _drain(fileno: int) -> tuple[bytes, bool]:
    blocks = []
    try:
        while block := os.read(fileno, 1 << 16):
            blocks.append(block)
            if len(blocks) >= 16:  # others want to be read, too
                return b"".join(blocks), False
    except BlockingIOError:
        return b"".join(blocks), False
    return b"".join(blocks), True


def _die_with_parent() -> None:
    prctl.end_with_parent(signal.SIGKILL)
