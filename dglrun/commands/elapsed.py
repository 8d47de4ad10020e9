"""Shows on stderr that a stage without output of its own still runs; stdout is for results."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

SECONDS = 5.0
"""Until the first line, and between the following ones."""


@contextmanager
def showing(what: str, seconds: float = SECONDS, is_rank: bool = False) -> Iterator[None]:
    """Print `what: N s` every few seconds while the work inside runs; on a terminal one line is rewritten.

    Args:
        what: The command and its stage.
        seconds: Between two lines.
        is_rank: Started by mpirun, which gives its ranks a terminal even where their output goes to a log.
    """
    ended, rewrites = threading.Event(), sys.stderr.isatty() and not is_rank
    thread = threading.Thread(target=_show, args=(what, seconds, rewrites, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def showing_on_first(rank: int, what: str, is_rank: bool = True) -> AbstractContextManager[None]:
    """The same for work that all ranks do: the first of them shows it."""
    return showing(what, is_rank=is_rank) if rank == 0 else nullcontext()


def _show(what: str, seconds: float, rewrites: bool, ended: threading.Event) -> None:
    started, shown = time.monotonic(), False
    while not ended.wait(seconds):
        text = f"{what}: {time.monotonic() - started:.0f} s"
        try:
            line = f"\r{text}" if rewrites else f"{text}\n"
            print(line, end="", file=sys.stderr, flush=True)
        except OSError:  # nobody reads: the work itself finds out when it prints
            return
        shown = True
    if shown and rewrites:
        print(file=sys.stderr, flush=True)
