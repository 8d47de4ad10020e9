"""Gives memory back to the system that the C library keeps: it has a pool for each thread and empties none.

An operator that has read large objects once would otherwise stay as large as its largest moment. Python's own
allocator gives back whole MiB only, and of 60 that a burst took each fourth held a few small objects that
stayed; so the image says `PYTHONMALLOC=malloc`, and small objects come from the C library, too, which gives
back each free page. There each thread would keep up to seven freed pieces of each size for itself, which
nothing takes from it: with 50 threads 5 MiB, scattered over two or three times as many pages. So the image
says `GLIBC_TUNABLES=glibc.malloc.tcache_count=0`. Both are read before the first line: they cannot be set
here.
"""

import ctypes
import logging

log = logging.getLogger(__name__)

_ARENA_MAX, _MMAP_THRESHOLD = -8, -3
"""M_ARENA_MAX and M_MMAP_THRESHOLD of glibc's malloc.h."""
_POOLS = 2
_LARGE = 128 * 1024


def bound_pools() -> None:
    """Let threads share few pools without large pieces; does nothing with a C library other than glibc."""
    if mallopt := _function("mallopt"):
        mallopt(_ARENA_MAX, _POOLS)
        # The default as a fixed value: else it grows to the largest piece that was ever freed, and from then
        # on such pieces lie in the pools between small ones that stay, and cannot be given back.
        mallopt(_MMAP_THRESHOLD, _LARGE)


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
