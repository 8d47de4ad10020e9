"""The assignment's `<ntype>.txt`, read in shares: each rank parses its stretch of the file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from dglrun.arrays import Array, Ints, share
from dglrun.errors import DataError
from dglrun.formats.dgl.partition_book import part_dtype

_PIECE = 16 << 20


def assignment_file(folder: Path, ntype: str) -> Path:
    """The file whose line i is the part of node i."""
    return folder / f"{ntype}.txt"


def read_share(path: Path, num_parts: int, rank: int, size: int) -> Array:
    """Parts of the nodes whose lines begin in this rank's stretch of the file.

    Args:
        path: `<ntype>.txt`.
        num_parts: Number of parts.
        rank: Whose share.
        size: Among how many ranks.

    Returns:
        uint8 up to 256 parts, else uint16, shape (lines,); the shares of all ranks follow one another.

    Raises:
        DataError: the file is missing, or a line is no part number (names file and line).
    """
    try:
        pieces = [_parse(path, text, at, num_parts) for at, text in _stretch(path, rank, size)]
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    return np.concatenate(pieces) if pieces else np.empty(0, part_dtype(num_parts))


def _stretch(path: Path, rank: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Whole lines that begin in the rank's bytes, in pieces with the offset of each."""
    begin, end = share(path.stat().st_size, rank, size)
    with path.open("rb") as file:
        begin = _next_line(file, begin)
        end = max(begin, _next_line(file, end))
        file.seek(begin)
        while begin < end:
            text = file.read(min(_PIECE, end - begin))
            if begin + len(text) < end:
                text = text[: text.rfind(b"\n") + 1] or text + file.readline()
            yield begin, text
            begin += len(text)
            file.seek(begin)


def _next_line(file: Any, offset: int) -> int:
    """Offset of the first line that begins at `offset` or after it."""
    if offset == 0:
        return 0
    file.seek(offset - 1)
    file.readline()
    return int(file.tell())


def _parse(path: Path, text: bytes, offset: int, num_parts: int) -> Array:
    values = _digits(text)
    if values is None:
        values = _numbers(path, text, offset, num_parts)
    if len(values) and int(values.max()) >= num_parts:
        raise _bad_line(path, text, offset, num_parts)
    return values.astype(part_dtype(num_parts), copy=False)


def _digits(text: bytes) -> Array | None:
    """Parse the common case, one digit on each line, as bytes; None for any other text."""
    data = np.frombuffer(text, np.uint8)
    if len(data) % 2 or (data[1::2] != ord("\n")).any():
        return None
    values = data[::2] - np.uint8(ord("0"))
    return values if len(values) and values.max() <= 9 else None


def _numbers(path: Path, text: bytes, offset: int, num_parts: int) -> Array:
    try:
        table = pa.csv.read_csv(
            pa.BufferReader(text),
            pa.csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=["part"]),
            pa.csv.ParseOptions(delimiter="\t", quote_char=False, ignore_empty_lines=False),
            pa.csv.ConvertOptions(column_types={"part": pa.uint16()}, null_values=[]),
        )
    except pa.ArrowInvalid:
        raise _bad_line(path, text, offset, num_parts) from None
    return table.column(0).to_numpy()  # type: ignore[no-any-return]


def _bad_line(path: Path, text: bytes, offset: int, num_parts: int) -> DataError:
    with path.open("rb") as file:
        before = sum(piece.count(b"\n") for piece in _pieces(file, offset))
    for at, line in enumerate(text.splitlines()):
        if not line.strip().isdigit() or int(line) >= num_parts:
            shown = line[:80].decode(errors="replace")
            return DataError(
                f"{path}: line {before + at + 1}: expected a part from 0 to {num_parts - 1}, got {shown!r}"
            )
    return DataError(f"{path}: lines from {before + 1} on: expected part numbers")


def _pieces(file: Any, length: int) -> Iterator[bytes]:
    while length > 0 and (piece := file.read(min(_PIECE, length))):
        length -= len(piece)
        yield piece


def check_lines(path: Path, lines: int, nodes: int) -> None:
    """Compare the lines of all shares with the nodes of the type.

    Raises:
        DataError: they differ.
    """
    if lines != nodes:
        raise DataError(f"{path}: expected {nodes} lines, one for each {path.stem} node, got {lines}")


def part_counts(parts: Array, num_parts: int) -> Ints:
    """How many nodes each part gets: int64, shape (parts,).

    Args:
        parts: Part of each node, shape (nodes,); any integers from 0 to `num_parts` - 1.
        num_parts: Number of parts.
    """
    return np.bincount(parts, minlength=num_parts).astype(np.int64)
