"""Say what is being done and how long it took, and wait for conditions with a deadline."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StepError(Exception):
    """Something the tool relies on did not happen; the message says what, and what was seen instead."""


@contextmanager
def step(name: str, *, long: bool = False) -> Iterator[None]:
    """Print a line with the seconds that the block took.

    Args:
        name: what is being done.
        long: say so at the start too where the output is no terminal, on which it always stands.
    """
    on_terminal = sys.stdout.isatty()
    if on_terminal or long:
        print(f"    ...    {name}", end="" if on_terminal else "\n", flush=True)
    start = time.monotonic()
    outcome = "FAILED "
    try:
        yield
        outcome = ""
    finally:
        seconds = time.monotonic() - start
        begin = "\r" if on_terminal else ""
        print(f"{begin}{seconds:7.1f} s  {outcome}{name}", flush=True)


def note(text: str) -> None:
    """Print a line below the steps' names."""
    print(f"           {text}", flush=True)


def until(
    what: str,
    ready: Callable[[], bool],
    *,
    seconds: float,
    check: Callable[[], None] = lambda: None,
    pause: float = 0.1,
) -> None:
    """Ask again and again until the answer is yes.

    Args:
        what: completes the sentence "waited in vain for ...".
        ready: the question.
        seconds: the deadline.
        check: called before each question; raises when waiting has become pointless.
        pause: the time between two questions.

    Raises:
        StepError: the deadline passed.
    """
    deadline = time.monotonic() + seconds
    while True:
        check()
        if ready():
            return
        if time.monotonic() > deadline:
            raise StepError(f"waited {seconds:.0f} s in vain for {what}")
        time.sleep(pause)
