"""The workers' output on the launcher's stdout, by a thread of its own.

Whoever reads the launcher's log may be slow or gone: then this thread alone waits, never the heartbeats and
never the records that say how a process has ended.
"""

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
    """Prints chunks in the order in which they come; safe for many threads.

    What waits is bounded by the senders, each of which sends only a window beyond what has been printed.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Chunk | None] = queue.SimpleQueue()
        self._see: Callable[[int, str, str], None] | None = None
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)
        self._thread.start()

    def observe(self, see: Callable[[int, str, str], None]) -> None:
        """Show somebody worker index, process and text of each line that is printed from now on."""
        self._see = see

    def put(self, chunk: Chunk) -> None:
        """Print a chunk when those before it have been printed."""
        self._queue.put(chunk)

    def close(self, seconds: float) -> None:
        """Print what waits, for so long at most."""
        self._queue.put(None)
        self._thread.join(seconds)

    def _run(self) -> None:
        while chunk := self._queue.get():
            sys.stdout.write("".join(f"[worker-{chunk.worker} {who}] {text}\n" for who, text in chunk.lines))
            sys.stdout.flush()
            if see := self._see:
                for who, text in chunk.lines:
                    see(chunk.worker, who, text)
            chunk.printed()
