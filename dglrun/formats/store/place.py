"""A place for files, by the text that a user gives: a path, `s3://bucket/prefix`, or another URI."""

import os
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from dglrun.errors import DataError, StoreError, StoreFailure
from dglrun.formats.store import failures, s3
from dglrun.formats.store.file_backend import STEP, FileBackend, Folders, Stat, Sum, Summed, whole_file
from dglrun.formats.store.ranges import RangeReader
from dglrun.formats.store.retry import PATIENCE
from dglrun.formats.uri import is_bucket, is_uri, may_have_secrets, shown

_FOLDERS = Folders()


def place(text: str, environ: Mapping[str, str] | None = None) -> "Place":
    """The place that a user means; nothing is asked of it yet.

    Args:
        text: An absolute path, `file:///path`, `s3://bucket/prefix`, or what else pyarrow.fs opens.
        environ: Says where S3 is (see `s3`); None: the environment of this process.

    Raises:
        DataError: it is none of these, or the environment names an endpoint or a CA that cannot be.
    """
    if not is_uri(text):
        if not text.startswith("/"):
            raise DataError(
                f"expected an absolute path or a URI such as s3://bucket/prefix, got {shown(text)!r}"
            )
        return Place("", posixpath.normpath(text).replace("//", "/"))
    if may_have_secrets(text):
        raise DataError(
            f"{shown(text)}: expected no credentials and no options in the URI (no '@', '?' or '#'):"
            " they are in the environment"
        )
    try:
        found = urlsplit(text)
    except ValueError:
        raise DataError(f"expected a URI such as s3://bucket/prefix, got {text!r}") from None
    if found.scheme == "file":
        if found.netloc or not found.path:
            raise DataError(f"expected file:///PATH, got {text!r}")
        return Place("", posixpath.normpath(unquote(found.path)).replace("//", "/"))
    if found.scheme == "s3":
        return _on_s3(text, s3.Settings.of(os.environ if environ is None else environ))
    root = f"{found.scheme}://{found.netloc}"
    _opened(root)
    return Place(root, _key(found.path, text))


def _on_s3(text: str, settings: s3.Settings) -> "Place":
    bucket, _, key = text[len("s3://") :].partition("/")
    if not is_bucket(bucket):
        raise DataError(f"expected s3://bucket/prefix, got {text!r}")
    return Place(f"s3://{bucket}", _key(key, text), settings)


def _key(path: str, text: str) -> str:
    names = [name for name in path.split("/") if name]
    if any(name in (".", "..") for name in names):
        raise DataError(f"expected names other than . and .. in a URI, got {text!r}")
    return "/".join(names)


