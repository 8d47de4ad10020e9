"""A unit test that leaves a thread, a process or a socket fails itself, and not the test that meets it."""

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from tests.support.leftovers import nothing_left

Forgotten = Callable[[], AbstractContextManager[Callable[[], object]]]


@contextmanager
def a_thread() -> Iterator[Callable[[], object]]:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait, name="forgotten")
    yield thread.start
    ended.set()
    thread.join()


@contextmanager
def a_process() -> Iterator[Callable[[], object]]:
    started: list[subprocess.Popen[bytes]] = []
    argv = (sys.executable, "-c", "input()")
    yield lambda: started.append(subprocess.Popen(argv, stdin=subprocess.PIPE))
    started[0].communicate(b"\n", 60)


@contextmanager
def a_zombie() -> Iterator[Callable[[], object]]:
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        process = subprocess.Popen(("true",), stdout=subprocess.PIPE)
        started.append(process)
        if process.stdout:
            process.stdout.read()  # to its end, which is that of the process

    yield start
    started[0].communicate(timeout=60)


@contextmanager
def a_listener() -> Iterator[Callable[[], object]]:
    held: list[socket.socket] = []
    yield lambda: held.append(socket.create_server(("127.0.0.1", 0)))
    held[0].close()


FORGOTTEN = [
    (a_thread, "thread forgotten of threading.Thread, at\n.*in wait"),
    (a_process, r"process \d+: .*python.* -c input\(\)"),
    (a_zombie, r"process \d+: has ended, and nobody has waited for it"),
    (a_listener, r"socket socket:\[\d+\] that listens: .*127\.0\.0\.1"),
]


@pytest.mark.parametrize(("forgotten", "words"), FORGOTTEN)
def test_what_is_left_is_named(forgotten: Forgotten, words: str) -> None:
    """With what tells where it is from."""
    said = pytest.raises(AssertionError, match=f"(?s)left behind: {words}")
    with forgotten() as start, said, nothing_left(0.2):
        start()


def test_what_ends_soon_after_is_not_left() -> None:
    """A thread that was told to end is still at it for a moment."""
    with nothing_left():
        threading.Timer(0.05, lambda: None).start()


def test_what_was_there_before_may_stay() -> None:
    """The threads and sockets of a fixture that several tests share."""
    with a_thread() as start:
        start()
        with nothing_left(0.2):
            pass
