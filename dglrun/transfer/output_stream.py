"""An output folder on one connection: its tar stream in pieces, each after its length, then how it has ended.

The end is a piece without bytes, and a line of JSON: what was left out, and why the rest is missing if it is.
Only then does the launcher know that a stream which is cut short was not cut by the connection.
"""

import json
import socket
import ssl
import struct
from pathlib import Path

from dglrun.transfer import tar_stream
from dglrun.transfer.pull import wire

_LENGTH = struct.Struct("!I")
_MOST = 1 << 26


def send(connection: socket.socket, folder: Path, marker: str) -> None:
    """Send the files of a folder, and wait until the launcher has taken them.

    Args:
        connection: To the launcher.
        folder: Which; a missing one has no files.
        marker: Name of a file in the launcher's own folder.

    Raises:
        OSError: the connection broke.
    """
    pieces, failed = _Pieces(connection), ""
    notes = list[str]()
    try:
        alive = tar_stream.Alive(pieces)  # type: ignore[arg-type]
        items, notes = tar_stream.output_items(folder, marker, alive)
        tar_stream.pack(items, pieces, tar_stream.ZEROS)  # type: ignore[arg-type]
    except tar_stream.PackError as error:
        failed = str(error)
    end = json.dumps({"notes": notes, "failed": failed}).encode()
    connection.sendall(_LENGTH.pack(0) + _LENGTH.pack(len(end)) + end)
    connection.recv(1)


class _Pieces:
    """What `tarfile` writes to."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def write(self, data: bytes) -> int:
        if data:
            self._connection.sendall(_LENGTH.pack(len(data)))
            self._connection.sendall(data)
        return len(data)

    def flush(self) -> None:
        """Nothing waits here."""


class OutputStream:
    """The launcher's end: the tar stream as a file to read, then how it has ended.

    Args:
        connection: From the worker.

    Attributes:
        has_moved: Whether anything has come.
    """

    def __init__(self, connection: ssl.SSLSocket) -> None:
        self._connection, self._left, self._is_over = connection, 0, False
        self._broken: OSError | None = None
        self.has_moved = False

    def read(self, size: int = -1) -> bytes:
        """Some bytes; none at the end, or when the connection has broken.

        Whoever writes what it reads would take an OSError for one of its own disk.
        """
        try:
            return self._read(size)
        except OSError as error:
            self._broken, self._is_over, self._left = error, True, 0
            return b""

    def ending(self) -> tuple[list[str], str]:
        """Notes on what was left out, and why the rest is missing; skips what was not read.

        Raises:
            OSError: the connection has broken.
        """
        while self.read(tar_stream.BLOCK):
            pass
        if self._broken:
            raise self._broken
        text = wire.receive(self._connection, self._length())
        try:
            told = json.loads(text)
            return [str(note) for note in told["notes"]], str(told["failed"])
        except (ValueError, KeyError, TypeError):
            raise wire.BrokenError("expected notes and how the stream has ended") from None

    def _read(self, size: int) -> bytes:
        if not self._left and not self._is_over:
            self._left = self._length()
            self._is_over, self.has_moved = self._left == 0, True
        wanted = self._left if size < 0 else min(size, self._left)
        block = wire.receive(self._connection, wanted) if wanted else b""
        self._left -= wanted
        return block

    def _length(self) -> int:
        (length,) = _LENGTH.unpack(wire.receive(self._connection, _LENGTH.size))
        if length > _MOST:
            raise wire.BrokenError("expected a short piece")
        return int(length)
