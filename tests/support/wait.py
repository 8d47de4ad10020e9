"""The one way in which tests wait: for a condition, with a deadline, and never for a fixed time."""

import subprocess
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LONGEST_PAUSE = 0.2
"""A look may cost a process or a request, so that a long wait looks less often than a short one."""


def wait_for(what: str, look: Callable[[], T | None], seconds: float = 60.0) -> T:
    """Look again and again until something is there, and return it.

    Args:
        what: Completes the sentence "... did not come within 60 s".
        look: Gives what is waited for; None or False: not yet.
        seconds: The deadline.

    Raises:
        TimeoutError: it did not come in time; names it.
    """
    deadline, pause = time.monotonic() + seconds, 0.01
    while (found := look()) is None or found is False:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: did not come within {seconds:g} s")
        time.sleep(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE)
    return found


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
