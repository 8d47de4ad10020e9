"""The records of a run in files of bounded size, read again from any offset that is still there.

A view that breaks is taken up again from the offset which it had reached: that is all a launcher needs to
miss nothing. The newest half of the limit is always kept.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LIMIT = 32 << 20
"""Bytes on disk, at most."""


class EventLog:
    """An append-only log of JSON lines in two segments.

    Args:
        folder: Where the segments `journal.<first offset>` lie.
        limit: Bytes on disk, at most (and one record).
    """

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self._folder = folder
        self._half = limit // 2
        self._starts = [0]
        self._file = self._path(0).open("wb", buffering=0)
        self.end = 0
        """Offset behind the last record."""

    @property
    def start(self) -> int:
        """Offset of the oldest record that is kept."""
        return self._starts[0]

    def append(self, record: Mapping[str, Any]) -> None:
        """Add a record; drops the oldest segment where the limit demands it."""
        line = json.dumps(record).encode() + b"\n"
        if self.end - self._starts[-1] + len(line) > self._half and self.end > self._starts[-1]:
            self._turn()
        self._file.write(line)
        self.end += len(line)

    def read(self, offset: int, size: int = 1 << 18) -> tuple[int, bytes]:
        """Whole lines from `offset` on, or from the oldest kept record if that one is gone.

        Args:
            offset: Start of a record, as an earlier read left it.
            size: Bytes to read at most; a longer single line is read whole.

        Returns:
            The offset at which the bytes begin, and the bytes; none at the end.
        """
        offset = max(offset, self.start)
        if offset >= self.end:
            return offset, b""
        segment = max(start for start in self._starts if start <= offset)
        with self._path(segment).open("rb") as file:
            file.seek(offset - segment)
            block = file.read(size)
            whole = block[: block.rfind(b"\n") + 1]
            return offset, whole or block + file.readline()

    def close(self) -> None:
        """Close the file; what was written stays."""
        self._file.close()

    def _turn(self) -> None:
        self._file.close()
        while len(self._starts) > 1:
            self._path(self._starts.pop(0)).unlink()
        self._starts.append(self.end)
        self._file = self._path(self.end).open("wb", buffering=0)

    def _path(self, start: int) -> Path:
        return self._folder / f"journal.{start}"
