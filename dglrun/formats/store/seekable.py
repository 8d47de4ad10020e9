"""What is read from any byte on, as a file object for Arrow and Python."""

import io
from typing import Any


class SeekableReader(io.RawIOBase):
    """Where the next read begins, and how much it reads; a subclass has the bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._at = 0

    def size(self) -> int:
        """Bytes in all."""
        raise NotImplementedError

    def _bytes(self, start: int, stop: int) -> bytes:
        """The bytes from `start` to `stop` - 1, at least one."""
        raise NotImplementedError

    def readable(self) -> bool:
        """As of any file that is read."""
        return True

    def seekable(self) -> bool:
        """As of any file that is read from any byte on."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set where the next read begins."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size()}[whence]
        self._at = max(0, start + offset)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Read to the end, or so many bytes; fewer only at the end."""
        rest = max(0, self.size() - self._at)
        wanted = rest if size is None or size < 0 else min(size, rest)
        if not wanted:
            return b""
        found = self._bytes(self._at, self._at + wanted)
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
