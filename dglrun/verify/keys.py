"""What a node or an edge is called on both sides of a comparison."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dglrun.arrays import Array, Ints, number_rows
from dglrun.errors import DataError
from dglrun.formats.assignment import load_meta, load_parts
from dglrun.formats.assignment_shares import assignment_file
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.dgl.folder import PartitionFolder


class Keys(Protocol):
    """How nodes and edges are named on both sides: by keys, int64, shape (rows,).

    Types are given by their positions in the partition's `ntypes` or `etypes`, a part's rows by `start` and
    `stop` (exclusive) among its rows of the type.
    """

    def node_of_source(self, ntype: int, ids: Ints) -> Ints:
        """Keys of nodes by their original type-wise IDs, int64, shape (rows,)."""

    def node_of_part(self, ids: Ints) -> Ints:
        """Keys of nodes by their shuffle-global IDs, int64, shape (rows,)."""

    def nodes(self, part: int, ntype: int, start: int, stop: int) -> Ints:
        """Keys of a part's rows of a node type, shape (stop - start,)."""

    def edges(self, part: int, etype: int, start: int, stop: int) -> Ints:
        """Keys of a part's rows of an edge type, shape (stop - start,)."""

    def count(self, kind: str, at: int) -> int:
        """Keys of a node or edge type are below this; `kind` is `node` or `edge`."""

    def edge_of_source(self, etype: int) -> "EdgeNamer":
        """Names the edges of a type in the order of the source."""


class EdgeNamer(Protocol):
    """Names the source's edges of one type, block after block."""

    def __call__(self, dst: Ints) -> Ints:
        """Keys of the next edges, whose destinations have these keys; both int64, shape (edges,)."""


class OriginalIds:
    """Keys are original type-wise IDs, int64, which the partition carries in orig_nids and orig_eids.

    Args:
        folder: The partition.
        graph: Its source.

    Raises:
        DataError: a part lacks one of the two files, or has another number of rows in it.
    """

    def __init__(self, folder: PartitionFolder, graph: ChunkedGraph) -> None:
        self._folder = folder
        self._graph = graph
        self._ids = {
            kind: [_ids(folder, part, kind) for part in range(folder.parts)] for kind in ("node", "edge")
        }
        self._table = np.concatenate(
            [
                self.nodes(part, at, 0, int(folder.nodes.counts[part, at]))
                for part in range(folder.parts)
                for at in range(len(folder.ntypes))
            ]
        )

    def node_of_source(self, ntype: int, ids: Ints) -> Ints:
        """See `Keys`."""
        return ids

    def node_of_part(self, ids: Ints) -> Ints:
        """See `Keys`."""
        found: Ints = self._table[ids]
        return found

    def nodes(self, part: int, ntype: int, start: int, stop: int) -> Ints:
        """See `Keys`."""
        return self.row_ids("node", part, self._folder.ntypes[ntype], start, stop)

    def edges(self, part: int, etype: int, start: int, stop: int) -> Ints:
        """See `Keys`."""
        return self.row_ids("edge", part, self._folder.etypes[etype], start, stop)

    def count(self, kind: str, at: int) -> int:
        """See `Keys`."""
        if kind == "node":
            return self._graph.node_count(self._folder.ntypes[at])
        return self._graph.edge_count(self._folder.etypes[at])

    def edge_of_source(self, etype: int) -> EdgeNamer:
        """See `Keys`."""
        seen = 0

        def name(dst: Ints) -> Ints:
            nonlocal seen
            seen += len(dst)
            return np.arange(seen - len(dst), seen)

        return name

    def row_ids(self, kind: str, part: int, name: str, start: int, stop: int) -> Ints:
        """Original IDs of some of a part's rows of a type.

        Args:
            kind: `node` or `edge`.
            part: The part.
            name: The type's name.
            start: First row.
            stop: Row after the last one.

        Returns:
            int64, shape (stop - start,).

        Raises:
            DataError: the file ends too early.
        """
        if start == stop:
            return np.empty(0, np.int64)
        found: Ints = self._ids[kind][part][name].rows(start, stop).astype(np.int64)
        return found


def _ids(folder: PartitionFolder, part: int, kind: str) -> Any:
    found = folder.original_ids(part, kind)
    if found is None:
        raise DataError(f"{folder.path}: part {part} has no orig_{kind[0]}ids.dgl")
    names = folder.ntypes if kind == "node" else folder.etypes
    ranges = folder.nodes if kind == "node" else folder.edges
    for at, name in enumerate(names):
        rows = int(ranges.counts[part, at])
        if rows and (name not in found or len(found[name]) != rows):
            raise DataError(
                f"{folder.path}: part {part}: orig_{kind[0]}ids.dgl: {name}: expected {rows} rows"
            )
    return found


class StableIds:
    """Keys are shuffled IDs, int64, which follow from the assignment when input order is kept.

    Args:
        folder: The partition.
        assigned: The assignment that it was made by.
    """

    def __init__(self, folder: PartitionFolder, assigned: "Assigned") -> None:
        self._folder = folder
        self._tables = [_number(folder, at, parts) for at, parts in enumerate(assigned.parts)]

    def node_of_source(self, ntype: int, ids: Ints) -> Ints:
        """See `Keys`."""
        return self._tables[ntype][ids]

    def node_of_part(self, ids: Ints) -> Ints:
        """See `Keys`."""
        return ids

    def nodes(self, part: int, ntype: int, start: int, stop: int) -> Ints:
        """See `Keys`."""
        return np.arange(start, stop) + int(self._folder.nodes.starts[part, ntype])

    def edges(self, part: int, etype: int, start: int, stop: int) -> Ints:
        """See `Keys`."""
        return np.arange(start, stop) + int(self._folder.edges.starts[part, etype])

    def count(self, kind: str, at: int) -> int:
        """See `Keys`."""
        return self._folder.nodes.total if kind == "node" else self._folder.edges.total

    def edge_of_source(self, etype: int) -> EdgeNamer:
        """See `Keys`."""
        following = self._folder.edges.starts[:, etype].copy()

        def name(dst: Ints) -> Ints:
            return number_rows(self._folder.nodes.parts_of(dst), following)

        return name


@dataclass(frozen=True)
class Assigned:
    """The assignment.

    Attributes:
        parts: For each node type of the partition, the part of each node: uint16, shape (nodes of the type,).
    """

    parts: list[Array]


def read_assignment(folder: Path, graph: ChunkedGraph, partition: PartitionFolder) -> Assigned:
    """Read the assignment in the order of the partition's node types.

    Raises:
        DataError: a file is missing or has another number of lines or parts.
    """
    meta = load_meta(folder)
    if meta.num_parts != partition.parts:
        raise DataError(f"{folder}: assigns {meta.num_parts} parts, {partition.path} has {partition.parts}")
    files = ((assignment_file(folder, name), graph.node_count(name)) for name in partition.ntypes)
    return Assigned([load_parts(path, nodes, meta.num_parts) for path, nodes in files])


def _number(folder: PartitionFolder, ntype: int, parts: Array) -> Ints:
    return number_rows(parts, folder.nodes.starts[:, ntype].copy())
