"""What a place can do, whatever it is on; and the same on a folder that this machine mounts."""

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa

STEP = 8 << 20
"""Bytes that are read and written at a time."""
PARTIAL = ".partial-"
"""Part of the names under which files grow; no listing shows them."""


@dataclass(frozen=True)
class Stat:
    """What tells one version of a file from another."""

    size: int
    mtime_ns: int


@dataclass(frozen=True)
class Sum:
    """What was written: its sha256 in hexadecimal digits, and its bytes."""

    sha256: str
    size: int


class FileBackend(Protocol):
    """Files by name; errors are those of the file system or of Arrow."""

    def files(self, name: str) -> dict[str, Stat]:
        """All files below a folder."""

    def stat(self, name: str) -> Stat | None:
        """Of a file; None: there is none."""

    def open_range(self, name: str) -> Any:
        """Open a file for reads from any byte on."""

    def write(self, name: str, pieces: Iterable[bytes]) -> None:
        """Write a file whole or not at all."""

    def remove_tree(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it; it may be missing."""


class Folders:
    """The file system of this machine."""

    def files(self, name: str) -> dict[str, Stat]:
        """All files below a folder."""
        root, found = Path(name), {}
        for folder, _, names in os.walk(root, onerror=_unless_missing):
            for path in (Path(folder) / each for each in names if PARTIAL not in each):
                if stat := self.stat(str(path)):
                    found[path.relative_to(root).as_posix()] = stat
        return found

    def stat(self, name: str) -> Stat | None:
        """Of a file; None: there is none."""
        path = Path(name)
        try:
            if not path.is_file():
                return None
            found = path.stat()
        except FileNotFoundError:
            return None
        return Stat(found.st_size, found.st_mtime_ns)

    def open_range(self, name: str) -> Any:
        """Open a file for reads from any byte on."""
        return pa.OSFile(name, "rb")

    def write(self, name: str, pieces: Iterable[bytes]) -> None:
        """Write a file whole or not at all."""
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            for piece in pieces:
                file.write(piece)

    def remove_tree(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it; it may be missing."""
        path = Path(name)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _unless_missing(error: OSError) -> None:
    """A folder that is not there, or goes meanwhile, has no files; one that cannot be read may have some."""
    if not isinstance(error, FileNotFoundError):
        raise error


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Give a file to fill, which gets its name when its bytes are on the disk; after a failure it goes."""
    draft = path.with_name(f".{path.name}{PARTIAL}{secrets.token_hex(4)}")
    try:
        with draft.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """The name is on the disk, too, before anything that relies on it is written."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Summed:
    """Pieces of a file on their way, with the sum of those that have passed."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._size = 0

    def __iter__(self) -> Iterator[bytes]:
        while piece := self._file.read(STEP):
            self._digest.update(piece)
            self._size += len(piece)
            yield piece

    def sum(self) -> Sum:
        """Of what has passed."""
        return Sum(self._digest.hexdigest(), self._size)
