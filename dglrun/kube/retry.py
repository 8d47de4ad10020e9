"""Waiting longer after each failure, up to a deadline."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from dglrun.kube.errors import ApiError, Forbidden, Unavailable

T = TypeVar("T")


@dataclass(frozen=True)
class Backoff:
    """Pauses that double from `first` to `longest` seconds, each cut by up to a half at random.

    Attributes:
        first: First pause.
        longest: No pause is longer.
        give_up_after: Seconds from the first failure after which the last error is raised.
    """

    first: float = 0.2
    longest: float = 10.0
    give_up_after: float = 60.0

    def pauses(self) -> Iterator[float]:
        """Endless: the pause before each further try."""
        pause = self.first
        while True:
            yield pause * random.uniform(0.5, 1.0)  # noqa: S311 - spreads retries, no secret
            pause = min(pause * 2, self.longest)


def until_available(
    call: Callable[[], T],
    backoff: Backoff,
    allowed_by: Callable[[], float] = lambda: 0.0,
    on_wait: Callable[[ApiError], None] = lambda _error: None,
) -> T:
    """Call again while the server is unavailable, and while the account may not have its rights yet.

    Args:
        call: One request.
        backoff: How long and how often it is repeated.
        allowed_by: Says until when (monotonic) 403 may still become an answer.
        on_wait: Called before each pause with what has failed.

    Raises:
        Unavailable: still so `backoff.give_up_after` seconds after the first failure.
        Forbidden: still so at that time.
        ApiError: any other answer, at once.
    """
    deadline: float | None = None
    for pause in backoff.pauses():
        try:
            return call()
        except Unavailable as error:
            now = time.monotonic()
            deadline = deadline or now + backoff.give_up_after
            wait = max(pause, error.retry_after or 0.0)
            if now + wait > deadline:
                raise
            on_wait(error)
            time.sleep(wait)
        except Forbidden as error:
            if time.monotonic() + pause > allowed_by():
                raise
            on_wait(error)
            time.sleep(pause)
    raise AssertionError("pauses() is endless")
