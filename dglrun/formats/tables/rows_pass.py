"""One pass over a table: its IDs go into a Parquet file, its features into files of plain numbers."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dglrun.arrays import Array
from dglrun.errors import DataError
from dglrun.formats.chunked.stored_rows import StoredRows
from dglrun.formats.tables import values
from dglrun.formats.tables.config import SPLITS, TableConfig
from dglrun.formats.tables.sources import RowBlock, TableFiles, parquet_writer

_BLOCK_ROWS = 1 << 20
_SETS = "sets"
Made = values.Numbers | values.Categories | values.Split


@dataclass(frozen=True)
class Column:
    """A column of IDs.

    Attributes:
        name: In the user's files.
        kind: `string` or `integer`.
        stored: Its name in the file of IDs.
    """

    name: str
    kind: str
    stored: str


@dataclass(frozen=True)
class Passed:
    """A table of which all rows have been read.

    Attributes:
        what: The type, for messages.
        rows: How many.
        ids: Parquet with the columns of IDs, in the order of the rows.
        table: Its description.
        stored: Files of numbers by feature, with what made them.
        origins: The user's files with their rows.
    """

    what: str
    rows: int
    ids: Path
    table: TableConfig
    stored: Mapping[str, tuple[Path, Made]]
    origins: Sequence[tuple[Path, int]]

    def place(self, row: int) -> str:
        """The file and the row in it, for a message."""
        ends = list(accumulate(rows for _, rows in self.origins))
        at = bisect_right(ends, row)
        path, rows = self.origins[at]
        return f"{path}: row {row - (ends[at] - rows) + 1}"

    def features(self, added: int, seed: list[int]) -> dict[str, StoredRows]:
        """The features and masks by name.

        Args:
            added: Rows behind those of the table, which have the value for missing ones.
            seed: Of the masks.

        Raises:
            DataError: there is none for such rows.
        """
        found: dict[str, StoredRows] = {}
        for name, (path, made) in self.stored.items():
            if name == _SETS or isinstance(made, values.Split):
                continue
            if isinstance(made, values.Categories):
                made.check(f"{self.what}: feature {name}")
            if added and made.feature.missing is None:
                text = f"{added} nodes occur in edges only: expected `missing` for their value"
                raise DataError(f"{self.what}: feature {name}: {text}")
            found[name] = self._rows(path, made, added)
        return found | self._masks(added, seed)

    def categories(self) -> dict[str, list[str]]:
        """The texts of each category; the position is the number."""
        made = {name: each for name, (_, each) in self.stored.items()}
        return {name: each.words for name, each in made.items() if isinstance(each, values.Categories)}

    def _rows(self, path: Path, made: values.Numbers | values.Categories, added: int) -> StoredRows:
        is_category = isinstance(made, values.Categories)
        stored, tail = np.dtype(np.int64) if is_category else made.dtype, _tail(made)
        fill = -1 if is_category else made.feature.missing

        def read(start: int, stop: int) -> Array:
            return made.finished(_read(path, stored, tail, self.rows, start, stop, fill))

        return StoredRows(read, 0, self.rows + added, tail, made.dtype)

    def _masks(self, added: int, seed: list[int]) -> dict[str, StoredRows]:
        if self.table.masks is None:
            return {}
        path = self.stored[_SETS][0] if _SETS in self.stored else self._drawn(seed)

        def reader(number: int) -> Any:
            int8 = np.dtype(np.int8)
            return lambda start, stop: _read(path, int8, (), self.rows, start, stop, -1) == number

        masks = enumerate(f"{split}_mask" for split in SPLITS)
        return {
            name: StoredRows(reader(at), 0, self.rows + added, (), np.dtype(np.bool_)) for at, name in masks
        }

    def _drawn(self, seed: list[int]) -> Path:
        """The sets of a table whose masks are by ratio."""
        path = self.ids.with_suffix(f".{_SETS}")
        assert self.table.masks is not None  # noqa: S101 - the caller has looked
        with path.open("wb") as file:
            for block in values.split_by_ratio(self.rows, self.table.masks.ratios, seed, _BLOCK_ROWS):
                file.write(block.data)
        return path


def run(what: str, source: TableFiles, table: TableConfig, columns: Sequence[Column], stem: Path) -> Passed:
    """Read a table once.

    Args:
        what: The type, for messages.
        source: Its files.
        table: Its description.
        columns: Its IDs.
        stem: Beginning of the paths of what is written.

    Raises:
        DataError: a value is not what it must be; names file, row and column.
    """
    made = makers(table)
    stored = {
        name: (stem.with_name(f"{stem.name}-{at}.rows"), each) for at, (name, each) in enumerate(made.items())
    }
    ids, origins = stem.with_name(f"{stem.name}.ids"), dict.fromkeys(source.paths, 0)
    wanted = [*(each.name for each in columns), *wanted_by(table)]
    with ExitStack() as stack:
        files = {name: stack.enter_context(path.open("wb")) for name, (path, _) in stored.items()}
        writer = stack.enter_context(parquet_writer(ids, _schema(columns)))
        for block in source.blocks(wanted):
            writer.write_batch(_ids(block, columns, table))
            for name, (_, each) in stored.items():
                files[name].write(np.ascontiguousarray(each.rows(block)).data)
            origins[block.path] += len(block)
    return Passed(what, sum(origins.values()), ids, table, stored, tuple(origins.items()))


def makers(table: TableConfig) -> dict[str, Made]:
    """What makes each feature of a table."""
    empty = table.csv.empty
    found: dict[str, Made] = {
        name: values.Categories(each, empty) if each.category else values.Numbers(each, empty)
        for name, each in table.features.items()
    }
    if table.masks is not None and table.masks.column:
        found[_SETS] = values.Split(table.masks, empty)
    return found


def wanted_by(table: TableConfig) -> Iterator[str]:
    """The columns that the features and masks of a table need."""
    for feature in table.features.values():
        yield from feature.names
    if table.masks is not None and table.masks.column:
        yield table.masks.column


def _schema(columns: Sequence[Column]) -> Any:
    kinds = {"string": pa.string(), "integer": pa.int64()}
    return pa.schema([(each.stored, kinds[each.kind]) for each in columns])


def _ids(block: RowBlock, columns: Sequence[Column], table: TableConfig) -> Any:
    found = [values.ids(block, each.name, each.kind, table.csv.empty) for each in columns]
    return pa.RecordBatch.from_arrays(found, schema=_schema(columns))


def _tail(made: values.Numbers | values.Categories) -> tuple[int, ...]:
    if made.tail is None:  # a table without rows
        return (len(made.feature.columns),) if made.feature.columns else ()
    return made.tail


def _read(
    path: Path, dtype: np.dtype[Any], tail: tuple[int, ...], rows: int, start: int, stop: int, fill: Any
) -> Array:
    """Rows of a file of plain numbers; `fill` behind its end."""
    there, width = max(0, min(stop, rows) - start), int(np.prod(tail, dtype=np.int64))
    offset = min(start, rows) * width * dtype.itemsize
    found = np.fromfile(path, dtype, there * width, offset=offset).reshape(there, *tail)
    if there == stop - start:
        return found
    return np.concatenate([found, np.full((stop - start - there, *tail), fill, dtype)])
