"""Rows on disk by bucket, and values that are made range by range: what is larger than the memory."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from dglrun.arrays import Array, Ints
from dglrun.errors import UnwritableError
from dglrun.formats import open_files

_OTHER_FILES = 128
"""Descriptors for all but the buckets' files."""


def room(rows: int, least: int, kinds: int = 1) -> int:
    """Rows of a bucket, so that a file for each can be open at a time.

    Args:
        rows: Rows in all buckets together.
        least: Rows of a bucket at least.
        kinds: How many sets of such buckets there are.
    """
    files = max(1, (open_files.limit() - _OTHER_FILES) // max(1, kinds))
    return max(least, -(-rows // files))


class Spill:
    """Rows of int64 columns by bucket, in the order in which they came; files are made as they are needed."""

    def __init__(self, folder: Path, columns: int) -> None:
        """Make the folder.

        Args:
            folder: Where the files lie; must not be there.
            columns: Of a row.
        """
        folder.mkdir()
        self._folder, self._columns = folder, columns
        self._files: dict[int, BinaryIO] = {}
        self._stack = ExitStack()

    def __enter__(self) -> "Spill":
        return self

    def __exit__(self, *_error: object) -> None:
        with self._naming():  # closing writes what is left
            self._stack.close()

    def add(self, buckets: Ints, rows: Ints) -> None:
        """Add rows.

        Args:
            buckets: Bucket of each row, int64, shape (rows,).
            rows: int64, shape (rows, columns).

        Raises:
            UnwritableError: the disk is full or fails; names the folder.
        """
        order = np.argsort(buckets, kind="stable")
        found, starts = np.unique(buckets[order], return_index=True)
        with self._naming():
            for bucket, piece in zip(found, np.split(rows[order], starts[1:]), strict=False):
                self._file(int(bucket)).write(np.ascontiguousarray(piece, np.int64).data)

    def _file(self, bucket: int) -> BinaryIO:
        if bucket not in self._files:
            opened = self._stack.enter_context((self._folder / str(bucket)).open("wb"))
            self._files[bucket] = cast(BinaryIO, opened)
        return self._files[bucket]

    def blocks(self, bucket: int, rows: int) -> Iterator[Ints]:
        """The rows of a bucket, int64, shape (at most `rows`, columns); none is empty."""
        path = self._folder / str(bucket)
        if bucket in self._files and not self._files[bucket].closed:
            with self._naming():
                self._files[bucket].flush()
        for at in range(0, path.stat().st_size if path.exists() else 0, rows * self._columns * 8):
            yield np.fromfile(path, np.int64, rows * self._columns, offset=at).reshape(-1, self._columns)

    def drop(self, bucket: int) -> None:
        """Give the disk of a bucket back."""
        if bucket in self._files:
            with self._naming():
                self._files[bucket].close()
            (self._folder / str(bucket)).unlink()

    @contextmanager
    def _naming(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UnwritableError(f"{self._folder}: cannot be written: {error.strerror or error}") from error


class ByRange:
    """Values of the numbers from 0 on, made by ranges when they are asked for; one range is kept."""

    def __init__(self, size: int, make: Callable[[int], Array]) -> None:
        """Remember how.

        Args:
            size: Numbers in a range.
            make: Gives the values of range i, the numbers from i * size on: shape (size,).
        """
        self._size, self._make = size, make
        self._number, self._values = -1, np.empty(0)

    def between(self, start: int, stop: int) -> Array:
        """The values of the numbers start..stop, at least one: shape (stop - start,)."""
        found = []
        for number in range(start // self._size, -(-stop // self._size)):
            if number != self._number:
                self._number, self._values = number, self._make(number)
            first = number * self._size
            found.append(self._values[max(start - first, 0) : stop - first])
        return np.concatenate(found)