@dataclass(frozen=True)
class Place:
    """A file or a folder, which need not exist. Threads and processes may share it, and it has no secrets.

    Attributes:
        root: `s3://bucket` or another URI without its path; empty: this machine.
        key: The path below the root; on this machine an absolute one.
        settings: Where S3 is; None elsewhere.
    """

    root: str
    key: str
    settings: s3.Settings | None = None

    def __str__(self) -> str:
        return f"{self.root}/{self.key}".rstrip("/") if self.root else self.key

    def __truediv__(self, name: str | Path) -> "Place":
        """The place below this one that a relative name gives; an absolute one is a path or a URI itself."""
        text = str(name)
        if self.is_remote and text.startswith("/"):
            raise DataError(f"{self}: expected a name relative to it, got {text!r}")
        joined = posixpath.normpath(posixpath.join(self.key, text))
        if joined == ".." or joined.startswith("../"):
            raise DataError(f"{self}: expected a name within it, got {text!r}")
        return replace(self, key="" if joined == "." else joined)

    @property
    def is_remote(self) -> bool:
        """Whether no folder of this machine shows it."""
        return bool(self.root)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return posixpath.basename(self.key)

    @property
    def parent(self) -> "Place":
        """The folder that it is in."""
        return replace(self, key=posixpath.dirname(self.key))

    def files(self) -> dict[str, Stat]:
        """All files below it by their relative names; none where it does not exist.

        Raises:
            StoreError: it cannot be listed, or the bucket does not exist.
        """
        with failures.about(str(self)):
            return self._backend.files(self._path)

    def stat(self) -> Stat | None:
        """Size and time of the file; None: there is none.

        Raises:
            StoreError: it cannot be asked, or the bucket does not exist.
        """
        with failures.about(str(self)):
            return self._backend.stat(self._path)

    def open_range(self, patience: float = PATIENCE) -> Any:
        """Open the file for reads from any byte on: a `pyarrow.NativeFile`.

        Args:
            patience: On object storage each read is a request, repeated for so many seconds while the
                server is away.

        Raises:
            StoreError: there is none, or it cannot be read.
        """
        if self.is_remote:
            return pa.PythonFile(self.open_object(patience), mode="r")
        with failures.about(str(self)):
            return self._backend.open_range(self._path)

    def open_object(self, patience: float = PATIENCE) -> RangeReader:
        """The same as a file object of Python, without a buffer; for places that are remote."""
        return RangeReader(lambda: self._backend.open_range(self._path), str(self), patience)

    def read_bytes(self, patience: float = PATIENCE) -> bytes:
        """The whole file.

        Args:
            patience: As of `open_range`; 0 where the caller calls again.

        Raises:
            StoreError: there is none, or it cannot be read.
        """
        with failures.about(str(self)), self._reader(patience) as file:
            return bytes(file.read())

    def write_bytes(self, data: bytes) -> None:
        """Write the file, whole or not at all.

        Raises:
            StoreError: it cannot be written.
        """
        with failures.about(str(self)):
            self._backend.write(self._path, [data] if data else [])

    def write(self, pieces: Iterable[bytes]) -> None:
        """Write the file with these bytes; not at all where the pieces raise an error, which is passed on.

        Raises:
            StoreError: it cannot be written.
        """
        with failures.about(str(self)):
            self._backend.write(self._path, pieces)

    def upload(self, path: Path) -> Sum:
        """Write the file with the bytes of one of this machine, whole or not at all.

        Returns:
            Sum and size of what was written.

        Raises:
            StoreError: it cannot be written, or the file's size changes meanwhile.
        """
        with failures.about(str(self)), path.open("rb") as file:
            size, pieces = path.stat().st_size, Summed(file)
            self._backend.write(self._path, _checked(pieces, size, path))
            return pieces.sum()

    def download(self, path: Path, sha256: str | None = None, patience: float = PATIENCE) -> Sum:
        """Write a file of this machine with the bytes of this one, whole or not at all.

        Args:
            path: The file; its folder must exist.
            sha256: What the sum must be; None: it is not known.
            patience: As of `open_range`.

        Returns:
            Sum and size of what was read.

        Raises:
            StoreError: it cannot be read or written, or the sum is another one.
        """
        with failures.about(str(self)), self._reader(patience) as file, whole_file(path) as out:
            pieces = Summed(file)
            for piece in pieces:
                out.write(piece)
            found = pieces.sum()
            if sha256 is not None and found.sha256 != sha256:
                raise StoreError(
                    f"{self}: expected sha256 {sha256}, got {found.sha256} of {found.size} bytes",
                    StoreFailure.CHANGED,
                )
            return found

    def remove_tree(self) -> None:
        """Remove the file, or the folder with all that is in it; it may be missing.

        Raises:
            StoreError: it cannot be removed.
        """
        if not self.key.strip("/"):
            raise DataError(f"{self}: a whole bucket or file system is not removed")
        with failures.about(str(self)):
            self._backend.remove_tree(self._path)

    def _reader(self, patience: float) -> Any:
        """For reads from the first byte to the last."""
        return self.open_object(patience) if self.is_remote else Path(self.key).open("rb")

    @property
    def _backend(self) -> FileBackend:
        if not self.root:
            return _FOLDERS
        from dglrun.formats.store.arrow_backend import Arrow  # noqa: PLC0415 - loads pyarrow.fs, 8 ms

        if self.settings is not None:
            return Arrow(s3.file_system(self.settings))
        return Arrow(_opened(self.root)[0])

    @property
    def _path(self) -> str:
        """The name that the backend knows it by."""
        if self.settings is not None:
            return f"{self.root.removeprefix('s3://')}/{self.key}".rstrip("/")
        if self.root:
            return posixpath.join(_opened(self.root)[1], self.key)
        return self.key


def _checked(pieces: Summed, size: int, path: Path) -> Any:
    """The pieces; fails after the last one, before the file is complete, if they are not of the size."""
    yield from pieces
    if (got := pieces.sum().size) != size:
        raise StoreError(f"{path}: changed while it was read: {size} bytes before, now {got}")


@lru_cache(maxsize=64)
def _opened(root: str) -> tuple[Any, str]:
    """Arrow's file system of a URI without a path, and the path there."""
    from pyarrow import fs  # noqa: PLC0415 - as above

    try:
        system, path = fs.FileSystem.from_uri(root)
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        raise DataError(f"{root}: expected a path or a URI that pyarrow.fs opens: {error}") from None
    return system, path


__all__ = ["STEP", "Place", "is_uri", "place"]
