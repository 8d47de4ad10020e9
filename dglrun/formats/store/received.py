"""How many bytes this process has read from object storage: what shows that a rank reads its share only."""

import threading

_lock = threading.Lock()  # Arrow reads from threads of its own
_count = 0


def bytes_read() -> int:
    """Bytes of objects that have come so far, without headers and listings."""
    return _count


def add(number: int) -> None:
    """Count bytes that have come."""
    global _count  # noqa: PLW0603 - a count of the process
    with _lock:
        _count += number
