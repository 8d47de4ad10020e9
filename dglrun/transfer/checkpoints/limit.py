"""A bound on bytes per second."""

import time
from collections.abc import Callable

ASK_SECONDS = 5.0
"""Between two questions whether the bound still holds."""


class Limit:
    """Lets bytes pass at a rate; what was not used for a while is not saved up.

    Args:
        rate: Bytes per second.
        is_lifted: Is asked now and then whether there is no bound any more, and not again once there is none.
    """

    def __init__(self, rate: float, is_lifted: Callable[[], bool] = lambda: False) -> None:
        self._rate, self._free_at = rate, 0.0
        self._is_lifted, self._ask_at, self._is_over = is_lifted, 0.0, False

    def take(self, size: int) -> None:
        """Wait until so many bytes may have been sent."""
        now = time.monotonic()
        if not self._is_over and now >= self._ask_at:
            self._is_over = self._is_lifted()
            self._ask_at = time.monotonic() + ASK_SECONDS
        if self._is_over:
            return
        self._free_at = max(self._free_at, now) + size / self._rate
        time.sleep(self._free_at - now)
