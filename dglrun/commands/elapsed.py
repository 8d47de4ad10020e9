"""Shows that a stage without output of its own still runs."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 5.0
"""Until the first line, and between the following ones."""


@contextmanager
def showing(what: str, seconds: float | None = None) -> Iterator[None]:
    """Print `what: N s` every few seconds while the work inside runs; on a terminal one line is rewritten.

    Args:
        what: The command and its stage.
        seconds: Between two lines; None: SECONDS.
    """
    ended = threading.Event()
    thread = threading.Thread(target=_show, args=(what, seconds or SECONDS, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _show(what: str, seconds: float, ended: threading.Event) -> None:
    started, is_terminal, shown = time.monotonic(), sys.stdout.isatty(), False
    while not ended.wait(seconds):
        text = f"{what}: {time.monotonic() - started:.0f} s"
        try:
            print(f"\r{text}" if is_terminal else text, end="" if is_terminal else "\n", flush=True)
        except OSError:  # nobody reads: the work itself finds out when it prints
            return
        shown = True
    if shown and is_terminal:
        print(flush=True)
