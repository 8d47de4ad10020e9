"""An object that is read from any byte on: each read is a request, repeated while the server is away."""

import io
from collections.abc import Callable
from typing import Any

from dglrun.errors import StoreError, StoreFailure
from dglrun.formats.store import failures, received
from dglrun.formats.store.retry import PATIENCE, retried


class Ranges(io.RawIOBase):
    """A file object for Arrow and Python.

    Args:
        open_object: Opens the object.
        where: Its name, for messages.
        patience: Seconds for which the server may be away.
    """

    def __init__(self, open_object: Callable[[], Any], where: str, patience: float = PATIENCE) -> None:
        super().__init__()
        self._open, self._where, self._patience = open_object, where, patience
        self._object: Any = None
        self._at, self._size = 0, -1
        self._size = retried(self._measured, patience)

    def _measured(self) -> int:
        with failures.about(self._where):
            size = int(self._opened().size())
        if self._size not in (-1, size):
            raise StoreError(
                f"{self._where}: changed while it was read: {self._size} bytes before, now {size}",
                StoreFailure.CHANGED,
            )
        return size

    def _opened(self) -> Any:
        if self._object is None:
            self._object = self._open()
        return self._object

    def readable(self) -> bool:
        """As of any file that is read."""
        return True

    def seekable(self) -> bool:
        """As of any file that is read from any byte on."""
        return True

    def size(self) -> int:
        """Bytes of the object."""
        return self._size

    def tell(self) -> int:
        """Where the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set where the next read begins."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Read to the end, or so many bytes; fewer only at the end."""
        rest = max(0, self._size - self._at)
        wanted = rest if size is None or size < 0 else min(size, rest)
        if not wanted:
            return b""
        start = self._at
        found = retried(lambda: self._range(start, wanted), self._patience)
        self._at += len(found)
        return found

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; returns how many bytes."""
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def readall(self) -> bytes:
        """Read to the end."""
        return self.read()

    def _range(self, start: int, size: int) -> bytes:
        try:
            with failures.about(self._where):
                self._measured()
                found: bytes = self._opened().read_at(size, start)
        except BaseException:
            self._object = None  # it may be the connection: the next one is new
            raise
        if len(found) != size:
            raise StoreError(
                f"{self._where}: expected {size} bytes from byte {start} on, got {len(found)}",
                StoreFailure.CHANGED,
            )
        received.add(len(found))
        return found
