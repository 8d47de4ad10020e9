"""What ParMETIS's programs write, as parts of nodes: `p<part>-<stem>_nodes.txt` or `<stem>_part.<P>`."""

import re
from pathlib import Path

import numpy as np

from dglrun import arrays
from dglrun.errors import DataError
from dglrun.formats.assignment import MAX_PARTS, Parts
from dglrun.formats.chunked import csvfile, read
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.chunked.table import CSV, FileSpec
from dglrun.formats.id_map import IdMap
from dglrun.formats.parmetis import to_parmetis

NOWHERE = np.uint16(65535)
BLOCK_ROWS = 1 << 20


def from_pieces(
    graph: ChunkedGraph, folder: Path, stem: str, num_parts: int, weights: int | None = None
) -> dict[str, Parts]:
    """Parts by node type from `p000-<stem>_nodes.txt` and its fellows.

    Lines are `<new ID> <node type> <w1> ... <wT> <type-wise ID> [attributes]` (user guide 7.4, which has no
    attributes). A part without a file has no nodes.

    Args:
        graph: The graph that was partitioned.
        folder: Folder of the files.
        stem: Of their names.
        num_parts: Number of parts, at most `MAX_PARTS`; the caller checks that.
        weights: Columns of weights; None: one for each node type that has nodes, as `to_parmetis.to_text`
            writes.

    Returns:
        uint16, shape (nodes of the type,), for each node type.

    Raises:
        DataError: no such file, a part too many, a node missing or named twice; names file and line.
    """
    files = {
        part: path for path in sorted(folder.glob(f"p*-{stem}_nodes.txt")) if (part := _part(path, stem)) >= 0
    }
    if not files:
        raise DataError(f"{folder}: expected files p<part>-{stem}_nodes.txt, found none")
    if max(files) >= num_parts:
        raise DataError(f"{files[max(files)]}: expected parts 0 to {num_parts - 1}, got part {max(files)}")
    found = _Gathered(graph)
    for part, path in files.items():
        index = read.index_file(path, FileSpec(CSV, (path,)))
        row, columns = 0, (len(to_parmetis.weighted(graph)) if weights is None else weights) + 3
        kinds = csvfile.leading_integers(path, columns)
        for block in csvfile.blocks(index, FileSpec(CSV, (path,)), kinds, 0, index.rows, BLOCK_ROWS):
            _, kind, *_, own = block[:columns]
            found.add_typed(path, row, kind, own, part)
            row += len(own)
    return found.finish(str(folder))


def from_part_file(graph: ChunkedGraph, path: Path, num_parts: int) -> dict[str, Parts]:
    """Parts by node type from lines `<homogeneous ID> <part>` in any order.

    Returns:
        uint16, shape (nodes of the type,), for each node type.

    Raises:
        DataError: `num_parts` is not in 1..`MAX_PARTS`; or a bad line, a node missing or named twice, an ID
            or a part out of range (names file and line).
    """
    if not 0 < num_parts <= MAX_PARTS:
        raise DataError(f"expected 1 to {MAX_PARTS} parts, got {num_parts}")
    spec, found, row = FileSpec(CSV, (path,)), _Gathered(graph), 0
    index = read.index_file(path, spec)
    for nodes, parts in csvfile.blocks(index, spec, ("int64", "int64"), 0, index.rows, BLOCK_ROWS):
        found.add(path, row, nodes, parts, num_parts)
        row += len(nodes)
    return found.finish(str(path))


def _part(path: Path, stem: str) -> int:
    match = re.fullmatch(rf"p(\d+)-{re.escape(stem)}_nodes\.txt", path.name)
    return int(match[1]) if match else -1


class _Gathered:
    """Parts as they come, in homogeneous order.

    `add_typed` and `add` take int64 columns of a file's lines, shape (lines,), and raise DataError for an ID
    out of range or a node named twice. `finish` returns uint16, shape (nodes of the type,), for each node
    type, and raises DataError if a node has no part.
    """

    def __init__(self, graph: ChunkedGraph) -> None:
        self._graph, self._ids = graph, IdMap.of(graph.ntypes, graph.num_nodes)
        self._parts = np.full(self._ids.total, NOWHERE)

    def add_typed(self, path: Path, row: int, kind: arrays.Ints, own: arrays.Ints, part: int) -> None:
        types = len(self._graph.ntypes)
        wrong = (kind < 0) | (kind >= types)
        wrong |= (own < 0) | (own >= np.array(self._graph.num_nodes)[np.where(wrong, 0, kind)])
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            raise DataError(f"{path}: line {row + at + 1}: there is no node {own[at]} of type {kind[at]}")
        self._set(path, row, self._ids.offsets[kind] + own, np.uint16(part))

    def add(self, path: Path, row: int, nodes: arrays.Ints, parts: arrays.Ints, num_parts: int) -> None:
        limits = ((nodes, self._ids.total, "a node"), (parts, num_parts, "a part"))
        for values, limit, what in limits:
            wrong = np.flatnonzero((values < 0) | (values >= limit))
            if len(wrong):
                where = f"{path}: line {row + int(wrong[0]) + 1}"
                raise DataError(f"{where}: expected {what} from 0 to {limit - 1}, got {values[wrong[0]]}")
        self._set(path, row, nodes, parts.astype(np.uint16))

    def _set(self, path: Path, row: int, nodes: arrays.Ints, parts: Parts | np.uint16) -> None:
        _, first = np.unique(nodes, return_index=True)
        repeated = np.ones(len(nodes), bool)
        repeated[first] = False
        repeated |= self._parts[nodes] != NOWHERE
        if repeated.any():
            at = int(np.flatnonzero(repeated)[0])
            raise DataError(f"{path}: line {row + at + 1}: node {nodes[at]} (homogeneous ID) is named twice")
        self._parts[nodes] = parts

    def finish(self, where: str) -> dict[str, Parts]:
        missing = np.flatnonzero(self._parts == NOWHERE)
        if len(missing):
            kind, own = self._ids.to_typed(missing[0])
            ntype = self._graph.ntypes[int(kind)]
            raise DataError(f"{where}: {len(missing)} nodes have no part, first node {own} of {ntype!r}")
        ends = self._ids.offsets[1:-1]
        return dict(zip(self._graph.ntypes, np.split(self._parts, ends), strict=True))
