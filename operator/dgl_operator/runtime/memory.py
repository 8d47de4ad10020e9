"""Gives memory back to the system that the C library keeps: it has a pool for each thread and empties none.

An operator that has read large objects once would otherwise stay as large as its largest moment.
"""

import ctypes
import logging

log = logging.getLogger(__name__)

_ARENA_MAX = -8
"""M_ARENA_MAX of glibc's malloc.h."""
_POOLS = 2


def bound_pools() -> None:
    """Let all threads share few pools; does nothing with another C library than glibc."""
    if mallopt := _function("mallopt"):
        mallopt(_ARENA_MAX, _POOLS)


def give_back() -> None:
    """Return free memory to the system; does nothing with another C library than glibc."""
    if trim := _function("malloc_trim"):
        trim(0)


def _function(name: str) -> "ctypes._NamedFuncPointer | None":
    try:
        found: ctypes._NamedFuncPointer = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return None
    return found
