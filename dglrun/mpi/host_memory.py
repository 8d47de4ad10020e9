"""Bytes that the ranks of one host leave for each other in files in memory.

The files have no name and no place in /dev/shm, of which a pod has 64 MiB. System calls read and write them:
nothing is mapped, so that lack of memory is an error where it happens and no SIGBUS. What is written
counts as memory of the ranks' container.
"""

import os
from collections.abc import Sequence

from dglrun.arrays import Array

_DISTANCE = 1 << 40
"""Bytes between two places in a file: it has holes, and takes memory for what is written only."""


def create(size: int) -> list[int]:
    """One file for each rank, before the ranks are forked: they share the descriptors.

    Raises:
        OSError: there are no descriptors left.
    """
    return [os.memfd_create(f"dglrun-rank-{rank}", os.MFD_CLOEXEC) for rank in range(size)]


class HostMemory:
    """What all ranks have left, of which each writes its own.

    A rank may write for the next collective while another one still reads what it wrote for the last, so
    places come in pairs that are used in turn. That all have written before any reads is the caller's part.

    Args:
        rank: This rank.
        files: Descriptors by rank.
    """

    def __init__(self, rank: int, files: Sequence[int]) -> None:
        self._rank = rank
        self._files = files
        self._turn = 0

    def next(self) -> None:
        """Begin the next collective; what was written for the one before the last is overwritten."""
        self._turn ^= 1

    def write(self, place: int, data: Array, start: int = 0) -> None:
        """Leave bytes at a place of this rank's file.

        Args:
            place: Its number, from 0.
            data: uint8, shape (bytes,), contiguous.
            start: Byte of the place that they begin at.

        Raises:
            OSError: there is no memory left.
        """
        rest, at = data.data, self._offset(place) + start
        while rest:
            written = os.pwrite(self._files[self._rank], rest, at)
            rest, at = rest[written:], at + written

    def read(self, rank: int, place: int, data: Array, start: int = 0) -> None:
        """Fill `data`, see `write`, with what a rank has left there.

        Raises:
            EOFError: it has left less.
        """
        rest, at = data.data, self._offset(place) + start
        while rest:
            came = os.preadv(self._files[rank], [rest], at)
            if not came:
                raise EOFError(f"rank {rank} has left {len(rest)} bytes less than it said")
            rest, at = rest[came:], at + came

    def _offset(self, place: int) -> int:
        return (2 * place + self._turn) * _DISTANCE
