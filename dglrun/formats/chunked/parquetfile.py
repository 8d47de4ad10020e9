"""parquet files: footers for counts, streamed batches for rows.

Features follow DGL's reader: schema metadata `shape` if present, one list column as row vectors, else
the columns side by side in two dimensions.
"""

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from dglrun.arrays import Array
from dglrun.errors import DataError
from dglrun.formats.chunked import input_file
from dglrun.formats.chunked.input_file import File
from dglrun.formats.store import Place

BUFFER = 1 << 20
"""Bytes of a column chunk that are held at once; without it a whole one, whatever rows are asked for."""
BUFFERS = 32 << 20
"""Bytes of all columns' buffers together."""


def open_file(path: File) -> Any:
    """Open a parquet file; `Any` as pyarrow has no types.

    Raises:
        DataError: it is no parquet file.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415 - 10 ms of each rank with pyarrow.fs, and for parquet only

    try:
        known = _footer(path) if isinstance(path, Place) else None
        source = input_file.open_for_arrow(path)
        file = pq.ParquetFile(source, metadata=known, pre_buffer=False, buffer_size=BUFFER)
        if (wide := file.metadata.num_columns) > BUFFERS // BUFFER:
            small = max(BUFFERS // wide, 1 << 12)
            return pq.ParquetFile(source, metadata=file.metadata, pre_buffer=False, buffer_size=small)
        return file
    except pa.ArrowInvalid as error:
        raise DataError(f"{path}: is not a parquet file: {error}") from None


@lru_cache(maxsize=4096)
def _footer(path: Place) -> Any:
    """The metadata of an object, for which its end is read once."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    return pq.read_metadata(input_file.open_for_arrow(path))


def count(path: File) -> int:
    """Number of rows, by the footer."""
    return int(open_file(path).metadata.num_rows)


def columns(path: File, start: int, stop: int, block_rows: int) -> Iterator[list[Any]]:
    """Rows start..stop as lists of pyarrow arrays, at most `block_rows` rows at a time.

    Only the row groups that hold these rows are read, one batch at a time.

    Raises:
        DataError: a row has no value.
    """
    if stop <= start:
        return
    file = open_file(path)
    groups, first = _groups(file, start, stop)
    row = first
    for batch in _batches(path, file, block_rows, groups):
        low, high = max(start - row, 0), min(stop - row, batch.num_rows)
        if low < high:
            found = batch.slice(low, high - low)
            _refuse_nulls(path, row + low, found)
            yield list(found.columns)
        row += batch.num_rows
        if row >= stop:
            return


def _batches(path: File, file: Any, block_rows: int, groups: list[int]) -> Iterator[Any]:
    try:
        yield from file.iter_batches(block_rows, row_groups=groups, use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None


def _groups(file: Any, start: int, stop: int) -> tuple[list[int], int]:
    """Row groups that overlap the range, and the first row of the first of them."""
    sizes = [file.metadata.row_group(at).num_rows for at in range(file.metadata.num_row_groups)]
    ends = np.cumsum(sizes)
    first = int(np.searchsorted(ends, start, side="right"))
    last = int(np.searchsorted(ends, stop - 1, side="right"))
    return list(range(first, last + 1)), int(ends[first]) - sizes[first]


def _refuse_nulls(path: File, row: int, batch: Any) -> None:
    for column in batch.columns:
        if column.null_count:
            at = row + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise DataError(f"{path}: row {at} has no value")


def integer_columns(path: File, wanted: int) -> None:
    """Refuse a file that has not exactly `wanted` integer columns.

    Raises:
        DataError: another number or kind of columns.
    """
    found = open_file(path).schema_arrow
    if len(found) != wanted or not all(pa.types.is_integer(kind) for kind in found.types):
        kinds = [f"{name}: {kind}" for name, kind in zip(found.names, found.types, strict=True)]
        raise DataError(f"{path}: expected {wanted} integer columns, got {kinds}")


def feature_layout(path: File) -> tuple[np.dtype[Any], tuple[int, ...]] | None:
    """Dtype of the values and shape of one row; None for lists without a row or `shape`: no length is told.

    Raises:
        DataError: columns that are no numbers, vectors of no fixed length, a `shape` that does not fit.
    """
    file = open_file(path)
    schema = file.schema_arrow
    shape = (schema.metadata or {}).get(b"shape")
    if not file.metadata.num_rows and len(schema) == 1 and _is_list(schema.types[0]):
        kind = _numpy_type(path, schema.types[0].value_type)
        return (kind, _shape(path, shape.decode())[1:]) if shape else None
    width, dtype = _row(path, file, schema)
    if shape is None:
        return dtype, (width,)
    tail = _shape(path, shape.decode())[1:]
    if int(np.prod(tail, dtype=np.int64)) != width:
        raise DataError(
            f"{path}: schema metadata shape {shape.decode()!r} does not fit {width} values in a row"
        )
    return dtype, tail


def _row(path: File, file: Any, schema: Any) -> tuple[int, np.dtype[Any]]:
    """Number of values in a row, and their common dtype."""
    if len(schema) == 1 and _is_list(schema.types[0]):
        return _list_width(file, schema.types[0]), _numpy_type(path, schema.types[0].value_type)
    if not len(schema):
        raise DataError(f"{path}: expected at least one column, got none")
    return len(schema), np.result_type(*(_numpy_type(path, kind) for kind in schema.types))


def _is_list(kind: Any) -> bool:
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(test(kind) for test in tests)


def _list_width(file: Any, kind: Any) -> int:
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size)
    for at in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(at)
        if group.num_rows:
            return int(group.column(0).num_values) // int(group.num_rows)
    return 0


