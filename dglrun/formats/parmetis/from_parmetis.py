"""A chunked graph from ParMETIS's text: the way back of `to_parmetis`, for who has only the text.

Files are read in blocks, and edges go to files on disk in the order of their IDs: memory does not grow
with the graph.
"""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from dglrun.arrays import Array, Ints, NDArray
from dglrun.errors import DataError
from dglrun.formats import output_folder
from dglrun.formats.chunked import csvfile, read, write
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.chunked.row_index import RowIndex
from dglrun.formats.chunked.stored_rows import StoredRows
from dglrun.formats.chunked.table import CSV, FileSpec
from dglrun.formats.id_map import IdMap
from dglrun.formats.parmetis import spill
from dglrun.formats.parmetis.spill import Spill

BLOCK_ROWS = 1 << 20
RANGE = 1 << 20
"""Edges that are put into the order of their IDs at a time."""


@dataclass(frozen=True)
class Lines:
    """Lines of integers in several files, counted through.

    Attributes:
        files: Each file and the columns that are read of it; attributes may follow.
    """

    files: tuple[tuple[RowIndex, int], ...]

    @staticmethod
    def of(paths: Sequence[Path], columns: int) -> "Lines":
        """Count the lines of files of so many columns."""
        return Lines(tuple((read.index_file(path, FileSpec(CSV, (path,))), columns) for path in paths))

    def __len__(self) -> int:
        return sum(index.rows for index, _ in self.files)

    def __add__(self, other: "Lines") -> "Lines":
        return Lines((*self.files, *other.files))

    def require_count(self, rows: int, stats: Path) -> None:
        """Refuse another number of lines than `stats` says."""
        if len(self) != rows:
            paths = [index.path for index, _ in self.files]
            several = f"{len(paths)} files from {paths[0]}" if paths else stats
            where = paths[0] if len(paths) == 1 else several
            raise DataError(f"{where}: {stats.name} says {rows} lines, got {len(self)}")

    def blocks(self) -> Iterator["LineBlock"]:
        """All lines in their order.

        Raises:
            DataError: a bad line.
        """
        first = 0
        for index, columns in self.files:
            spec, row = FileSpec(CSV, (index.path,)), first
            kinds = csvfile.leading_integers(cast(Path, index.path), columns)
            for block in csvfile.blocks(index, spec, kinds, 0, index.rows, BLOCK_ROWS):
                yield LineBlock(self, row, np.stack(block[:columns], axis=1))
                row += len(block[0])
            first += index.rows

    def place(self, row: int) -> str:
        """File and line of a row."""
        for index, _ in self.files:
            if row < index.rows:
                return f"{index.path}: line {row + 1}"
            row -= index.rows
        raise IndexError(row)


@dataclass(frozen=True)
class LineBlock:
    """Lines of one file that follow one another.

    Attributes:
        lines: Where they are from.
        first: Number of the first one.
        table: int64, shape (lines, columns).
    """

    lines: Lines
    first: int
    table: Ints

    def require(self, column: int, what: str, limit: int) -> None:
        """Refuse a column with a value that is not in 0..limit-1.

        Raises:
            DataError: there is one; names file and line.
        """
        values = self.table[:, column]
        wrong = np.flatnonzero((values < 0) | (values >= limit))
        self.refuse(wrong, f"{what} from 0 to {limit - 1}", column)

    def refuse(self, wrong: NDArray[np.intp], expected: str, column: int) -> None:
        """Raise for the first of the wrong rows.

        Args:
            wrong: Row numbers in the block, ascending, int64, shape (wrong rows,).
            expected: What should stand there.
            column: Where they are wrong.

        Raises:
            DataError: there is one; names file and line.
        """
        if len(wrong):
            row = int(wrong[0])
            place = self.lines.place(self.first + row)
            raise DataError(f"{place}: expected {expected}, got {self.table[row, column]}")


