"""A file of a chunked graph: on a file system of this machine, or an object of which ranges are read.

What lies on this machine is opened as ever. Of objects each read is a request: readers ask for the bytes that
they need, in large pieces.
"""

import io
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from dglrun.arrays import Array
from dglrun.errors import DataError
from dglrun.formats import store
from dglrun.formats.chunked import kept_bytes
from dglrun.formats.store import Place, Stat, StoreError, StoreFailure
from dglrun.formats.store.ranges import RangeReader

File = Path | Place
"""A file, or a folder of them."""
WHOLE = 8 << 20
"""Bytes of a request where an object is read from its beginning to its end."""
HEAD = 1 << 12
"""Bytes of a request where only its beginning is read."""

_known: dict[Place, Stat] = {}
"""What a listing has told: to ask for each object anew would be a request each time."""


def named(text: str) -> File:
    """The folder that a command line means: a path as it stands, or the place of a URI.

    Raises:
        DataError: the URI is none.
    """
    if not store.is_uri(text):
        return Path(text)
    place = store.place(text)
    return place if place.is_remote else Path(place.key)


def absolute(file: File) -> File:
    """The same, wherever a rank is started."""
    return file.absolute() if isinstance(file, Path) else file


def stat(file: File) -> Stat:
    """Size and time of a file.

    Raises:
        DataError: it is missing, or cannot be asked.
    """
    if isinstance(file, Path):
        try:
            found = file.stat()
        except OSError as error:
            raise DataError(f"{file}: cannot be read: {error.strerror}") from None
        return Stat(found.st_size, found.st_mtime_ns)
    if file not in _known:
        told = store.retried(file.stat)
        if told is None:
            raise DataError(f"{file}: cannot be read: no such object")
        _known[file] = told
    return _known[file]


def list_folder(folder: File) -> None:
    """Learn of all objects of a folder at once; a folder of this machine needs no listing.

    Raises:
        StoreError: it cannot be listed.
    """
    if isinstance(folder, Place):
        found = store.retried(folder.files)
        for place in [each for each in _known if f"{each}".startswith(f"{folder}/")]:
            del _known[place]
        _known.update({folder / name: told for name, told in found.items()})


def exists(file: File) -> bool:
    """Whether it is a file."""
    if isinstance(file, Path):
        return file.is_file()
    return file in _known or store.retried(file.stat) is not None


def beside(folder: File, entry: str) -> File:
    """The file that metadata name: relative to their folder, or an absolute path, or a URI.

    Raises:
        DataError: the URI is none, or it leads out of the folder of a bucket.
    """
    return named(entry) if store.is_uri(entry) else folder / entry


def read_bytes(file: File) -> bytes:
    """The whole file.

    Raises:
        DataError: it is missing, or cannot be read.
    """
    try:
        return file.read_bytes()  # of an object each request is tried again by itself
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}") from None


def open_binary(file: File, step: int = 0) -> BinaryIO:
    """Open a file for reading.

    Args:
        file: The file.
        step: Of an object, the bytes that are asked for at least; 0: exactly those of each read.
    """
    if isinstance(file, Path):
        return file.open("rb")
    found = kept_bytes.over(file, _opened(file))
    return cast(BinaryIO, io.BufferedReader(found, step) if step else found)


def _opened(file: Place) -> RangeReader:
    """An object, of the size that readers have reckoned with."""
    ranges = file.open_object()
    if file in _known and (size := _known[file].size) != ranges.size():
        text = f"{file}: changed while it was read: {size} bytes before, now {ranges.size()}"
        raise StoreError(text, StoreFailure.CHANGED)
    return ranges


def open_for_arrow(file: File) -> Any:
    """What pyarrow.parquet reads from: the path itself, or an object by ranges."""
    return file if isinstance(file, Path) else file.open_range()


def values(file: Path | Place, dtype: np.dtype[Any], count: int, offset: int) -> Array:
    """So many values from a byte on: of `dtype`, shape (count,).

    Raises:
        StoreError: the object cannot be read, or has fewer.
    """
    if isinstance(file, Path):
        return np.fromfile(file, dtype, count, offset=offset)
    found = np.empty(count, dtype)
    view = found.view(np.uint8)
    with _opened(file) as ranges:
        if ranges.size() < offset + len(view):
            text = (
                f"{file}: expected {len(view)} bytes from byte {offset} on, got {ranges.size()} bytes in all"
            )
            raise StoreError(text, StoreFailure.CHANGED)
        ranges.seek(offset)
        for at in range(0, len(view), WHOLE):
            piece = ranges.read(min(WHOLE, len(view) - at))
            view[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
    return found


def fortran_rows(
    file: File, dtype: np.dtype[Any], shape: tuple[int, ...], offset: int, start: int, stop: int
) -> Array:
    """Rows of an array that is stored column after column: shape (stop - start, *shape[1:])."""
    if isinstance(file, Path):
        return np.load(file, mmap_mode="r")[start:stop]  # type: ignore[no-any-return]
    rows, width = stop - start, int(np.prod(shape[1:], dtype=np.int64))
    found = np.empty((rows, width), dtype, order="F")
    for at in range(width):
        first = offset + (at * shape[0] + start) * dtype.itemsize
        found[:, at] = values(file, dtype, rows, first)
    return found.reshape((rows, *shape[1:]), order="F")
