"""The files of a table: found, and read in blocks of the columns that are asked for."""

import glob
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from dglrun.errors import DataError
from dglrun.formats.chunked import parquetfile
from dglrun.formats.tables.config import Csv, TableConfig

CSV, PARQUET = "csv", "parquet"
_ENDINGS = {
    CSV: tuple(f"{kind}{packed}" for kind in (".csv", ".tsv", ".txt") for packed in ("", ".gz", ".bz2")),
    PARQUET: (".parquet",),
}
_BLOCK_BYTES = 4 << 20
"""Of csv that are parsed at a time; a row must fit."""
_BLOCK_ROWS = 1 << 16
_WRONG_WIDTH = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")


@dataclass(frozen=True)
class RowBlock:
    """Rows of a file.

    Attributes:
        path: The file.
        row: Number of the first row in it, from 1, the header not counted.
        columns: pyarrow arrays by name; those of csv are texts.
    """

    path: Path
    row: int
    columns: dict[str, Any]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


@dataclass(frozen=True)
class TableFiles:
    """A table's files, all of one format.

    Attributes:
        format: csv or parquet.
        paths: In the order of the rows.
        csv: Of csv files.
    """

    format: str
    paths: tuple[Path, ...]
    csv: Csv

    def names(self, path: Path) -> list[str]:
        """The columns of a file.

        Raises:
            DataError: it cannot be read.
        """
        if self.format == PARQUET:
            return list(_open_parquet(path).schema_arrow.names)
        if _is_empty(path):
            return []
        with _open_csv(path, self.csv, None) as reader:
            return list(reader.schema.names)

    def require(self, wanted: Sequence[str]) -> None:
        """Refuse files that lack a column.

        Raises:
            DataError: names the file, the column and those that are there.
        """
        for path in self.paths:
            names = self.names(path)
            if self.format == CSV and not names:
                continue
            for name in wanted:
                if names.count(name) != 1:
                    what = "is there several times" if name in names else f"expected one of {names}"
                    raise DataError(f"{path}: column {name!r}: {what}")

    def blocks(self, wanted: Sequence[str]) -> Iterator[RowBlock]:
        """The rows of all files, file after file.

        Raises:
            DataError: a file or a row cannot be read.
        """
        for path in self.paths:
            row = 1
            for batch in self._batches(path, list(dict.fromkeys(wanted))):
                if batch.num_rows:
                    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
                    yield RowBlock(path, row, columns)
                row += batch.num_rows

    def _batches(self, path: Path, wanted: list[str]) -> Iterator[Any]:
        try:
            if self.format == PARQUET:
                yield from _open_parquet(path).iter_batches(_BLOCK_ROWS, columns=wanted, use_threads=False)
            elif not _is_empty(path):
                with _open_csv(path, self.csv, wanted) as reader:
                    yield from reader
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise DataError(f"{path}: cannot be read: {_told(error)}") from None


def find(table: TableConfig) -> TableFiles:
    """The files of a table, sorted within each folder and glob.

    Raises:
        DataError: nothing is there, or files of two formats.
    """
    paths = [path for name in table.files for path in _files(name, table.format)]
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise DataError(f"{twice}: is named twice by {list(table.files)}")
    formats = {_format(path, table.format) for path in paths}
    if len(formats) != 1:
        raise DataError(f"{paths[0]}: expected files of one format, got csv and parquet: {list(table.files)}")
    return TableFiles(formats.pop(), tuple(paths), table.csv)


def _files(name: str, layout: str | None) -> list[Path]:
    path = Path(name)
    if path.is_dir():
        found = sorted(each for each in path.rglob("*") if _is_part(each, path, layout))
        if not found:
            raise DataError(f"{path}: expected files of csv or Parquet in the folder, found none")
        return found
    if path.exists():
        return [path.absolute()]
    matches = sorted(glob.glob(name, recursive=True))  # noqa: PTH207 - absolute or not
    if not matches:
        raise DataError(f"{name}: does not exist")
    return [file for match in matches for file in _files(match, layout)]


def _is_part(path: Path, folder: Path, layout: str | None) -> bool:
    """Whether a file in a folder is one of rows: not _SUCCESS, not a checksum, nothing hidden."""
    below = path.relative_to(folder).parts
    endings = _ENDINGS[layout] if layout else (*_ENDINGS[CSV], *_ENDINGS[PARQUET])
    return path.is_file() and not any(each[0] in "._" for each in below) and path.name.endswith(endings)


def _format(path: Path, layout: str | None) -> str:
    if layout:
        return layout
    for name, endings in _ENDINGS.items():
        if path.name.endswith(endings):
            return name
    raise DataError(f"{path}: expected a name that ends in .csv or .parquet, or `format`")


def _open_parquet(path: Path) -> Any:
    """The file by its own schema: pandas' index and Spark's columns alike."""
    try:
        return parquetfile.open_file(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {_told(error)}") from None


def _is_empty(path: Path) -> bool:
    """Whether a csv file has no byte, compressed or not: Spark writes empty parts so."""
    try:
        with pa.input_stream(str(path), compression="detect") as stream:
            return not stream.read(1)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read: {_told(error)}") from None


def _open_csv(path: Path, csv: Csv, wanted: list[str] | None) -> Any:
    """A reader of text columns; one thread, as with several pyarrow does not tell the number of a bad row."""
    names = list(csv.columns)
    quoting = {"quote_char": csv.quote or False, "escape_char": csv.escape or False}
    try:
        return pacsv.open_csv(
            pa.input_stream(str(path), compression="detect"),
            pacsv.ReadOptions(
                use_threads=False,
                block_size=_BLOCK_BYTES,
                column_names=names or None,
                skip_rows=1 if names and csv.header else 0,
                encoding=csv.encoding,
            ),
            pacsv.ParseOptions(delimiter=csv.delimiter, newlines_in_values=csv.quote is not None, **quoting),
            pacsv.ConvertOptions(
                column_types={} if wanted is None else dict.fromkeys(wanted, pa.string()),
                include_columns=wanted,
                strings_can_be_null=False,
            ),
        )
    except (pa.ArrowException, OSError, LookupError, UnicodeError) as error:
        raise DataError(f"{path}: cannot be read: {_told(error)}") from None


def _told(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if found := _WRONG_WIDTH.search(text):
        line, expected, got = found.groups()
        return f"line {line}: expected {expected} fields, got {got}"
    return text[:300]


def parquet_writer(path: Path, schema: Any) -> Any:
    """A writer for tables of IDs, in small row groups."""
    return pq.ParquetWriter(path, schema, compression="snappy")
