"""The one way in which tests wait: for a condition, with a deadline, and never for a fixed time."""

import subprocess
import time
from collections.abc import Callable, Sized
from typing import TypeVar

T = TypeVar("T")

LONGEST_PAUSE = 0.2
"""A look may cost a process or a request, so that a long wait looks less often than a short one."""


def wait_for(what: str, look: Callable[[], T | None], seconds: float = 60.0) -> T:
    """Look again and again until something is there, and return it.

    Args:
        what: Completes the sentence "... did not come within 60 s".
        look: Gives what is waited for; None, False and what is empty: not yet. 0 is there.
        seconds: The deadline.

    Raises:
        TimeoutError: it did not come in time; names it.
    """
    deadline, pause = time.monotonic() + seconds, 0.01
    while True:
        found = look()
        if found is not None and not _is_missing(found):
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: did not come within {seconds:g} s")
        time.sleep(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE)


def _is_missing(found: object) -> bool:
    """Whether it is not there yet; a list of answers without any is not, else a test goes on too early."""
    return found is False or (isinstance(found, Sized) and not found)


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """Read a process's output up to the line with `text`, and return that output.

    Raises:
        AssertionError: the output ended without it.
    """
    found = ""
    assert process.stdout
    for line in process.stdout:
        found += line
        if text in line:
            return found
    raise AssertionError(f"{text!r} was never in the output:\n{found}")
