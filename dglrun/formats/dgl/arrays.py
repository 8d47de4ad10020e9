"""Named arrays behind headers: the bricks of which DGL's files are built."""

import math
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np

from dglrun.arrays import BFLOAT16, Array
from dglrun.errors import DataError

ARRAY_MAGIC = 0xDD5E40F096B4A13F
_CPU = (1, 0)
_KINDS = {"i": 0, "u": 1, "f": 2, "b": 1}
_BFLOAT = 4
"""Type codes of DLPack, of which this one has no kind in numpy."""
_LETTERS = {0: "i", 1: "u", 2: "f"}
_STORED = frozenset({"i1", "i2", "i4", "i8", "u1", "f2", "f4", "f8", "b1"})


class FormatError(DataError):
    """A file is not what DGL's format demands; names the file, the place and what was found."""


@dataclass(frozen=True)
class ArraySpec:
    """An array that a file holds: its name, the numpy dtype of its values and its shape."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row (one entry of the first dimension)."""
        return self.dtype.itemsize * math.prod(self.shape[1:])

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array without its header."""
        return self.shape[0] * self.row_bytes

    def header(self) -> bytes:
        """The header that stands before the values; bool is stored as uint8, as DGL does."""
        code = _BFLOAT if self.dtype == BFLOAT16 else _KINDS[self.dtype.kind]
        bits = self.dtype.itemsize * 8
        fixed = struct.pack("<QQiiiBBH", ARRAY_MAGIC, 0, *_CPU, len(self.shape), code, bits, 1)
        return fixed + struct.pack(f"<{len(self.shape)}qq", *self.shape, self.nbytes)


@dataclass(frozen=True)
class StoredArray:
    """An array inside a file, read block by block without mapping the file into memory.

    Attributes:
        path: The file.
        offset: Byte at which the values begin.
        spec: Name, stored dtype (little-endian; uint8 where a bool was written) and shape.
    """

    path: Path
    offset: int
    spec: ArraySpec

    def __len__(self) -> int:
        """Number of rows."""
        return self.spec.shape[0]

    def rows(self, start: int, stop: int) -> Array:
        """Read rows `start` to `stop` (exclusive); shape `(stop - start, ...)`, the stored dtype.

        Raises:
            FormatError: the file ends before them.
        """
        shape = (max(stop - start, 0), *self.spec.shape[1:])
        found = np.empty(shape, self.spec.dtype)
        data = found.reshape(-1).view(np.uint8).data
        read = _read(self.path, self.offset + start * self.spec.row_bytes, data)
        if read < len(data):
            values = read // self.spec.dtype.itemsize
            raise FormatError(f"{self.path}: {self.spec.name} ends after {values} of {found.size} values")
        return found

    def blocks(self, block_rows: int) -> Iterator[tuple[int, Array]]:
        """Yield `(first row, block)` over the whole array, at most `block_rows` rows at a time.

        Blocks have shape (rows, ...) and the stored dtype.

        Raises:
            FormatError: see `rows`.
        """
        for start in range(0, len(self), block_rows):
            yield start, self.rows(start, min(start + block_rows, len(self)))


def _read(path: Path, offset: int, data: memoryview) -> int:
    """Fill `data`; returns the bytes that the file has of it. Twice as fast for small blocks as numpy."""
    read = 0
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with _naming(path):
            while read < len(data):
                found = os.preadv(descriptor, [data[read:]], offset + read)  # 2 GiB at most
                if not found:
                    break
                read += found
    finally:
        os.close(descriptor)
    return read


Segment = bytes | ArraySpec


def is_storable(dtype: np.dtype[Any]) -> bool:
    """Whether torch and DGL can hold values of this dtype (no uint16, no text, ...)."""
    return dtype.kind + str(dtype.itemsize) in _STORED


@dataclass
class ArrayFile:
    """A file of segments under construction: literals are written at once, arrays block by block.

    Blocks may come in any order; leaving the `with` block checks that every array got all its rows.

    Attributes:
        path: The file.
        segments: Its content in order.
        finished: Arrays that an earlier run has written whole; then the file is taken up again.
        stays_open: Whether it is open between blocks; if not, each block costs an open.
    """

    path: Path
    segments: Sequence[Segment]
    finished: frozenset[str] = frozenset()
    stays_open: bool = True
    _file: BinaryIO = field(init=False, repr=False)
    _places: dict[str, tuple[int, ArraySpec]] = field(init=False, repr=False, default_factory=dict)
    _missing: dict[str, int] = field(init=False, repr=False, default_factory=dict)

    def __enter__(self) -> Self:
        self._file = self.path.open("r+b" if self.finished else "w+b", buffering=0)
        offset = 0
        for segment in self.segments:
            literal = segment if isinstance(segment, bytes) else segment.header()
            self._write(offset, memoryview(literal))
            offset += len(literal)
            if isinstance(segment, ArraySpec):
                self._places[segment.name] = (offset, segment)
                self._missing[segment.name] = 0 if segment.name in self.finished else segment.shape[0]
                offset += segment.nbytes
        with _naming(self.path):
            os.truncate(self._file.fileno(), offset)
        if not self.stays_open:
            self._file.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        gaps = {name: rows for name, rows in self._missing.items() if rows}
        if kind is None and gaps:
            raise FormatError(f"{self.path}: rows were not written: {gaps}")

    def put(self, name: str, first_row: int, block: Array) -> None:
        """Write rows of an array.

        Args:
            name: The array.
            first_row: Where in it.
            block: Shape (rows, *shape of the array's rows); converted to the array's dtype.

        Raises:
            FormatError: the rows do not fit into the array.
        """
        offset, spec = self._places[name]
        if first_row + len(block) > spec.shape[0] or block.shape[1:] != spec.shape[1:]:
            raise FormatError(f"{self.path}: {name} has shape {spec.shape}, got {block.shape} at {first_row}")
        values = np.ascontiguousarray(block, dtype=spec.dtype)
        if len(values):
            self._write(offset + first_row * spec.row_bytes, values.reshape(-1).view(np.uint8).data)
        self._missing[name] -= len(block)

    def _write(self, offset: int, data: memoryview) -> None:
        if self._file.closed:
            with self.path.open("r+b", buffering=0) as self._file:
                self._write(offset, data)
            return
        while len(data):
            with _naming(self.path):
                written = os.pwrite(self._file.fileno(), data, offset)
            data, offset = data[written:], offset + written


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Give an error of a call on a descriptor the file's name."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


class Cursor:
    """Reads a file's headers one after the other and skips over the values."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self._size = path.stat().st_size
        self._file = path.open("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def take(self, layout: str) -> tuple[Any, ...]:
        """Unpack little-endian fields (`struct` letters) and step over them."""
        data = self._bytes(struct.calcsize("<" + layout))
        return struct.unpack("<" + layout, data)

    def expect(self, magic: int, what: str) -> None:
        """Step over a magic number, or say that `what` is not there."""
        (found,) = self.take("Q")
        if found != magic:
            raise FormatError(f"{self.path}: expected {what} at byte {self.offset - 8}, got {found:#x}")

    def text(self) -> str:
        """Read a string: its length, then its bytes."""
        (length,) = self.take("Q")
        return self._bytes(length).decode()

    def array(self, name: str) -> StoredArray:
        """Read an array's header, remember where its values lie, and step over them."""
        self.expect(ARRAY_MAGIC, f"the array {name}")
        _, _, _, ndim, code, bits, lanes = self.take("QiiiBBH")
        shape = self.take(f"{ndim}q")
        (nbytes,) = self.take("q")
        spec = ArraySpec(name, self._dtype(code, bits, lanes), shape)
        if spec.nbytes != nbytes or self.offset + nbytes > self._size:
            raise FormatError(f"{self.path}: {name} of shape {shape} does not fit its {nbytes} bytes")
        stored = StoredArray(self.path, self.offset, spec)
        self.offset += nbytes
        return stored

    def named_arrays(self) -> dict[str, StoredArray]:
        """Read a list of (name, array)."""
        (count,) = self.take("Q")
        return {name: self.array(name) for name in (self.text() for _ in range(count))}

    def _dtype(self, code: int, bits: int, lanes: int) -> np.dtype[Any]:
        if (code, bits, lanes) == (_BFLOAT, 16, 1):
            return BFLOAT16
        if code not in _LETTERS or bits % 8 or lanes != 1:
            raise FormatError(f"{self.path}: unknown value type ({code}, {bits}, {lanes})")
        return np.dtype(f"<{_LETTERS[code]}{bits // 8}")

    def _bytes(self, length: int) -> bytes:
        if self.offset + length > self._size:
            raise FormatError(f"{self.path}: ends at byte {self._size}, {length} more were expected")
        self._file.seek(self.offset)
        self.offset += length
        return self._file.read(length)


def scalars(layout: str, *values: int) -> bytes:
    """Pack little-endian fields (`struct` letters)."""
    return struct.pack("<" + layout, *values)


def text(value: str) -> bytes:
    """A string as DGL stores it."""
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def literal_array(values: Array) -> bytes:
    """A small array with its header and values.

    Args:
        values: Little-endian integers, floats or bool of any shape.
    """
    return ArraySpec("", values.dtype, values.shape).header() + values.tobytes()


def named(specs: Mapping[str, ArraySpec]) -> list[Segment]:
    """Segments of a list of (name, array)."""
    segments: list[Segment] = [scalars("Q", len(specs))]
    for name, spec in specs.items():
        segments += [text(name), spec]
    return segments