def from_text(
    folder: Path, stem: str, out: Path, ntypes: Sequence[str], etypes: Sequence[str], files: int
) -> ChunkedGraph:
    """Read the one-file form, or the two-list form where that is there; write a chunked graph.

    Edges come back in the order of their type-wise IDs. The two-list form has neither these IDs nor edge
    types: there an edge's type is told by those of its ends, and edges come in the order of the files, the
    removed ones last.

    Args:
        folder: Folder of the text files.
        stem: Beginning of their names; becomes the graph's name.
        out: Folder of the chunked graph.
        ntypes: Names of the node types, by type ID.
        etypes: Names `src:rel:dst` of the edge types, by type ID.
        files: Files for each edge type.

    Raises:
        DataError: counts that differ, IDs out of range or missing; names file and line.
    """
    stats = folder / f"{stem}_stats.txt"
    nodes, edges, weights = _stats(stats)
    is_listed = (folder / f"{stem}_nfiles.txt").is_file() and not (folder / f"{stem}_nodes.txt").exists()
    node_files = _node_list(folder, stem) if is_listed else [folder / f"{stem}_nodes.txt"]
    counts = _node_counts(_counted(node_files, weights + 2, nodes, stats), ntypes)
    edge_files = _edge_list(folder, stem) if is_listed else [folder / f"{stem}_edges.txt"]
    lines = _counted(edge_files, 2 if is_listed else 4, edges, stats)
    removed = folder / f"{stem}_removed_edges.txt"
    if removed.is_file():
        lines += Lines.of([removed], 4)
    types = Types(etypes, IdMap.of(ntypes, counts), is_listed)
    prefix = f"{output_folder.HIDDEN}text-"
    with output_folder.reserved(out):
        for left in out.glob(f"{prefix}*"):  # by a run that was killed: the lock was its own
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=prefix, dir=out) as work:
            found = Relations(Path(work), types, lines).read()
            return write.graph(out, stem, dict(zip(ntypes, counts, strict=True)), found, files=files)


def _stats(path: Path) -> tuple[int, int, int]:
    rows = [row for block in Lines.of([path], 3).blocks() for row in block.table]
    if len(rows) != 1:
        raise DataError(f"{path}: expected one line '<nodes> <edges> <weights>', got {len(rows)}")
    return int(rows[0][0]), int(rows[0][1]), int(rows[0][2])


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from None


def _edge_list(folder: Path, stem: str) -> list[Path]:
    """The edge files, one in each line before the first blank; relative ones lie beside the list."""
    lines = _lines(folder / f"{stem}_efiles.txt")
    return [folder / line.split()[0] for line in lines if line.strip()]


def _node_list(folder: Path, stem: str) -> list[Path]:
    """The node files, whose ranges must follow one another.

    Raises:
        DataError: a line is not `path start end`, or begins elsewhere than the one before ended.
    """
    path, ended, found = folder / f"{stem}_nfiles.txt", 0, []
    for number, line in enumerate(_lines(path), 1):
        words = line.split()
        if len(words) != 3 or not all(word.isdecimal() for word in words[1:]):
            raise DataError(f"{path}: line {number}: expected 'path start end', got {line!r}")
        if int(words[1]) != ended:
            raise DataError(f"{path}: line {number}: expected start {ended}, got {words[1]}")
        ended = int(words[2])
        found.append(folder / words[0])
    return found


def _counted(paths: Sequence[Path], columns: int, rows: int, stats: Path) -> Lines:
    found = Lines.of(paths, columns)
    found.require_count(rows, stats)
    return found


def _node_counts(lines: Lines, ntypes: Sequence[str]) -> list[int]:
    """Nodes of each type, which must stand by type and type-wise ID.

    Raises:
        DataError: another order, or a type that is none; names file and line.
    """
    counts, last = np.zeros(len(ntypes), np.int64), 0
    for block in lines.blocks():
        block.require(0, "a node type", len(ntypes))
        kinds, own = block.table[:, 0], block.table[:, -1]
        some = np.bincount(kinds, minlength=len(ntypes))
        wanted = (counts - np.cumsum(some) + some)[kinds] + np.arange(len(kinds))
        wrong = (np.diff(kinds, prepend=last) < 0) | (own != wanted)
        block.refuse(np.flatnonzero(wrong), "nodes by type and type-wise ID", -1)
        counts, last = counts + some, int(kinds[-1])
    return [int(count) for count in counts]


@dataclass(frozen=True)
class Types:
    """Node and edge types.

    Attributes:
        etypes: Names of the edge types, by type ID.
        ids: The nodes.
        is_listed: Whether the text has the two-list form, in which the ends tell the edge type.
    """

    etypes: Sequence[str]
    ids: IdMap
    is_listed: bool

    def ends(self, kind: int) -> tuple[int, int]:
        """Type IDs of source and destination."""
        src, _, dst = self.etypes[kind].split(":")
        return self.ids.type_id(src), self.ids.type_id(dst)

    def by_ends(self) -> Ints:
        """The edge type of two node types, -1 for none: int64, shape (types, types).

        Raises:
            DataError: several edge types join the same ones.
        """
        types = len(self.ids.types)
        kinds = np.full((types, types), -1, np.int64)
        for at, etype in enumerate(self.etypes):
            if kinds[self.ends(at)] >= 0:
                first = self.etypes[kinds[self.ends(at)]]
                raise DataError(
                    f"the two-list form has no edge types: {first} and {etype} join the same node types"
                )
            kinds[self.ends(at)] = at
        return kinds


