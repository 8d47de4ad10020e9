"""Bytes that the ranks of one host leave for each other in files in memory.

The files have no name and no place in /dev/shm, of which a pod has 64 MiB. System calls read and write them:
nothing is mapped, so that lack of memory is an error where it happens and no SIGBUS. What is written
counts as memory of the ranks' container.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dglrun.arrays import Array

_DISTANCE = 1 << 40
"""Bytes between two places in a file: it has holes, and takes memory for what is written only."""
_KEPT = 32 << 20
"""Bytes that a file may keep for later collectives: clearing new memory costs more than copying into old."""
_NAME = "memory that the ranks share"
"""In the place of a file's name in errors."""

Files = tuple[int, int]
"""Descriptors of a rank's two files, which are used in turn."""


def create(size: int) -> list[Files]:
    """Two files for each rank, before the ranks are forked: they share the descriptors.

    Raises:
        OSError: there are no descriptors left.
    """
    return [(_file(rank), _file(rank)) for rank in range(size)]


def _file(rank: int) -> int:
    with _naming():
        return os.memfd_create(f"dglrun-rank-{rank}", os.MFD_CLOEXEC)


@contextmanager
def _naming() -> Iterator[None]:
    """Give an error a name: that of the output folder, which has no part in it, would be put there."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, _NAME) from error


class HostMemory:
    """What all ranks have left, of which each writes its own.

    A rank may write for the next collective while another one still reads what it wrote for the last; hence
    two files. That all have written before any reads is the caller's part.

    Args:
        rank: This rank.
        files: By rank.
    """

    def __init__(self, rank: int, files: Sequence[Files]) -> None:
        self._rank = rank
        self._files = files
        self._turn = 0
        self._held: tuple[dict[int, int], dict[int, int]] = ({}, {})  # bytes of each place in each file

    def begin(self) -> None:
        """Begin the next collective; what was written for the one before the last is overwritten."""
        self._turn ^= 1
        held = self._held[self._turn]
        if sum(held.values()) > _KEPT:
            os.ftruncate(self._files[self._rank][self._turn], 0)
            held.clear()

    def write(self, place: int, data: Array, start: int = 0) -> None:
        """Leave bytes at a place of this rank's file.

        Args:
            place: Its number, from 0.
            data: uint8, shape (bytes,), contiguous.
            start: Byte of the place that they begin at.

        Raises:
            OSError: there is no memory left.
        """
        rest, at = data.data, place * _DISTANCE + start
        held = self._held[self._turn]
        held[place] = max(held.get(place, 0), start + len(rest))
        with _naming():
            while rest:
                written = os.pwrite(self._files[self._rank][self._turn], rest, at)
                rest, at = rest[written:], at + written

    def read(self, rank: int, place: int, data: Array, start: int = 0) -> None:
        """Fill `data`, see `write`, with what a rank has left there, which is as much.

        Raises:
            EOFError: its file ends before.
        """
        rest, at = data.data, place * _DISTANCE + start
        while rest:
            came = os.preadv(self._files[rank][self._turn], [rest], at)
            if not came:
                raise EOFError(f"rank {rank} has left {len(rest)} bytes less than it said")
            rest, at = rest[came:], at + came
