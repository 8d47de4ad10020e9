"""numpy files (`np.save`): the header alone for counts, plain reads for rows.

Rows are read, not mapped: mapped pages would count as memory of the process.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from dglrun.arrays import Array
from dglrun.errors import DataError, StoreError
from dglrun.formats.chunked import input_file
from dglrun.formats.chunked.input_file import File


@dataclass(frozen=True)
class Header:
    """What the first bytes of a numpy file say, and where its rows start."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    offset: int


def header(path: File) -> Header:
    """Read the header; the file must hold all the rows that it announces.

    Raises:
        DataError: no numpy file, Python objects inside, no dimension, or cut short.
    """
    with input_file.open_binary(path, input_file.HEAD) as file:
        try:
            version = npy.read_magic(file)  # type: ignore[no-untyped-call]
            read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, fortran, dtype = read(file)  # type: ignore[no-untyped-call]
        except StoreError:
            raise
        except ValueError as error:
            raise DataError(f"{path}: is not a file of numpy.save: {error}") from None
        found = Header(shape, fortran and len(shape) > 1, dtype, file.tell())
    if dtype.hasobject or not shape:
        raise DataError(f"{path}: expected an array of numbers with rows, got {dtype} of shape {shape}")
    wanted = found.offset + dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    if (size := input_file.stat(path).size) < wanted:
        raise DataError(f"{path}: is cut short: {size} bytes, the header says {wanted}")
    return found


def blocks(path: File, start: int, stop: int, block_rows: int) -> Iterator[Array]:
    """Rows start..stop in arrays of at most `block_rows` rows.

    Yields:
        Shape (rows, *shape of a row), the file's dtype in native byte order, contiguous.

    Raises:
        DataError: see `header`.
    """
    head = header(path)
    for at in range(start, stop, block_rows):
        rows = _rows(path, head, at, min(at + block_rows, stop))
        yield np.ascontiguousarray(rows, head.dtype.newbyteorder("="))


def _rows(path: File, head: Header, start: int, stop: int) -> Array:
    if head.fortran:
        return input_file.fortran_rows(path, head.dtype, head.shape, head.offset, start, stop)
    tail = head.shape[1:]
    width = int(np.prod(tail, dtype=np.int64))
    offset = head.offset + start * width * head.dtype.itemsize
    flat = input_file.values(path, head.dtype, (stop - start) * width, offset)
    return flat.reshape(stop - start, *tail)


def write(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], rows: Iterable[Array]) -> None:
    """Write an array that comes in blocks of rows.

    Args:
        path: The file.
        dtype: What the file holds.
        shape: Shape of the whole array.
        rows: Its blocks in order, shape (rows, *shape[1:]); converted to `dtype`.
    """
    with path.open("wb") as file:
        fields = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": tuple(shape)}  # type: ignore[no-untyped-call]
        npy.write_array_header_1_0(file, fields)  # type: ignore[no-untyped-call]
        for block in rows:
            file.write(np.ascontiguousarray(block, dtype).data)