class Relations:
    """The edges on their way from lines to the files of each edge type, in the order of their IDs."""

    def __init__(self, work: Path, types: Types, lines: Lines) -> None:
        self._work, self._types, self._lines = work, types, lines
        self._range = spill.room(len(lines), RANGE, len(types.etypes))
        self._buckets = max(1, -(-len(lines) // self._range))
        self.counts = [0] * len(types.etypes)

    def read(self) -> dict[str, Array]:
        """End points of each edge type, type-wise, as rows on disk of shape (edges, 2).

        Raises:
            DataError: an ID out of range, missing or twice, or an edge between the wrong types.
        """
        known = self._types.by_ends() if self._types.is_listed else None
        with Spill(self._work / "edges", 4) as edges:
            for block in self._lines.blocks():
                kinds = self._kinds(block, known)
                for kind in np.unique(kinds):
                    self._add(edges, block, int(kind), np.flatnonzero(kinds == kind))
            for kind in range(len(self.counts)):
                with self._path(kind).open("wb") as file:
                    for pairs in self._ordered(edges, kind):
                        file.write(np.ascontiguousarray(pairs).data)
        return {etype: self._stored(kind) for kind, etype in enumerate(self._types.etypes)}

    def _kinds(self, block: LineBlock, known: Ints | None) -> Ints:
        """The edge type of each line."""
        for column in (0, 1):
            block.require(column, "a node", self._types.ids.total)
        if block.table.shape[1] == 4:
            block.require(3, "an edge type", len(self.counts))
        if known is None:
            return block.table[:, 3]
        found = known[tuple(self._types.ids.to_typed(block.table[:, at])[0] for at in (0, 1))]
        block.refuse(np.flatnonzero(found < 0), "ends that one of the edge types joins", 1)
        return found

    def _add(self, edges: Spill, block: LineBlock, kind: int, at: NDArray[np.intp]) -> None:
        """Put lines of one edge type into buckets by edge ID; without IDs they are numbered as they come."""
        columns = []
        for column, wanted in enumerate(self._types.ends(kind)):
            types, own = self._types.ids.to_typed(block.table[at, column])
            name = f"an edge of {self._types.etypes[kind]} with its end in {self._types.ids.types[wanted]}"
            block.refuse(at[types != wanted], name, column)
            columns.append(own)
        count = self.counts[kind]
        ids = np.arange(count, count + len(at)) if self._types.is_listed else block.table[at, 2]
        self.counts[kind] += len(at)
        # An ID that cannot be is found with its neighbours, when the number of edges is known.
        buckets = np.clip(ids // self._range, 0, self._buckets - 1) + kind * self._buckets
        edges.add(buckets, np.column_stack([ids, at + block.first, *columns]))

    def _ordered(self, edges: Spill, kind: int) -> Iterator[Ints]:
        """End points by edge ID; IDs must be 0..n-1, each once."""
        for number in range(self._buckets):
            first = number * self._range
            expected = min(max(self.counts[kind] - first, 0), self._range)
            # One more than there may be is enough to find one that is wrong.
            rows = next(
                edges.blocks(kind * self._buckets + number, self._range + 1), np.empty((0, 4), np.int64)
            )
            edges.drop(kind * self._buckets + number)
            rows = rows[np.argsort(rows[:, 0], kind="stable")]
            numbers = np.arange(len(rows))
            wrong = rows[(rows[:, 0] != first + numbers) | (numbers >= expected)]
            if len(wrong):
                edge, row = wrong[np.argmin(wrong[:, 1]), :2]
                ids = f"edge IDs of {self._types.etypes[kind]} from 0 to {self.counts[kind] - 1}, each once"
                raise DataError(f"{self._lines.place(int(row))}: expected {ids}, got {edge}")
            yield rows[:, 2:]

    def _path(self, kind: int) -> Path:
        return self._work / f"{kind}.pairs"

    def _stored(self, kind: int) -> Array:
        """What the writer takes for an array: it slices it, and makes arrays of the slices."""
        rows: Any = StoredRows(
            partial(_pairs, self._path(kind)), 0, self.counts[kind], (2,), np.dtype(np.int64)
        )
        return cast(Array, rows)


def _pairs(path: Path, start: int, stop: int) -> Ints:
    return np.fromfile(path, np.int64, (stop - start) * 2, offset=start * 16).reshape(-1, 2)
