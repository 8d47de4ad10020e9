"""What a test leaves in its process, where other tests meet it: threads, child processes, sockets."""

import contextlib
import gc
import os
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.wait import wait_for

GRACE_SECONDS = 60.0
"""A thread or process that was told to end may still be at it when its test is over."""

LIVES_ON = {
    "tqdm.": "tqdm has one thread that watches over all its bars, for as long as the process lives",
    "multiprocessing.resource_tracker": "one process of multiprocessing's for as long as this one lives",
}
"""What stays by design, by the module of a thread or the command line of a process, and why."""


@dataclass(frozen=True)
class Running:
    """What is there at a moment.

    Attributes:
        threads: Of Python.
        children: Process IDs, with those that have ended and that nobody has waited for.
        sockets: Inodes.
    """

    threads: frozenset[threading.Thread]
    children: frozenset[int]
    sockets: frozenset[str]

    def since(self, before: "Running") -> list[str]:
        """A description of each thing that came since then and does not live on by design."""
        threads = [_thread(each) for each in self.threads - before.threads]
        children = [_process(each) for each in self.children - before.children]
        found = [*threads, *children, *(_socket(each) for each in self.sockets - before.sockets)]
        return [
            each for each in found if each and not any(name in each.partition("\n")[0] for name in LIVES_ON)
        ]


def running() -> Running:
    """What is there now."""
    return Running(frozenset(threading.enumerate()), frozenset(_children()), frozenset(_sockets()))


@contextmanager
def nothing_left(seconds: float = GRACE_SECONDS) -> Iterator[None]:
    """What is started within must have ended soon after.

    Raises:
        AssertionError: it has not; says what is left.
    """
    before = running()
    yield
    if not running().since(before):
        return
    gc.collect()  # what only garbage holds is closed by it, with a warning where that is a mistake
    with contextlib.suppress(TimeoutError):
        wait_for("the end", lambda: not running().since(before), seconds)
    left = running().since(before)
    assert not left, "left behind: " + "\n".join(left)


def _children() -> Iterator[int]:
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # the thread has ended meanwhile
            yield from map(int, (task / "children").read_text().split())


def _sockets() -> Iterator[str]:
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # such as the descriptor of this list
            name = str(each.readlink())
            if name.startswith("socket:"):
                yield name


def _thread(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None:  # it has ended meanwhile
        return ""
    where = "".join(traceback.format_stack(frame)[-6:])
    return f"thread {thread.name} of {type(thread).__module__}.{type(thread).__name__}, at\n{where}"


def _process(pid: int) -> str:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
    return f"process {pid}: {line or 'has ended, and nobody has waited for it'}"


def _socket(name: str) -> str:
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(each.readlink()) == name:
                with socket.socket(fileno=os.dup(int(each.name))) as found:
                    listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                    return f"socket {name} that {'listens' if listens else 'is open'}: {found!r}"
    return ""
