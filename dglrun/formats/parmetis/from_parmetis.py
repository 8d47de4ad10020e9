"""A chunked graph from ParMETIS's text: the way back of `to_parmetis`, for who has only the text."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dglrun.arrays import Array, Ints
from dglrun.errors import DataError
from dglrun.formats.chunked import csvfile, read, write
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.chunked.table import CSV, FileSpec
from dglrun.formats.id_map import IdMap


@dataclass(frozen=True)
class Rows:
    """Rows of integers from several files, which know their lines.

    Attributes:
        table: int64, shape (rows, columns).
        files: Each file and the number of its lines, in the order of the rows.
    """

    table: Ints
    files: tuple[tuple[Path, int], ...]

    def line(self, row: int) -> str:
        """File and line of a row."""
        for path, lines in self.files:
            if row < lines:
                return f"{path}: line {row + 1}"
            row -= lines
        raise IndexError(row)

    def require(self, column: int, what: str, limit: int) -> None:
        """Refuse a column with a value that is not in 0..limit-1.

        Raises:
            DataError: there is one; names file and line.
        """
        values = self.table[:, column]
        wrong = np.flatnonzero((values < 0) | (values >= limit))
        self.refuse(wrong, f"{what} from 0 to {limit - 1}", column)

    def refuse(self, wrong: npt.NDArray[np.intp], expected: str, column: int) -> None:
        """Raise for the first of the wrong rows.

        Args:
            wrong: Row numbers, int64, shape (wrong rows,), in any order.
            expected: What should stand there.
            column: Where they are wrong.

        Raises:
            DataError: there is one; names file and line.
        """
        if len(wrong):
            row = int(wrong.min())
            raise DataError(f"{self.line(row)}: expected {expected}, got {self.table[row, column]}")


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
    counts = _node_counts(_read(node_files, weights + 2, nodes, stats), ntypes)
    ids = IdMap.of(ntypes, counts)
    if is_listed:
        listed = _read(_edge_list(folder, stem), 2, edges, stats)
        table = _typed(listed, etypes, ids)
    else:
        table = _read([folder / f"{stem}_edges.txt"], 4, edges, stats)
    removed = folder / f"{stem}_removed_edges.txt"
    if removed.is_file():
        table = _joined(table, _read([removed], 4, None, stats))
    _refuse_edges(table, sum(counts), etypes)
    found = {etype: _relation(table, at, etype, ids, is_listed) for at, etype in enumerate(etypes)}
    return write.graph(out, stem, dict(zip(ntypes, counts, strict=True)), found, files=files)


def _stats(path: Path) -> tuple[int, int, int]:
    rows = _read([path], 3, None, path).table
    if len(rows) != 1:
        raise DataError(f"{path}: expected one line '<nodes> <edges> <weights>', got {len(rows)}")
    return int(rows[0, 0]), int(rows[0, 1]), int(rows[0, 2])


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


def _read(paths: Sequence[Path], columns: int, rows: int | None, stats: Path) -> Rows:
    """Read the first columns of files one after the other; attributes may follow.

    Raises:
        DataError: a bad line, or another number of rows than `stats` says.
    """
    tables: list[Array] = [np.zeros((0, columns), np.int64)]
    lines = []
    for path in paths:
        spec = FileSpec(CSV, (path,))
        index = read.index_file(path, spec)
        lines.append((path, index.rows))
        kinds = csvfile.leading_integers(path, columns)
        blocks = csvfile.blocks(index, spec, kinds, 0, index.rows, 1 << 20)
        tables += [np.stack(block[:columns], axis=1) for block in blocks]
    total = sum(count for _, count in lines)
    if rows is not None and total != rows:
        where = paths[0] if len(paths) == 1 else f"{len(paths)} files from {paths[0]}" if paths else stats
        raise DataError(f"{where}: {stats.name} says {rows} lines, got {total}")
    return Rows(np.concatenate(tables), tuple(lines))


def _joined(one: Rows, other: Rows) -> Rows:
    return Rows(np.concatenate([one.table, other.table]), one.files + other.files)


def _node_counts(rows: Rows, ntypes: Sequence[str]) -> list[int]:
    kinds = rows.table[:, 0]
    rows.require(0, "a node type", len(ntypes))
    counts = np.bincount(kinds, minlength=len(ntypes))
    wanted = np.concatenate([np.arange(count) for count in counts])
    wrong = (np.diff(kinds, prepend=0) < 0) | (rows.table[:, -1] != wanted)
    rows.refuse(np.flatnonzero(wrong), "nodes by type and type-wise ID", -1)
    return [int(count) for count in counts]


def _typed(rows: Rows, etypes: Sequence[str], ids: IdMap) -> Rows:
    """Give edges of two columns the ID -1, for unknown, and the type that their ends tell.

    Raises:
        DataError: two edge types join the same node types, or none joins those of an edge.
    """
    types = len(ids.offsets) - 1
    kinds = np.full((types, types), -1, np.int64)
    for at, etype in enumerate(etypes):
        src, _, dst = etype.split(":")
        ends = (ids.type_id(src), ids.type_id(dst))
        if kinds[ends] >= 0:
            first = etypes[kinds[ends]]
            raise DataError(
                f"the two-list form has no edge types: {first} and {etype} join the same node types"
            )
        kinds[ends] = at
    for column in (0, 1):
        rows.require(column, "a node", ids.total)
    found = kinds[ids.to_typed(rows.table[:, 0])[0], ids.to_typed(rows.table[:, 1])[0]]
    rows.refuse(np.flatnonzero(found < 0), "ends that one of the edge types joins", 1)
    return Rows(np.column_stack([rows.table, np.full(len(found), -1), found]), rows.files)


def _refuse_edges(rows: Rows, nodes: int, etypes: Sequence[str]) -> None:
    for column, limit, what in ((0, nodes, "a node"), (1, nodes, "a node"), (3, len(etypes), "an edge type")):
        rows.require(column, what, limit)


def _relation(rows: Rows, kind: int, etype: str, ids: IdMap, is_listed: bool) -> Ints:
    """End points of one edge type, type-wise, in the order of the edge IDs, which must be 0..n-1."""
    at = np.flatnonzero(rows.table[:, 3] == kind)
    if not is_listed:
        at = at[np.argsort(rows.table[at, 2], kind="stable")]
        wrong = at[rows.table[at, 2] != np.arange(len(at))]
        rows.refuse(wrong, f"edge IDs of {etype} from 0 to {len(at) - 1}, each once", 2)
    src, _, dst = etype.split(":")
    columns = []
    for column, ntype in ((0, src), (1, dst)):
        types, own = ids.to_typed(rows.table[at, column])
        rows.refuse(at[types != ids.type_id(ntype)], f"an edge of {etype} with its end in {ntype}", column)
        columns.append(own)
    return np.stack(columns, axis=1)
