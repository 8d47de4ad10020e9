"""A chunked graph from ParMETIS's text: the way back of `text.to_text`, for who has only the text."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dglrun.chunked import csvfile, read, write
from dglrun.chunked.errors import DataError
from dglrun.chunked.metadata import CSV, ChunkedGraph, FileSpec
from dglrun.ids import IdMap

Ints = npt.NDArray[np.int64]


def from_text(
    folder: Path, stem: str, out: Path, ntypes: Sequence[str], etypes: Sequence[str], files: int
) -> ChunkedGraph:
    """Read `<stem>_stats/_nodes/_edges.txt` and `_removed_edges.txt` if present; write a chunked graph.

    Edges come back in the order of their type-wise IDs.

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
    nodes, edges, weights = _stats(folder / f"{stem}_stats.txt")
    counts = _node_counts(folder / f"{stem}_nodes.txt", nodes, weights, len(ntypes))
    table = _edges(folder / f"{stem}_edges.txt", edges)
    removed = folder / f"{stem}_removed_edges.txt"
    if removed.is_file():
        table = np.concatenate([table, _edges(removed, None)])
    ids = IdMap.of(ntypes, counts)
    _refuse_edges(folder / f"{stem}_edges.txt", table, sum(counts), etypes)
    found = {etype: _relation(folder, stem, table, at, etype, ids) for at, etype in enumerate(etypes)}
    return write.graph(out, stem, dict(zip(ntypes, counts, strict=True)), found, files=files)


def _refuse_edges(path: Path, table: Ints, nodes: int, etypes: Sequence[str]) -> None:
    for column, limit, what in ((0, nodes, "a node"), (1, nodes, "a node"), (3, len(etypes), "an edge type")):
        wrong = np.flatnonzero((table[:, column] < 0) | (table[:, column] >= limit))
        if len(wrong):
            got = f"got {table[wrong[0], column]}"
            raise DataError(f"{path}: line {wrong[0] + 1}: expected {what} from 0 to {limit - 1}, {got}")


def _stats(path: Path) -> tuple[int, int, int]:
    rows = _table(path, 3, None)
    if len(rows) != 1:
        raise DataError(f"{path}: expected one line '<nodes> <edges> <weights>', got {len(rows)}")
    return int(rows[0, 0]), int(rows[0, 1]), int(rows[0, 2])


def _table(path: Path, columns: int, rows: int | None) -> Ints:
    spec = FileSpec(CSV, (path,))
    index = read.index_file(path, spec)
    if rows is not None and index.rows != rows:
        raise DataError(f"{path}: the stats file says {rows} lines, got {index.rows}")
    kinds = csvfile.leading_integers(path, columns)  # attributes may follow
    blocks = csvfile.blocks(index, spec, kinds, 0, index.rows, 1 << 20)
    pieces: list[npt.NDArray[Any]] = [np.stack(block[:columns], axis=1) for block in blocks]
    return np.concatenate(pieces) if pieces else np.zeros((0, columns), np.int64)


def _node_counts(path: Path, nodes: int, weights: int, types: int) -> list[int]:
    table = _table(path, weights + 2, nodes)
    kinds = table[:, 0]
    if len(kinds) and not 0 <= int(kinds.min()) <= int(kinds.max()) < types:
        raise DataError(f"{path}: node type {kinds.max()}, but {types} names were given")
    counts = np.bincount(kinds, minlength=types)
    wanted = np.concatenate([np.arange(count) for count in counts])
    wrong = np.flatnonzero((np.diff(kinds, prepend=0) < 0) | (table[:, -1] != wanted))
    if len(wrong):
        raise DataError(f"{path}: line {wrong[0] + 1}: expected nodes by type and type-wise ID")
    return [int(count) for count in counts]


def _edges(path: Path, rows: int | None) -> Ints:
    return _table(path, 4, rows)


def _relation(folder: Path, stem: str, table: Ints, kind: int, etype: str, ids: IdMap) -> Ints:
    """End points of one edge type, type-wise, in the order of the edge IDs, which must be 0..n-1."""
    mine = table[table[:, 3] == kind]
    mine = mine[np.argsort(mine[:, 2], kind="stable")]
    if (mine[:, 2] != np.arange(len(mine))).any():
        raise DataError(f"{folder}/{stem}_edges.txt: IDs of edge type {kind} are not 0 to {len(mine) - 1}")
    src, _, dst = etype.split(":")
    columns = []
    for at, ntype in ((0, src), (1, dst)):
        types, own = ids.to_typed(mine[:, at])
        if (types != ids.type_id(ntype)).any():
            raise DataError(f"{folder}/{stem}_edges.txt: an edge of {etype} has an end not of {ntype}")
        columns.append(own)
    return np.stack(columns, axis=1)
