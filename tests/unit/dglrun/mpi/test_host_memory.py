"""The files in memory by which the ranks of one host exchange."""

import os
from collections.abc import Iterator

import numpy as np
import pytest

from dglrun.mpi import host_memory
from dglrun.mpi.host_memory import HostMemory

MINE, OTHER = 0, 1


def of(text: bytes) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
    return np.frombuffer(text, np.uint8)


@pytest.fixture
def memories() -> Iterator[tuple[HostMemory, HostMemory]]:
    """Those of two ranks, which have met once."""
    files = host_memory.create(2)
    yield HostMemory(MINE, files), HostMemory(OTHER, files)
    for each in files:
        os.close(each[0])
        os.close(each[1])


def test_what_is_left_at_a_place_is_read_there(memories: tuple[HostMemory, HostMemory]) -> None:
    """And what was left there before is gone, however long it was."""
    mine, other = memories
    for text in (b"much longer than the next", b"at the turn of the other file", b"short"):
        mine.leave({OTHER: of(text), 2: of(text[::-1])})
        other.leave({})

        assert other.take(MINE, OTHER).tobytes() == text
        assert other.take(MINE, 2).tobytes() == text[::-1]
        assert other.take(MINE, MINE).tobytes() == b""


@pytest.mark.parametrize("expected", [0, 2, 4])
def test_a_rank_that_has_left_another_number_of_bytes_is_a_bug_that_shows(
    memories: tuple[HostMemory, HostMemory], expected: int
) -> None:
    """What it left elsewhere is not taken for it."""
    mine, other = memories
    mine.leave({OTHER: of(b"abc"), 2: of(b"defg")})
    other.leave({})

    with pytest.raises(EOFError, match=f"rank 0 has left 3 bytes, expected {expected}"):
        other.read(MINE, OTHER, np.empty(expected, np.uint8))


def test_a_file_that_is_cut_short_shows(memories: tuple[HostMemory, HostMemory]) -> None:
    """As by a rank that is out of step."""
    mine, other = memories
    mine.leave({OTHER: of(b"abc")})
    other.leave({})
    os.truncate(mine._files[MINE][mine._turn], 50)

    with pytest.raises(EOFError, match="the file of rank 0 ends 1 bytes too early"):
        other.read(MINE, OTHER, np.empty(3, np.uint8))
