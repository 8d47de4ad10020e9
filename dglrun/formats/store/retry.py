"""Calls that are repeated while the object storage is away."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from dglrun.errors import StoreError

T = TypeVar("T")

PATIENCE = 180.0
"""Seconds for which a server may be away: it is restarted, or another one takes over."""
_FIRST, _LONGEST = 0.2, 5.0


def retried(call: Callable[[], T], deadline: float = PATIENCE) -> T:
    """Call again after each failure that may pass, with growing pauses.

    Args:
        call: What to do; each time from its beginning.
        deadline: Seconds after the first failure; the next one is then raised.

    Raises:
        StoreError: it is none that may pass, or still fails after the deadline.
    """
    pause, until = _FIRST, 0.0
    while True:
        try:
            return call()
        except StoreError as error:
            now = time.monotonic()
            until = until or now + deadline
            if not error.is_transient or now + pause > until:
                raise
        time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads retries, no secret
        pause = min(pause * 2, _LONGEST)
