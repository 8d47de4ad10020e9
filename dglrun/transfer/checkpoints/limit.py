"""A bound on bytes per second."""

import time


class Limit:
    """Lets bytes pass at a rate; what was not used for a while is not saved up.

    Args:
        rate: Bytes per second.
    """

    def __init__(self, rate: float) -> None:
        self._rate, self._free_at = rate, 0.0

    def take(self, size: int) -> None:
        """Wait until so many bytes may have been sent."""
        now = time.monotonic()
        self._free_at = max(self._free_at, now) + size / self._rate
        time.sleep(self._free_at - now)
