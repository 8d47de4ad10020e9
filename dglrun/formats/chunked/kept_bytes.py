"""Bytes of objects that were read to count their rows, kept on this machine until the process ends.

csv tells no row's place: its lines are counted before the rows are read. Without this each byte would come
from the store twice. The files have no name, so that nothing stays; the folder is that of temporary files,
which TMPDIR names. What finds no room there is read from the store again.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

from dglrun.formats.store import Place
from dglrun.formats.store.ranges import RangeReader
from dglrun.formats.store.seekable import SeekableReader

_ROOM = 2
"""The free space must be so many times what this process keeps in all: the parts need the same disk."""


class _Kept(NamedTuple):
    """The bytes from `start` to `stop` of an object, from the first byte of a file on."""

    start: int
    stop: int
    file: Any


_known: dict[Place, list[_Kept]] = {}


class Keeping:
    """What takes the bytes of a range while they are read.

    Args:
        start: Number of the first byte.
        size: How many are to come.
    """

    def __init__(self, start: int, size: int) -> None:
        self._start, self._stop = start, start
        self._file: Any = None
        with contextlib.suppress(OSError):  # no folder for it, or too many open files: nothing is kept
            before = sum(kept.stop - kept.start for all_of in _known.values() for kept in all_of)
            if shutil.disk_usage(tempfile.gettempdir()).free + before >= _ROOM * (before + size):
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 - until the process ends

    def add(self, data: bytes) -> None:
        """Keep the next bytes; where there is no room any more, none of the range is kept."""
        if self._file is None:
            return
        try:
            self._file.write(data)
            self._file.flush()
        except OSError:
            self.forget()
        self._stop += len(data)

    def forget(self) -> None:
        """Keep nothing of the range."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # what it has not written yet finds no room either
                self._file.close()
            self._file = None

    def done(self, place: Place) -> None:
        """Let readers of the object have the range."""
        if self._file is not None:
            _known.setdefault(place, []).append(_Kept(self._start, self._stop, self._file))


@contextlib.contextmanager
def keeping(place: Place, start: int, stop: int) -> Iterator[Keeping | None]:
    """Keep the bytes of a range that are read within it; None: they are kept already."""
    if any(kept.start <= start and stop <= kept.stop for kept in _known.get(place, ())):
        yield None
        return
    kept = Keeping(start, stop - start)
    try:
        yield kept
    except BaseException:
        kept.forget()
        raise
    kept.done(place)


def over(place: Place, ranges: RangeReader) -> SeekableReader:
    """The object, of which is read here what is kept."""
    return PartlyKept(ranges, tuple(_known[place])) if place in _known else ranges


class PartlyKept(SeekableReader):
    """An object of which some ranges are kept here; the others are requests.

    Args:
        ranges: The object.
        kept: What is kept of it.
    """

    def __init__(self, ranges: RangeReader, kept: tuple[_Kept, ...]) -> None:
        super().__init__()
        self._ranges, self._kept = ranges, kept

    def size(self) -> int:
        """Bytes of the object."""
        return self._ranges.size()

    def _bytes(self, start: int, stop: int) -> bytes:
        pieces = []
        while start < stop:
            pieces.append(self._piece(start, stop))
            start += len(pieces[-1])
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _piece(self, at: int, stop: int) -> bytes:
        """Some bytes from one on, all of them kept or none."""
        for kept in self._kept:
            if kept.start <= at < kept.stop:
                return os.pread(kept.file.fileno(), min(stop, kept.stop) - at, at - kept.start)
        begins = [kept.start for kept in self._kept if at < kept.start < stop]
        self._ranges.seek(at)
        return self._ranges.read(min([stop, *begins]) - at)
