"""Columns as arrays: IDs, numbers, vectors and categories; a value that does not fit is named by its row."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dglrun.arrays import Array, Ints
from dglrun.errors import DataError
from dglrun.formats.tables.config import SPLITS, Feature, Masks
from dglrun.formats.tables.sources import RowBlock

MAX_CATEGORIES = 1 << 20
"""Categories of one column, which are held in memory; more are taken for a mistake."""


def ids(block: RowBlock, name: str, kind: str, empty: tuple[str, ...]) -> Any:
    """The IDs of a column: pyarrow string or int64, without nulls.

    Args:
        block: Rows.
        name: The column.
        kind: `string` or `integer`.
        empty: Fields that stand for no value.

    Raises:
        DataError: a row has no ID, or one that is no integer of 64 bits.
    """
    column = without(block, name, empty)
    what = "an integer of 64 bits" if kind == "integer" else "a text or an integer"
    found = _text(block, name, column, what)
    if kind == "integer":
        source = found if _is_text(column.type) else column
        found = _casting(source, pa.int64(), lambda at, got: _wrong(block, name, at, what, got))
    if found.null_count:
        raise _wrong(block, name, _first(found.is_null()), "an ID", "no value")
    return found


def without(block: RowBlock, name: str, empty: tuple[str, ...]) -> Any:
    """A column whose fields that stand for no value are null."""
    column = block.columns[name]
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not (_is_text(column.type) and empty):
        return column
    return pc.if_else(pc.is_in(column, pa.array(empty, column.type)), pa.scalar(None, column.type), column)


@dataclass
class Numbers:
    """Makes a feature's rows of columns of numbers.

    Attributes:
        feature: What is wanted.
        empty: Fields that stand for no value.
        tail: Shape of a row; None until the first rows have come.
    """

    feature: Feature
    empty: tuple[str, ...]
    tail: tuple[int, ...] | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values."""
        return np.dtype(self.feature.kind)

    def rows(self, block: RowBlock) -> Array:
        """Shape (rows, *tail).

        Raises:
            DataError: a value is missing, is no number or does not fit the dtype; vectors of several lengths.
        """
        columns = {name: without(block, name, self.empty) for name in self.feature.names}
        name = self.feature.names[0]
        is_vector = bool(self.feature.column) and _is_list(columns[name].type)
        if is_vector and self.tail == ():
            raise _wrong(block, name, 0, "single values as in the files before", "vectors")
        if is_vector:
            found = self._vectors(block, name, columns[name])
        else:
            parts = [self._numbers(block, *each) for each in columns.items()]
            found = parts[0] if self.feature.column else np.stack(parts, axis=1)
        if self.tail is not None and not is_vector and found.shape[1:] != self.tail:
            raise _wrong(block, name, 0, "vectors as in the files before", "single values")
        self.tail = found.shape[1:]
        return found

    def finished(self, values: Array) -> Array:
        """What is in the graph for values that `rows` gave."""
        return values

    def _vectors(self, block: RowBlock, name: str, column: Any) -> Array:
        lengths = pc.list_value_length(column)
        known = lengths.drop_null()
        if column.null_count and (self.feature.missing is None or not (self.tail or len(known))):
            raise _wrong(block, name, _first(column.is_null()), "a vector", "no value")
        width = self.tail[0] if self.tail else known[0].as_py()
        if pc.any(differs := pc.not_equal(lengths, width)).as_py():
            at = _first(differs)
            raise _wrong(block, name, at, f"vectors of {width} values", str(lengths[at]))
        there = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        flat = self._values(block, name, column.flatten(), np.repeat(there, width))
        fill = 0 if self.feature.missing is None else self.feature.missing
        found = np.full((len(column), width), fill, self.dtype)
        found[there] = flat.reshape(len(there), width)
        return found

    def _numbers(self, block: RowBlock, name: str, column: Any) -> Array:
        return self._values(block, name, column, np.arange(len(column)))

    def _values(self, block: RowBlock, name: str, column: Any, rows: Ints) -> Array:
        """Numbers of a column, of which `rows` tells the rows in the block."""

        def wrong(at: int, got: str) -> DataError:
            return _wrong(block, name, int(rows[at]), f"a number of {self.dtype.name}", got)

        missing = self.feature.missing
        if not (_is_text(column.type) or _is_number(column.type) or pa.types.is_null(column.type)):
            raise wrong(0, f"a column of type {column.type}")
        if column.null_count and missing is None:
            raise wrong(_first(column.is_null()), "no value (`missing` gives one)")
        wide = np.dtype(np.float64) if self.dtype.kind == "f" else self.dtype
        cast = _casting(column, pa.from_numpy_dtype(wide), wrong)
        if cast.null_count:
            cast = pc.fill_null(cast, pa.scalar(wide.type(missing).item(), cast.type))
        return _narrowed(cast.to_numpy(zero_copy_only=False), self.dtype, wrong)


def _narrowed(exact: Array, dtype: np.dtype[Any], wrong: Callable[[int, str], DataError]) -> Array:
    """Numbers as the dtype; float64 may be too large for a smaller one."""
    with np.errstate(over="ignore"):
        values = exact.astype(dtype, copy=False)
    if dtype.kind == "f" and len(bad := np.flatnonzero(np.isinf(values) & np.isfinite(exact))):
        raise wrong(int(bad[0]), str(exact[bad[0]]))
    return values


