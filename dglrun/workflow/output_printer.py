"""The workers' output on the launcher's stdout, by a thread of its own.

Whoever reads the launcher's log may be slow or gone: then this thread alone waits, never the heartbeats and
never the records that say how a process has ended.
"""

import io
import queue
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Chunk:
    """Lines of one worker that came together.

    Attributes:
        worker: Index of the worker.
        lines: (process, text) pairs.
        printed: Called when they have been printed.
    """

    worker: int
    lines: tuple[tuple[str, str], ...]
    printed: Callable[[], None]


class OutputPrinter:
    """Prints chunks and lines in the order in which they come; safe for many threads.

    What waits is bounded by the senders, each of which sends only a window beyond what has been printed.

    Args:
        fail: Called once, in the printer's thread, when stdout takes nothing any more; from then on nothing
            is printed, but all is said to have been, so that nobody waits for it.
    """

    def __init__(self, fail: Callable[[Exception], None]) -> None:
        self._fail, self._is_broken = fail, False
        self._queue: queue.SimpleQueue[Chunk | str | threading.Event | None] = queue.SimpleQueue()
        self._see: Callable[[int, str, str], None] | None = None
        if isinstance(sys.stdout, io.TextIOWrapper):  # a script may write what the locale has no letters for
            sys.stdout.reconfigure(errors="backslashreplace")
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)
        self._thread.start()

    def observe(self, see: Callable[[int, str, str], None]) -> None:
        """Show somebody worker index, process and text of each line that is printed from now on."""
        self._see = see

    def put(self, chunk: Chunk) -> None:
        """Print a chunk when what came before it has been printed."""
        self._queue.put(chunk)

    def say(self, line: str) -> None:
        """Print a line of our own when what came before it has been printed; does not wait for that."""
        self._queue.put(line)

    def flush(self, seconds: float) -> None:
        """Wait until what has come is printed, for so long at most."""
        printed = threading.Event()
        self._queue.put(printed)
        printed.wait(seconds)

    def close(self, seconds: float) -> None:
        """Print what waits, for so long at most."""
        self._queue.put(None)
        self._thread.join(seconds)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                if not self._is_broken:
                    self._print(item)
            except Exception as error:
                self._is_broken = True
                self._fail(error)
            if isinstance(item, Chunk):
                item.printed()
            if isinstance(item, threading.Event):
                item.set()

    def _print(self, item: Chunk | str | threading.Event) -> None:
        if isinstance(item, str):
            sys.stdout.write(f"{item}\n")
        elif isinstance(item, Chunk):
            sys.stdout.write("".join(f"[worker-{item.worker} {who}] {text}\n" for who, text in item.lines))
        sys.stdout.flush()
        if isinstance(item, Chunk) and (see := self._see):
            for who, text in item.lines:
                see(item.worker, who, text)
