"""Local numbers of a part's edges, and the halo: sources that other parts own.

Works in windows of the ID space, so memory does not grow with the number of nodes; up to the window's
size one pass over the edges suffices. A part with few edges, one of thousands, sorts its sources instead:
going over all nodes of the graph for each part would take longer than all the rest.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from dglrun.arrays import Array, Ints

WINDOW = 32 << 20
"""IDs looked at together; a window takes 5 to 9 bytes for each."""
FEW = 256
"""With more nodes in the graph than so many times its edges, a part sorts. By CPU time: at 4M nodes it is as
fast at 512 times, at 100M at 128 times; with 4096 times as many nodes sorting takes 2.5 instead of 66 ms."""


def localise(sources: Sequence[Array], inner: tuple[int, int], total: int, window: int = WINDOW) -> Ints:
    """Replace shuffle-global sources by part-local ones, in place.

    Inner nodes come first, in their order; halo nodes follow, ascending.

    Args:
        sources: Arrays of shuffle-global IDs from 0 to `total` - 1, all int32 or all int64, shape (edges of
            the run,) each; changed in place.
        inner: First ID of the part and the ID after its last one.
        total: Number of nodes of the whole graph.
        window: IDs in a window.

    Returns:
        The shuffle-global IDs of the halo nodes, ascending, int64, shape (halo nodes,).
    """
    if total > FEW * sum(map(len, sources)):
        return _localise_few(sources, inner)
    halo: list[Ints] = []
    following = inner[1] - inner[0]
    for low in range(0, total, window):
        high = min(low + window, total)
        found = _outside(sources, inner, low, high)
        _renumber(sources, _table(inner, low, high, found, following, sources), low, high)
        following += len(found)
        halo.append(found)
    for array in sources:
        np.invert(array, out=array)
    return np.concatenate([np.empty(0, np.int64), *halo])


def _localise_few(sources: Sequence[Array], inner: tuple[int, int]) -> Ints:
    """See `localise`: takes time and memory of the edges alone."""
    if not sources:
        return np.empty(0, np.int64)
    every = np.unique(np.concatenate(sources))
    halo = every[(every < inner[0]) | (every >= inner[1])]
    for array in sources:
        own = (array >= inner[0]) & (array < inner[1])
        following = np.searchsorted(halo, array) + (inner[1] - inner[0])
        array[:] = np.where(own, array - inner[0], following)
    found: Ints = halo.astype(np.int64)
    return found


def _outside(sources: Sequence[Array], inner: tuple[int, int], low: int, high: int) -> Ints:
    """IDs in the window that occur among the sources and are not inner."""
    seen = np.zeros(high - low, bool)
    for array in sources:
        seen[_within(array, low, high) - low] = True
    seen[max(inner[0] - low, 0) : max(inner[1] - low, 0)] = False
    return np.flatnonzero(seen) + low


def _within(array: Array, low: int, high: int) -> Array:
    """The entries in the window; numbered ones are negative and so never are."""
    if not len(array) or (array.min() >= low and array.max() < high):
        return array
    return array[(array >= low) & (array < high)]


def _table(
    inner: tuple[int, int], low: int, high: int, halo: Ints, following: int, sources: Sequence[Array]
) -> Array:
    """Complement of the local number of each ID in the window."""
    dtype = sources[0].dtype if sources else np.dtype(np.int64)
    table = np.empty(high - low, dtype)
    first, last = max(inner[0], low), min(inner[1], high)
    if first < last:
        table[first - low : last - low] = ~np.arange(first - inner[0], last - inner[0], dtype=dtype)
    table[halo - low] = ~np.arange(following, following + len(halo), dtype=dtype)
    return table


def _renumber(sources: Sequence[Array], table: Array, low: int, high: int) -> None:
    for array in sources:
        inside = (array >= low) & (array < high)
        if inside.all():
            array[:] = table.take(array - low if low else array)
        elif inside.any():
            array[inside] = table.take(array[inside] - low)


def batches(length: int, rows: int) -> Iterator[tuple[int, int]]:
    """Cut `length` rows into `(start, stop)` of at most `rows`."""
    for start in range(0, length, rows):
        yield start, min(start + rows, length)
