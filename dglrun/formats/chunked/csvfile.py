"""csv without header and quotes: counting by line ends, random access by row, blocks by pyarrow.

A line is a row: a blank line is a bad row, not skipped, as the row number is the edge or node ID.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from dglrun.arrays import Array, Ints, NDArray
from dglrun.errors import DataError
from dglrun.formats.chunked import input_file, kept_bytes
from dglrun.formats.chunked.input_file import File
from dglrun.formats.chunked.row_index import RowIndex
from dglrun.formats.chunked.table import FileSpec
from dglrun.formats.store import Place

STEP = 1 << 18
"""Bytes between two entries of the index: one seek reads at most this much too much."""
SCAN = 1 << 18
"""Bytes looked at in one numpy call while counting; they stay in the processor's cache."""
NEWLINE = 10


def count(path: File) -> RowIndex:
    """Count the rows by line ends, keeping the count before every STEP bytes."""
    return joined(path, [count_steps(path, 0, steps(path))])


class Counted(NamedTuple):
    """What some steps of a file hold.

    Attributes:
        lines: Line ends in each step, int64, shape (steps,).
        last: Their last byte.
    """

    lines: Ints
    last: int


def steps(path: File) -> int:
    """How many steps a file has; the last one may be shorter."""
    return -(-input_file.stat(path).size // STEP)


def count_steps(path: File, first: int, stop: int) -> Counted:
    """Count the line ends of the steps from `first` to `stop` - 1; of an object their bytes are kept here."""
    lines, last = [], NEWLINE
    for data in _blocks_of_steps(path, first, stop):
        values = np.frombuffer(data, np.uint8)
        lines += [_line_ends(values[at : at + STEP]) for at in range(0, len(values), STEP)]
        last = data[-1]
    return Counted(np.array(lines, np.int64), last)


def _blocks_of_steps(path: File, first: int, stop: int) -> Iterator[bytes]:
    start, end = first * STEP, min(stop * STEP, input_file.stat(path).size)
    with ExitStack() as stack:
        file, keeping = stack.enter_context(input_file.open_binary(path)), None
        if isinstance(path, Place) and start < end:
            keeping = stack.enter_context(kept_bytes.keeping(path, start, end))
        file.seek(start)
        block = STEP if keeping is None else input_file.WHOLE // STEP * STEP  # of an object each is a request
        while start < end and (data := file.read(min(block, end - start))):
            if keeping:
                keeping.add(data)
            start += len(data)
            yield data


def joined(path: File, parts: Sequence[Counted]) -> RowIndex:
    """The index of a file, of all its steps in order."""
    lines = np.concatenate([np.zeros(0, np.int64), *(part.lines for part in parts)])
    last = next((part.last for part in reversed(parts) if len(part.lines)), NEWLINE)
    return RowIndex(path, int(lines.sum()) + (last != NEWLINE), np.cumsum(lines) - lines)


def _line_ends(data: NDArray[np.uint8]) -> int:
    parts = (data[at : at + SCAN] for at in range(0, len(data), SCAN))
    return sum(int(np.count_nonzero(part == NEWLINE)) for part in parts)


def offset(file: BinaryIO, index: RowIndex, row: int) -> int:
    """Byte at which `row` starts; the end of the file for the row after the last one."""
    if row == 0:
        return 0
    if row >= index.rows:
        return file.seek(0, 2)
    step = int(np.searchsorted(index.before, row, side="left")) - 1
    file.seek(step * STEP)
    ends = np.flatnonzero(np.frombuffer(file.read(STEP), np.uint8) == NEWLINE)
    return step * STEP + int(ends[row - int(index.before[step]) - 1]) + 1


def blocks(
    index: RowIndex, spec: FileSpec, types: tuple[str, ...], start: int, stop: int, block_rows: int
) -> Iterator[list[Array]]:
    """Rows start..stop of a file as columns, at most `block_rows` at a time.

    Args:
        index: The file with its index.
        spec: The table, for the delimiter.
        types: Arrow type name of each column.
        start: First row.
        stop: Row after the last one.
        block_rows: Rows in a block at most.

    Yields:
        One array for each column: the dtype of the type's name (`string`: object), shape (rows,).

    Raises:
        DataError: a line has another number of columns or a value of another type; names the line.
    """
    row = start
    for text in _texts(index, start, stop, block_rows):
        columns = parse(text, index.path, row, spec.delimiter, types)
        rows = len(columns[0])
        for at in range(0, rows, block_rows):
            yield [column[at : at + block_rows] for column in columns]
        row += rows
    if row != stop:
        raise DataError(f"{index.path}: rows {start} to {stop} by line ends, but parsing ended at row {row}")


def _texts(index: RowIndex, start: int, stop: int, block_rows: int) -> Iterator[bytes]:
    """The bytes of the rows in pieces of whole lines, about `block_rows` lines each."""
    with input_file.open_binary(index.path) as file:
        here, end = offset(file, index, start), offset(file, index, stop)
        if stop <= start:
            return
        size = max(4096, (end - here) * block_rows // (stop - start))
        file.seek(here)
        rest = b""
        while here < end:
            piece = rest + file.read(min(size, end - here))
            here += len(piece) - len(rest)
            cut = len(piece) if here >= end else piece.rfind(b"\n") + 1
            if cut:
                yield piece[:cut]
            rest = piece[cut:]


def parse(text: bytes, path: File, row: int, delimiter: str, types: tuple[str, ...]) -> list[Array]:
    """Parse whole lines into one array for each column.

    Args:
        text: Lines.
        path: Their file, for the message.
        row: Number of the first line's row.
        delimiter: One character.
        types: Arrow type name of each column: that of the same numpy dtype, or `string`.

    Returns:
        The columns: the dtype of the type's name (`string`: object), shape (lines,).

    Raises:
        DataError: a line is not what `types` says.
    """
    names = [str(at) for at in range(len(types))]
    try:
        table = pacsv.read_csv(
            pa.BufferReader(text),
            pacsv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=names),
            pacsv.ParseOptions(delimiter=delimiter, quote_char=False, ignore_empty_lines=False),
            pacsv.ConvertOptions(
                check_utf8=False, column_types=dict(zip(names, types, strict=True)), null_values=[]
            ),
        )
    except pa.ArrowInvalid:
        raise _bad_line(text, path, row, delimiter, types) from None
    return [column.to_numpy() for column in table.columns]


def _bad_line(text: bytes, path: File, row: int, delimiter: str, types: tuple[str, ...]) -> DataError:
    wanted = f"{len(types)} {'integers' if types[0] == 'int64' else 'numbers'}"
    if len(types) > 1:
        wanted += f" with {delimiter!r} between them"
    for at, line in enumerate(text.splitlines()):
        if not _fits(line, delimiter.encode(), types) or b"+" in line or b"_" in line:
            shown = line[:80].decode(errors="replace")
            return DataError(f"{path}: line {row + at + 1}: expected {wanted}, got {shown!r}")
    return DataError(f"{path}: lines from {row + 1} on: expected {wanted}")


def _fits(line: bytes, delimiter: bytes, types: tuple[str, ...]) -> bool:
    fields = line.split(delimiter)
    return len(fields) == len(types) and all(map(_is_number, fields, types))


def _is_number(text: bytes, kind: str) -> bool:
    if kind == "string":
        return True
    try:
        if kind.startswith(("int", "uint")):
            limits = np.iinfo(kind)
            return limits.min <= int(text) <= limits.max
        float(text)
    except ValueError:
        return False
    return True


def leading_integers(path: File, columns: int, delimiter: str = " ") -> tuple[str, ...]:
    """Types of rows that begin with integers; what follows them in the first line is left as text."""
    with input_file.open_binary(path, input_file.HEAD) as file:
        fields = file.readline().rstrip(b"\r\n").split(delimiter.encode())
    return ("int64",) * columns + ("string",) * (len(fields) - columns)


def first_types(path: File, spec: FileSpec) -> tuple[str, ...] | None:
    """Arrow types of the columns as the first line shows them; None: the file has no line.

    With `spec.dtype` every column has that type; else all are int64 if every value of the first line is
    an integer, and float32 if not (features of mixed columns become one array).
    """
    with input_file.open_binary(path, input_file.HEAD) as file:
        line = file.readline()
    if not line:
        return None
    fields = line.rstrip(b"\r\n").split(spec.delimiter.encode())
    if spec.dtype is not None:
        return (arrow_name(spec.dtype),) * len(fields)
    return ("int64" if all(_is_number(field, "int64") for field in fields) else "float32",) * len(fields)


def arrow_name(dtype: str) -> str:
    """The Arrow type by which values of a numpy dtype are parsed (Arrow parses no float16 or 0/1 bool)."""
    return {"float16": "float32", "bool": "int8"}.get(dtype, dtype)