def _numpy_type(path: File, kind: Any) -> np.dtype[Any]:
    """Pyarrow's own translation needs pandas, which dglrun does without."""
    floats = {"halffloat": "float16", "float": "float32", "double": "float64"}
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise DataError(f"{path}: expected numbers, got a column of type {kind}")
    return np.dtype(floats.get(str(kind), str(kind)))


def _shape(path: File, text: str) -> tuple[int, ...]:
    try:
        found = json.loads(text.strip().replace("(", "[").replace(",)", "]").replace(")", "]"))
        return tuple(int(size) for size in found)
    except (ValueError, TypeError):
        raise DataError(f"{path}: schema metadata shape: expected '(rows, ...)', got {text!r}") from None


def matrix(path: File, row: int, found: list[Any], dtype: np.dtype[Any], tail: tuple[int, ...]) -> Array:
    """Columns of one block as one array.

    Args:
        path: The file, for messages.
        row: Number of the block's first row, for messages.
        found: pyarrow arrays of equal length: one of vectors, or one of numbers for each value of a row.
        dtype: Of the result.
        tail: Shape of a row.

    Returns:
        Shape (rows, *tail), contiguous, of `dtype`.

    Raises:
        DataError: a vector has another length than `tail` says, or an empty value.
    """
    rows = len(found[0])
    if len(found) == 1 and _is_list(found[0].type):
        return _vectors(path, row, found[0], dtype, tail)
    out = np.empty((rows, len(found)), dtype)
    for at, column in enumerate(found):
        out[:, at] = column.to_numpy(zero_copy_only=False)
    return out.reshape(rows, *tail)


def _lengths(column: Any) -> Array:
    """Of the vectors, none of which is null; pyarrow.compute, which knows it, too, takes 34 ms to import."""
    if pa.types.is_fixed_size_list(column.type):
        return np.full(len(column), column.type.list_size)
    return np.diff(column.offsets.to_numpy())


def _values(column: Any) -> Any:
    """Of all vectors, none of which is null, in order; `flatten` would import pyarrow.compute."""
    if pa.types.is_fixed_size_list(column.type):
        size = column.type.list_size
        return column.values.slice(column.offset * size, len(column) * size)
    first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
    return column.values.slice(first, last - first)


def _vectors(path: File, row: int, column: Any, dtype: np.dtype[Any], tail: tuple[int, ...]) -> Array:
    rows, width = len(column), int(np.prod(tail, dtype=np.int64))
    lengths = _lengths(column)
    if (lengths != width).any():
        at = int(np.flatnonzero(lengths != width)[0])
        raise DataError(f"{path}: row {row + at}: expected {width} values, got {lengths[at]}")
    values = _values(column)
    if values.null_count:
        raise DataError(f"{path}: rows from {row} on: a vector holds an empty value")
    return np.ascontiguousarray(values.to_numpy(zero_copy_only=False), dtype).reshape(rows, *tail)
