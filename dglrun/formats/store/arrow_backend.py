"""Files on a file system of Arrow: S3, or another that no folder of this machine shows."""

import ctypes
import secrets
from collections.abc import Iterable
from typing import Any

from pyarrow import fs

from dglrun.errors import StoreError, StoreFailure
from dglrun.formats.store.file_backend import PARTIAL, Stat

IN_FLIGHT = 8
"""Pieces of `file_backend.STEP` bytes on their way to S3: Arrow itself takes as many as the reader gives."""


class Arrow:
    """One of Arrow's file systems.

    Args:
        system: The file system.
    """

    def __init__(self, system: Any) -> None:
        self._system = system
        self._is_s3 = system.type_name == "s3"

    def files(self, name: str) -> dict[str, Stat]:
        """All files below a folder; S3 must have the bucket."""
        found = self._system.get_file_info(fs.FileSelector(name, allow_not_found=True, recursive=True))
        start = len(name.rstrip("/")) + 1
        stats = {info.path[start:]: _stat(info) for info in found if info.type == fs.FileType.File}
        if not found and self._is_s3:
            self._require_bucket(name)
        return {each: stat for each, stat in stats.items() if PARTIAL not in each}

    def _require_bucket(self, name: str) -> None:
        bucket = name.partition("/")[0]
        if self._system.get_file_info(bucket).type == fs.FileType.NotFound:
            raise StoreError(
                f"s3://{bucket}: expected a bucket, which must exist, found none", StoreFailure.NO_BUCKET
            )

    def stat(self, name: str) -> Stat | None:
        """Of a file; None: there is none."""
        info = self._system.get_file_info(name)
        if info.type == fs.FileType.NotFound and self._is_s3:
            self._require_bucket(name)
        return _stat(info) if info.type == fs.FileType.File else None

    def open_range(self, name: str) -> Any:
        """Open a file for reads from any byte on."""
        return self._system.open_input_file(name)

    def write(self, name: str, pieces: Iterable[bytes]) -> None:
        """Write a file whole or not at all: S3 shows an object once its last part is there."""
        if self._is_s3:
            self._fill(name, pieces)
            return
        folder, _, last = name.rpartition("/")
        self._system.create_dir(folder, recursive=True)
        draft = f"{folder}/.{last}{PARTIAL}{secrets.token_hex(4)}"
        try:
            self._fill(draft, pieces)
            self._system.move(draft, name)
        except BaseException:
            self._remove(draft)
            raise

    def _fill(self, name: str, pieces: Iterable[bytes]) -> None:
        stream = self._system.open_output_stream(name)
        try:
            for number, piece in enumerate(pieces, 1):
                stream.write(piece)
                if number % IN_FLIGHT == 0:
                    stream.flush()  # waits for the parts that are on their way
            stream.close()
        except BaseException:
            if self._is_s3:
                _abandon(stream)
            else:
                stream.close()
            raise

    def _remove(self, name: str) -> None:
        if self._system.get_file_info(name).type != fs.FileType.NotFound:
            self._system.delete_file(name)

    def remove_tree(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it; it may be missing."""
        kind = self._system.get_file_info(name).type
        if kind == fs.FileType.Directory:
            self._system.delete_dir(name)
        elif kind == fs.FileType.File:
            self._system.delete_file(name)


def _abandon(stream: Any) -> None:
    """Leave an upload to S3 without its last part, so that no object appears.

    Arrow's streams cannot be aborted from Python, and complete the upload when they are closed or freed:
    this one is kept until the process ends, with the parts that it holds (`IN_FLIGHT` at most).
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(stream))


def _stat(info: Any) -> Stat:
    return Stat(info.size, info.mtime_ns or 0)
