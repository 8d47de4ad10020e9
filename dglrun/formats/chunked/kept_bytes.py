"""Bytes of objects that were read to count their rows, kept on this machine until the process ends.

csv tells no row's place: its lines are counted before the rows are read. Without this each byte would come
from the store twice. They lie in one file of the process, which has no name, so that nothing stays; its
folder is that of temporary files, which TMPDIR names. What finds no room there is read from the store again.
"""

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dglrun.formats.store import Place
from dglrun.formats.store.ranges import RangeReader
from dglrun.formats.store.seekable import SeekableReader

_ROOM = 2
"""The free space must be so many times what this process keeps in all: the parts need the same disk."""
_LEFT = 0.15
"""So much of the file system stays free, whatever other ranks keep: kubelets evict pods below by default."""
_MEMORY = ("tmpfs", "ramfs")


class _KeptFile:
    """The file of this process; it is made when the first bytes are to come."""

    def __init__(self) -> None:
        self._file: Any = None
        self._size = 0
        self._lock = threading.Lock()

    def reserve(self, size: int) -> int | None:
        """Take room on the disk, so that other processes see that it is taken.

        Returns:
            Number of its first byte in the file; None: nothing is to be kept.
        """
        with self._lock, contextlib.suppress(OSError):  # no folder for it, no room, or too many open files
            if self._file is None:
                if _is_memory(tempfile.gettempdir()):
                    return None
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - until the process ends
            if self._leaves_room(size, size) and self._grow(size):
                self._size += size
                return self._size - size
        return None

    def _grow(self, size: int) -> bool:
        """Take the room, and give it back where another process has taken some at the same time."""
        fits = False
        try:
            os.posix_fallocate(self.fileno(), self._size, size)
            fits = self._leaves_room(size, 0)
        finally:
            if not fits:
                os.ftruncate(self.fileno(), self._size)
        return fits

    def _leaves_room(self, size: int, lacking: int) -> bool:
        usage = shutil.disk_usage(self.fileno())
        free, kept = usage.free - lacking, self._size + size
        return free + kept >= _ROOM * kept and free >= _LEFT * usage.total

    def give_back(self, offset: int, size: int) -> None:
        """Free the room that was reserved last; other room stays until the process ends."""
        with self._lock:
            if offset + size == self._size:
                self._size = offset
                with contextlib.suppress(OSError):
                    os.ftruncate(self.fileno(), offset)

    def fileno(self) -> int:
        """The descriptor, once something was reserved."""
        return int(self._file.fileno())

    def close(self) -> None:
        """Keep nothing any more."""
        if self._file is not None:
            self._file.close()


def _is_memory(folder: str) -> bool:
    """Whether what is written to a folder counts as memory."""
    device = Path(folder).stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return any(each[2] == number and each[each.index("-") + 1] in _MEMORY for each in mounts)


class _Kept(NamedTuple):
    """The bytes from `start` to `stop` of an object, from a byte of the file on."""

    start: int
    stop: int
    offset: int


_file = _KeptFile()
_known: dict[Place, list[_Kept]] = {}


class Keeping:
    """What takes the bytes of a range while they are read.

    Args:
        start: Number of the first byte.
        size: How many are to come.
    """

    def __init__(self, start: int, size: int) -> None:
        self._start, self._stop, self._size = start, start, size
        self._offset = _file.reserve(size)

    def add(self, data: bytes) -> None:
        """Keep the next bytes; where they cannot be written, none of the range is kept."""
        if self._offset is None:
            return
        written = 0
        with contextlib.suppress(OSError):
            written = os.pwrite(_file.fileno(), data, self._offset + self._stop - self._start)
        self._stop += len(data)
        if written < len(data):
            self.forget()

    def forget(self) -> None:
        """Keep nothing of the range."""
        if self._offset is not None:
            _file.give_back(self._offset, self._size)
            self._offset = None

    def done(self, place: Place) -> None:
        """Let readers of the object have the range."""
        if self._offset is not None:
            _known.setdefault(place, []).append(_Kept(self._start, self._stop, self._offset))


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
                size = min(stop, kept.stop) - at
                return os.pread(_file.fileno(), size, kept.offset + at - kept.start)
        begins = [kept.start for kept in self._kept if at < kept.start < stop]
        self._ranges.seek(at)
        return self._ranges.read(min([stop, *begins]) - at)
