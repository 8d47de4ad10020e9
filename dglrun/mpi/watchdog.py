"""The deadline of a rank that waits for others: it holds from the last time at which one of them worked.

A rank with a large part works for long while the others wait for it; that is no failure. So each rank tells
the others now and then that it works, and only silence ends a wait.
"""

import atexit
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from dglrun.contract import exitcodes

WAIT = 1800.0
"""Seconds that a rank waits for others of which none works, where nobody says otherwise."""
_SHARE = 0.001
"""Of one CPU: a rank that has used less has not worked, unless it has moved bytes. One that receives 2 MB/s
uses more, and a watchdog alone a twentieth."""
_LEAST = 0.01
"""CPU seconds that it has used then at least."""
_BYTES = 1 << 20
"""What it has read and written then, of files and pipes: the kernel does not count what sockets receive."""
_IO = Path("/proc/self/io")


class Pulse(Protocol):
    """How ranks tell each other that they work; both methods are called by the watchdog's thread."""

    def beat(self) -> None:
        """Tell the others that this rank works."""

    def heard(self) -> bool:
        """Whether another rank has told so since the last call."""


class Watchdog:
    """Ends the process when it has waited longer than allowed for ranks of which none has worked meanwhile.

    A quarter of that time is the interval in which a rank notes and tells what it has done; so jobs that end
    within it send nothing.

    Args:
        timeout: Seconds.
        rank: This rank, for the message.
        pulse: See the attribute.

    Attributes:
        pulse: How it hears of the others; None: it does not, and the time counts from the start of the wait.
    """

    def __init__(self, timeout: float, rank: int, pulse: Pulse | None = None) -> None:
        self._timeout = timeout
        self._rank = rank
        self.pulse = pulse
        self._since: float | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        atexit.register(self.end)  # before MPI ends, which the thread may ask

    def end(self) -> None:
        """Watch no longer."""
        self._ended.set()
        self._thread.join()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Mark the time spent inside as waiting."""
        self._since = time.monotonic()
        try:
            yield
        finally:
            self._since = None

    def _watch(self) -> None:
        pause, interval = min(1.0, self._timeout / 8), self._timeout / 4
        work, heard, seen = _Work(), 0.0, time.monotonic()
        while not self._ended.wait(pause):
            now, since, pulse = time.monotonic(), self._since, self.pulse
            if since is None:
                if work.seconds(now) > interval and work.is_done(now) and pulse is not None:
                    pulse.beat()
            elif now - seen > self._timeout / 2 or _has_heard(pulse, now - max(since, heard) > interval):
                heard = now  # or this process was stopped, and knows nothing of the others meanwhile
            elif now - max(since, heard) > self._timeout:
                self._expire(since)
            seen = now

    def _expire(self, since: float) -> None:
        if self._since != since:  # they have just come
            return
        print(
            f"rank {self._rank}: waited more than {self._timeout:g} s for the other ranks",
            file=sys.stderr,
            flush=True,
        )
        os._exit(exitcodes.TIMEOUT)  # the main thread may wait inside of MPI, which no exception reaches


def _has_heard(pulse: Pulse | None, asks: bool) -> bool:
    return asks and pulse is not None and pulse.heard()


class _Work:
    """What this process has done since it was last looked at."""

    def __init__(self) -> None:
        self._since, self._cpu, self._bytes = time.monotonic(), time.process_time(), _moved_bytes()

    def seconds(self, now: float) -> float:
        """Since then."""
        return now - self._since

    def is_done(self, now: float) -> bool:
        """Whether it has worked; the next look begins here."""
        cpu, moved = time.process_time(), _moved_bytes()
        used = cpu - self._cpu > max(_LEAST, _SHARE * self.seconds(now))
        has_worked = used or moved - self._bytes > _BYTES
        self._since, self._cpu, self._bytes = now, cpu, moved
        return has_worked


def _moved_bytes() -> int:
    """Bytes read and written by system calls, see proc(5); 0 where the kernel does not count them."""
    try:
        return sum(int(line.split()[1]) for line in _IO.read_text().splitlines() if "char:" in line)
    except OSError:
        return 0
