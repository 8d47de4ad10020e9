"""Bytes that the ranks of one host leave for each other in files in memory.

The files have no name and no place in /dev/shm, of which a pod has 64 MiB. System calls read and write them:
nothing is mapped, so that lack of memory is an error where it happens and no SIGBUS. What is written
counts as memory of the ranks' container.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from dglrun.arrays import Array

_KEPT = 32 << 20
"""Bytes that a file may keep for later collectives: clearing new memory costs more than copying into old."""
_ENTRY = 16
"""Bytes of a place's entry in a file's head: where its bytes begin, and how many they are, int64 each."""

Files = tuple[int, int]
"""Descriptors of a rank's two files, which are used in turn."""


def create(size: int) -> list[Files]:
    """Two files for each rank, before the ranks are forked: they share the descriptors.

    Raises:
        OSError: there are no descriptors left.
    """
    return [(_file(rank), _file(rank)) for rank in range(size)]


def _file(rank: int) -> int:
    return os.memfd_create(f"dglrun-rank-{rank}", os.MFD_CLOEXEC)


@contextmanager
def named(name: str) -> Iterator[None]:
    """Name an error that names no file: the output folder, which has no part in it, would be put there."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, name) from error


class HostMemory:
    """What all ranks have left, of which each writes its own.

    A file begins with an entry for each place; behind these are their bytes, one place after the other.
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
        self._lengths = [0, 0]

    def leave(self, places: Mapping[int, Array]) -> None:
        """Leave bytes for the next collective; those for the one before the last are overwritten.

        Args:
            places: By number, from 0 to the number of ranks: uint8, shape (bytes,), contiguous.

        Raises:
            OSError: there is no memory left.
        """
        self._turn ^= 1
        file = self._files[self._rank][self._turn]
        entries = np.zeros((len(self._files) + 1, 2), np.int64)
        end = len(entries) * _ENTRY
        with named("memory that the ranks share"):
            if self._lengths[self._turn] > _KEPT:
                os.ftruncate(file, 0)
                self._lengths[self._turn] = 0
            for place, data in places.items():
                entries[place] = end, len(data)
                _write(file, data, end)
                end += len(data)
            _write(file, entries.reshape(-1).view(np.uint8), 0)
        self._lengths[self._turn] = max(self._lengths[self._turn], end)

    def read(self, rank: int, place: int, data: Array) -> None:
        """Fill `data`, uint8, shape (bytes,), with what a rank has left at a place.

        Raises:
            EOFError: it has left more or fewer bytes there.
        """
        start, length = self._entry(rank, place)
        if length != len(data):
            raise EOFError(f"rank {rank} has left {length} bytes, expected {len(data)}")
        self._fill(rank, data, start)

    def take(self, rank: int, place: int) -> Array:
        """What a rank has left at a place, however much: uint8, shape (bytes,)."""
        start, length = self._entry(rank, place)
        data = np.empty(length, np.uint8)
        self._fill(rank, data, start)
        return data

    def _entry(self, rank: int, place: int) -> tuple[int, int]:
        entry = np.empty(2, np.int64)
        self._fill(rank, entry.view(np.uint8), place * _ENTRY)
        return int(entry[0]), int(entry[1])

    def _fill(self, rank: int, data: Array, at: int) -> None:
        rest = data.data
        while rest:
            came = os.preadv(self._files[rank][self._turn], [rest], at)
            if not came:
                raise EOFError(f"the file of rank {rank} ends {len(rest)} bytes too early")
            rest, at = rest[came:], at + came


def _write(file: int, data: Array, at: int) -> None:
    rest = data.data
    while rest:
        written = os.pwrite(file, rest, at)
        rest, at = rest[written:], at + written
