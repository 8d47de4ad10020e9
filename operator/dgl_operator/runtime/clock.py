"""The two clocks of the operator: the time of day for statuses, and one that never jumps for waits."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True)
class Clock:
    """Both clocks; tests have their own.

    Attributes:
        now: The time of day in UTC, whole seconds, as the API server stores times.
        seconds: Seconds since some moment, for the length of waits.
    """

    now: Callable[[], datetime]
    seconds: Callable[[], float] = time.monotonic


SYSTEM_CLOCK = Clock(lambda: datetime.now(UTC).replace(microsecond=0))