@dataclass
class Categories:
    """Makes integers of texts: first in the order in which they come, in the end in that of the texts.

    Attributes:
        feature: What is wanted.
        empty: Fields that stand for no value.
        codes: Text -> its number in the order of coming.
    """

    feature: Feature
    empty: tuple[str, ...]
    codes: dict[str, int] = field(default_factory=dict)
    tail: tuple[int, ...] = ()

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the numbers."""
        return np.dtype(self.feature.kind)

    def rows(self, block: RowBlock) -> Array:
        """Number of each row's category in the order of coming, -1 where there is none: int64, shape (rows,).

        Raises:
            DataError: a row has no category, or there are too many.
        """
        name = self.feature.names[0]
        column = _text(block, name, without(block, name, self.empty), "texts or integers")
        if column.null_count and self.feature.missing is None:
            raise _wrong(block, name, _first(column.is_null()), "a category", "no value; `missing` names one")
        encoded = column.dictionary_encode()
        words = [self.codes.setdefault(word, len(self.codes)) for word in encoded.dictionary.to_pylist()]
        if len(self.codes) > MAX_CATEGORIES:
            raise _wrong(block, name, 0, f"up to {MAX_CATEGORIES} categories", "more: is it an ID?")
        codes = pc.fill_null(encoded.indices, len(words)).to_numpy(zero_copy_only=False)
        found: Array = np.array([*words, -1], np.int64)[codes]
        return found

    @property
    def words(self) -> list[str]:
        """The categories; the position is the number in the graph."""
        return sorted(self.codes, key=lambda word: word.encode())

    def check(self, what: str) -> None:
        """Refuse more categories than the dtype has numbers.

        Raises:
            DataError: there are.
        """
        most = np.iinfo(self.dtype).max
        if len(self.codes) > most + 1:
            raise DataError(
                f"{what}: expected up to {most + 1} categories ({self.dtype}), got {len(self.codes)}"
            )

    def finished(self, values: Array) -> Array:
        """The numbers in the graph for numbers in the order of coming."""
        order = np.zeros(len(self.codes) + 1, np.int64)
        for number, word in enumerate(self.words):
            order[self.codes[word]] = number
        order[-1] = 0 if self.feature.missing is None else int(self.feature.missing)
        return order[values].astype(self.dtype)


@dataclass
class Split:
    """Makes the number of the set of each row of the words of a column.

    Attributes:
        masks: What is wanted.
        empty: Fields that stand for no value.
    """

    masks: Masks
    empty: tuple[str, ...]

    def rows(self, block: RowBlock) -> Array:
        """0 for train, 1 for val, 2 for test, -1 for none: int8, shape (rows,).

        Raises:
            DataError: a row has another word.
        """
        name = self.masks.column or ""
        column = _text(block, name, without(block, name, self.empty), "texts or integers")
        words = list(self.masks.words)
        found = pc.index_in(column, pa.array(words, pa.string()))
        unknown = pc.and_(found.is_null(), pc.invert(column.is_null()))
        if pc.any(unknown).as_py():
            at = _first(unknown)
            raise _wrong(block, name, at, f"one of {', '.join(words)}", repr(column[at].as_py())[:200])
        numbers: Array = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int8)
        return numbers


def split_by_ratio(rows: int, ratios: tuple[float, ...], seed: list[int], block_rows: int) -> Iterator[Array]:
    """Draw the set of each row, with exact totals.

    Args:
        rows: Of the table.
        ratios: Of train, val, test.
        seed: Of the generator.
        block_rows: Rows in a block at most; within each the ratios hold to a row.

    Yields:
        Blocks of what `Split.rows` gives.
    """
    rng = np.random.default_rng(seed)
    left = shares(rows, np.array([*ratios, max(0.0, 1.0 - sum(ratios))]))
    for start in range(0, rows, block_rows):
        now = shares(min(block_rows, rows - start), left)
        left = left - now
        yield rng.permutation(np.repeat(np.array([0, 1, 2, -1], np.int8), now))


def shares(rows: int, ratios: Array) -> Ints:
    """Whole numbers in proportion, by largest remainders; int64, same shape, their sum is `rows`."""
    exact = rows * ratios / ratios.sum()
    found: Ints = np.floor(exact + 1e-9).astype(np.int64)
    order = np.argsort(found - exact, kind="stable")
    found[order[: rows - int(found.sum())]] += 1
    return found


def masks_of(sets: Array) -> dict[str, Array]:
    """train_mask, val_mask and test_mask of numbers of sets: bool, same shape."""
    return {f"{split}_mask": sets == at for at, split in enumerate(SPLITS)}


def _text(block: RowBlock, name: str, column: Any, what: str) -> Any:
    """A column of single values as texts."""
    kinds = (pa.types.is_nested, pa.types.is_floating)
    if any(test(column.type) for test in kinds):
        raise _wrong(block, name, 0, what, f"a column of type {column.type}")
    return _casting(column, pa.string(), lambda at, got: _wrong(block, name, at, what, got))


def _casting(column: Any, wanted: Any, wrong: Callable[[int, str], DataError]) -> Any:
    """A column of another type; `wrong` makes the error of a position and what is there."""
    rounds = pa.types.is_floating(wanted) and not _is_text(column.type)
    try:
        return column.cast(wanted, safe=not rounds)
    except pa.ArrowInvalid:
        at = _first_uncastable(column, wanted)
        raise wrong(at, repr(column[at].as_py())[:200]) from None
    except pa.ArrowNotImplementedError:
        raise wrong(0, f"a column of type {column.type}") from None


def _first_uncastable(column: Any, wanted: Any) -> int:
    """By halves: the first value that does not become one of the type."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            column.slice(low, middle - low).cast(wanted)
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low


def _wrong(block: RowBlock, name: str, at: int, expected: str, got: str) -> DataError:
    return DataError(f"{block.path}: row {block.row + at}: column {name!r}: expected {expected}, got {got}")


def _first(flags: Any) -> int:
    return int(pc.index(flags, True).as_py())


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_number(kind: Any) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in tests)


def _is_list(kind: Any) -> bool:
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(test(kind) for test in tests)
