"""The headers by which the API server knows us: kept for some seconds, since tokens rotate.

The Kubernetes client looks for a newer token, and for proxies in the environment, each time that it is asked.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

KEPT_SECONDS = 10.0
"""A kubelet renews a token minutes before it ends. After the answer 401 the client is asked at once; it looks
into the file of a pod's token once in a minute."""


class Authorization:
    """Safe to use from several threads: whoever finds the headers too old asks for new ones."""

    def __init__(
        self, ask: Callable[[], Mapping[str, Mapping[str, Any]]], now: Callable[[], float] = time.monotonic
    ) -> None:
        """Ask for nothing yet.

        Args:
            ask: Returns the client's ways to authorise, each with `key` and `value` of a header.
            now: The clock, in seconds.
        """
        self._ask = ask
        self._now = now
        # Held while asking, so that a refused header is not stored after it was forgotten.
        self._lock = threading.Lock()
        self._kept: tuple[float, dict[str, str]] | None = None

    def headers(self) -> dict[str, str]:
        """Return the headers, which may be `KEPT_SECONDS` old."""
        kept = self._kept
        if kept is not None and self._now() < kept[0]:
            return kept[1]
        with self._lock:
            kept, now = self._kept, self._now()
            if kept is None or now >= kept[0]:
                found = {each["key"]: each["value"] for each in self._ask().values()}
                kept = self._kept = (now + KEPT_SECONDS, found)
            return kept[1]

    def forget(self, refused: Mapping[str, str]) -> None:
        """Ask anew for the next request: the API server did not take these; newer ones stay."""
        with self._lock:
            if self._kept is not None and self._kept[1] == refused:
                self._kept = None
