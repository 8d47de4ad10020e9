"""Memory that was freed goes back to the kernel, before another process or library needs it."""

import ctypes

import pyarrow as pa

_libc = ctypes.CDLL(None)


def give_back() -> None:
    """Return what the allocators of numpy and pyarrow keep for later: after reading a graph, most of it."""
    pa.default_memory_pool().release_unused()
    if hasattr(_libc, "malloc_trim"):  # glibc only
        _libc.malloc_trim(0)
