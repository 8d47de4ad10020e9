"""Rows of a table in files, in bounded blocks and from any row on.

A row number here counts through the concatenation of the table's files. Edge files hold two columns,
source and destination (numpy: shape (n, 2)); feature files hold one row for each node or edge.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dglrun.arrays import BFLOAT16, Array, Ints, dtype_name, dtype_of
from dglrun.errors import DataError
from dglrun.formats.chunked import csvfile, input_file, npyfile, parquetfile
from dglrun.formats.chunked.input_file import File
from dglrun.formats.chunked.row_index import RowIndex
from dglrun.formats.chunked.table import CSV, FEATURE_DTYPES, NUMPY, FileSpec

BLOCK_ROWS = 1 << 20
"""Rows that are read, and held, at a time."""


class FeatureInfo(NamedTuple):
    """dtype of a feature's values and shape of its rows: () for one value in each row."""

    dtype: np.dtype[Any]
    tail: tuple[int, ...]


def index_file(path: File, spec: FileSpec) -> RowIndex:
    """Count a file's rows: numpy and parquet by header or footer, csv by reading it through once.

    A file of 0 bytes has no rows, whatever its format. The result is remembered until the file changes.

    Raises:
        DataError: the file is missing or not of the format that the metadata names.
    """
    stat = input_file.stat(path)
    return _index(path, spec.format, stat.size, stat.mtime_ns)


@lru_cache(maxsize=65536)
def _index(path: File, layout: str, size: int, _mtime: int) -> RowIndex:
    if size == 0:
        return RowIndex(path, 0)
    if layout == CSV:
        return csvfile.count(path)
    rows = npyfile.header(path).shape[0] if layout == NUMPY else parquetfile.count(path)
    return RowIndex(path, rows)


def index(spec: FileSpec) -> tuple[RowIndex, ...]:
    """The index of every file of a table."""
    return tuple(index_file(path, spec) for path in spec.paths)


def row_counts(spec: FileSpec) -> tuple[int, ...]:
    """Rows of every file of a table, in order."""
    return tuple(found.rows for found in index(spec))


def edge_blocks(
    spec: FileSpec,
    start: int,
    stop: int,
    block_rows: int = BLOCK_ROWS,
    *,
    limits: tuple[int, int] | None = None,
    files: Sequence[RowIndex] | None = None,
) -> Iterator[tuple[Ints, Ints]]:
    """Rows start..stop of the concatenated edge files as (sources, destinations): int64, shape (edges,).

    Blocks come in row order; none is empty or longer than `block_rows`; a block never spans two files.

    Args:
        spec: The edge files.
        start: First row.
        stop: Row after the last one.
        block_rows: Rows in a block at most.
        limits: Numbers of source and of destination nodes; every ID is then checked to be below.
        files: The files' index if the caller has it (another rank counted); None: count here.

    Raises:
        DataError: a bad row, a wrong number of columns, an ID outside `limits`; names file and line.
    """
    for found, low, high in _overlap(files if files is not None else index(spec), start, stop):
        row = low
        for src, dst in _edge_rows(found, spec, low, high, block_rows):
            if limits is not None:
                _check_ids(found.path, spec, row, src, limits[0], "source")
                _check_ids(found.path, spec, row, dst, limits[1], "destination")
            row += len(src)
            yield src, dst


def feature_info(spec: FileSpec) -> FeatureInfo:
    """Dtype and row shape of a feature, from the headers of all its files, which must agree.

    csv: one column gives rows of shape (), k columns (k,). Its dtype is `spec.dtype`, else int64 where
    the first line of the first file that has one holds integers only, else float32.

    Raises:
        DataError: files of different dtypes or shapes, or a dtype that DGL cannot hold.
    """
    infos = [(path, _file_info(path, spec)) for path in spec.paths]
    known = [(path, info) for path, info in infos if info is not None]
    if not known:
        return FeatureInfo(dtype_of(spec.dtype or "float32"), ())
    first_path, first = known[0]
    for path, info in known:
        if info != first:
            raise DataError(f"{path}: rows are {_shown(info)}, but {_shown(first)} in {first_path}")
    if dtype_name(first.dtype) not in FEATURE_DTYPES:
        raise DataError(f"{first_path}: DGL holds {', '.join(FEATURE_DTYPES)}, got {dtype_name(first.dtype)}")
    return first


def _shown(info: FeatureInfo) -> str:
    return f"{dtype_name(info.dtype)}{list(info.tail)}"


def feature_blocks(
    spec: FileSpec,
    start: int,
    stop: int,
    block_rows: int = BLOCK_ROWS,
    *,
    files: Sequence[RowIndex] | None = None,
) -> Iterator[Array]:
    """Rows start..stop of the concatenated feature files.

    Args:
        spec: The feature files.
        start: First row.
        stop: Row after the last one.
        block_rows: Rows in a block at most.
        files: The files' index if the caller has it; None: count here.

    Yields:
        Contiguous arrays, shape (rows, *tail), with dtype and `tail` of `feature_info`; none is empty or of
        two files.

    Raises:
        DataError: a bad row (names file and line or row), fewer rows than `stop`, or as `feature_info`.
    """
    info = feature_info(spec)
    for found, low, high in _overlap(files if files is not None else index(spec), start, stop):
        yield from _feature_rows(found, spec, info, low, high, block_rows)


