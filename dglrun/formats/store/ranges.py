"""An object that is read from any byte on: each read is a request, repeated while the server is away."""

from collections.abc import Callable
from typing import Any

from dglrun.errors import StoreError, StoreFailure
from dglrun.formats.store import failures, received
from dglrun.formats.store.retry import PATIENCE, retried
from dglrun.formats.store.seekable import SeekableReader


class RangeReader(SeekableReader):
    """A file object of an object.

    Args:
        open_object: Opens the object.
        where: Its name, for messages.
        patience: Seconds for which the server may be away.
    """

    def __init__(self, open_object: Callable[[], Any], where: str, patience: float = PATIENCE) -> None:
        super().__init__()
        self._open, self._where, self._patience = open_object, where, patience
        self._object: Any = None
        self._size = -1
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

    def size(self) -> int:
        """Bytes of the object."""
        return self._size

    def _bytes(self, start: int, stop: int) -> bytes:
        return retried(lambda: self._range(start, stop - start), self._patience)

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