def _overlap(files: Sequence[RowIndex], start: int, stop: int) -> Iterator[tuple[RowIndex, int, int]]:
    """The files with rows in start..stop, each with its own first and last row."""
    first = 0
    for found in files:
        low, high = max(start - first, 0), min(stop - first, found.rows)
        if low < high:
            yield found, low, high
        first += found.rows
    if stop > first:
        where = files[-1].path if files else "no file"
        raise DataError(f"{where}: expected {stop} rows in {len(files)} files together, got {first}")


def _edge_rows(
    found: RowIndex, spec: FileSpec, low: int, high: int, block_rows: int
) -> Iterator[tuple[Ints, Ints]]:
    if spec.format == CSV:
        for src, dst in csvfile.blocks(found, spec, ("int64", "int64"), low, high, block_rows):
            yield src, dst
    elif spec.format == NUMPY:
        _check_pairs(found.path)
        for rows in npyfile.blocks(found.path, low, high, block_rows):
            yield rows[:, 0].astype(np.int64), rows[:, 1].astype(np.int64)
    else:
        parquetfile.integer_columns(found.path, 2)
        for src, dst in parquetfile.columns(found.path, low, high, block_rows):
            yield src.to_numpy().astype(np.int64, copy=False), dst.to_numpy().astype(np.int64, copy=False)


def _check_pairs(path: File) -> None:
    head = npyfile.header(path)
    if len(head.shape) != 2 or head.shape[1] != 2 or head.dtype.kind not in "iu":
        raise DataError(
            f"{path}: expected integers of shape (edges, 2), got {head.dtype} of shape {head.shape}"
        )


def _check_ids(path: File, spec: FileSpec, row: int, ids: Ints, limit: int, what: str) -> None:
    """Refuse IDs below 0 or from `limit` on; as unsigned numbers the negative ones are large."""
    if len(ids) and int(ids.view(np.uint64).max()) >= limit:
        at = int(np.flatnonzero(ids.view(np.uint64) >= limit)[0])
        place = f"line {row + at + 1}" if spec.format == CSV else f"row {row + at}"
        raise DataError(f"{path}: {place}: expected a {what} ID from 0 to {limit - 1}, got {ids[at]}")


def _file_info(path: File, spec: FileSpec) -> FeatureInfo | None:
    if not input_file.stat(path).size:
        return None
    if spec.format != CSV:  # to know of csv that it is none would be to read it
        index_file(path, spec)
    if spec.format == NUMPY:
        head = npyfile.header(path)
        return _named(path, spec, FeatureInfo(head.dtype.newbyteorder("="), head.shape[1:]))
    if spec.format == CSV:
        return _csv_info(path, spec)
    layout = parquetfile.feature_layout(path)
    return _named(path, spec, FeatureInfo(*layout)) if layout else None


def _named(path: File, spec: FileSpec, found: FeatureInfo) -> FeatureInfo:
    """What the file holds by its own words, or bfloat16 if the metadata says that."""
    if spec.dtype != "bfloat16":
        return found
    if found.dtype != np.uint16:
        raise DataError(f"{path}: expected bfloat16 as uint16 values, got {dtype_name(found.dtype)}")
    return FeatureInfo(BFLOAT16, found.tail)


def _csv_info(path: File, spec: FileSpec) -> FeatureInfo | None:
    dtype = spec.dtype or _csv_dtype(spec)
    types = csvfile.first_types(path, spec)
    if types is None:
        return None
    return FeatureInfo(np.dtype(dtype), (len(types),) if len(types) > 1 else ())


def _csv_dtype(spec: FileSpec) -> str:
    found = (csvfile.first_types(path, spec) for path in spec.paths)
    return next((types[0] for types in found if types), "float32")


def _told(blocks: Iterator[list[Array]], spec: FileSpec, info: FeatureInfo) -> Iterator[list[Array]]:
    """Say of a bad value where its dtype comes from, if the metadata does not name one."""
    try:
        yield from blocks
    except DataError as error:
        if spec.dtype:
            raise
        raise DataError(
            f"{error}; dtype {info.dtype} inferred from line 1; set `dtype` in the metadata"
        ) from None


def _feature_rows(
    found: RowIndex, spec: FileSpec, info: FeatureInfo, low: int, high: int, block_rows: int
) -> Iterator[Array]:
    if spec.format == NUMPY:
        for rows in npyfile.blocks(found.path, low, high, block_rows):
            yield rows.view(BFLOAT16) if info.dtype == BFLOAT16 else rows
    elif spec.format == CSV:
        kinds = (csvfile.arrow_name(info.dtype.name),) * (info.tail[0] if info.tail else 1)
        for columns in _told(csvfile.blocks(found, spec, kinds, low, high, block_rows), spec, info):
            stacked = np.stack(columns, axis=1) if info.tail else columns[0]
            yield np.ascontiguousarray(stacked, info.dtype)
    else:
        row = low
        for columns in parquetfile.columns(found.path, low, high, block_rows):
            stored = np.dtype("<u2") if info.dtype == BFLOAT16 else info.dtype
            rows = parquetfile.matrix(found.path, row, columns, stored, info.tail)
            yield rows.view(info.dtype)
            row += len(columns[0])
