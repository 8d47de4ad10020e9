"""What a node or an edge is called on both sides of a comparison."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from dglrun.arrays import Array, Ints, number_rows
from dglrun.errors import DataError
from dglrun.formats.assignment import load_meta
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.dgl.arrays import StoredArray
from dglrun.formats.dgl.folder import PartitionFolder
from dglrun.formats.dgl.partition_book import id_dtype
from dglrun.mpi.collectives import Ranks, in_rounds, run_on_all_ranks
from dglrun.mpi.exchange import ask_owners
from dglrun.mpi.shared_assignment import read_stretches
from dglrun.mpi.shuffle import Owners

_NODES = 1 << 18
"""Nodes whose original IDs are read, or asked for, at a time: larger blocks cost more in fresh memory, which
the kernel has to clear, than they save in rounds."""


class GraphKeys(Protocol):
    """How nodes and edges are named on both sides: by keys, integers, shape (rows,).

    Types are given by their positions in the partition's `ntypes` or `etypes`, a part's rows by `start` and
    `stop` (exclusive) among its rows of the type.

    Attributes:
        are_rows: Whether the key of a node or an edge is its row number in the source.
    """

    are_rows: bool

    def node_of_source(self, ntype: int, ids: Ints) -> Ints:
        """Keys of nodes by their original type-wise IDs, int64, shape (rows,)."""

    def node_of_part(self, part: int, numbers: Ints) -> Array:
        """Keys of a part's nodes by their part-local numbers, shape (rows,)."""

    def nodes(self, part: int, ntype: int, start: int, stop: int) -> Ints:
        """Keys of a part's rows of a node type, shape (stop - start,)."""

    def edges(self, part: int, etype: int, start: int, stop: int) -> Ints:
        """Keys of a part's rows of an edge type, shape (stop - start,)."""

    def count(self, kind: str, at: int) -> int:
        """Keys of a node or edge type are below this; `kind` is `node` or `edge`."""

    def edge_of_source(self, etype: int, first: int) -> "EdgeNamer":
        """Names the edges of a type in the order of the source, from row `first` on."""


class EdgeNamer(Protocol):
    """Names the source's edges of one type, block after block."""

    def __call__(self, dst: Ints) -> Ints:
        """Keys of the next edges, whose destinations have these keys; both int64, shape (edges,)."""


# --- original IDs


class OriginalIds:
    """Keys are original type-wise IDs, which the partition carries in orig_nids and orig_eids; collective.

    Of halo nodes only the rank knows it that has the part that owns them: it is asked once for each.

    Args:
        folder: The partition; its parts are sound (`PartChecks`).
        graph: Its source.
        ranks: The processes; each needs the files of its own parts only.

    Attributes:
        are_rows: True.

    Raises:
        AgreedError: a part lacks one of the two files, or has another number of rows in it.
    """

    are_rows = True

    def __init__(self, folder: PartitionFolder, graph: ChunkedGraph, ranks: Ranks) -> None:
        self._folder = folder
        self._graph = graph
        self._parts = Owners(folder.parts, ranks.size).owned(ranks.rank)
        self._ids = run_on_all_ranks(
            ranks,
            lambda: {
                kind: {part: _ids(folder, part, kind) for part in self._parts} for kind in ("node", "edge")
            },
        )
        sizes = run_on_all_ranks(ranks, lambda: [folder.graph(part).num_nodes for part in self._parts])
        dtype = id_dtype(max(map(graph.node_count, folder.ntypes), default=0))
        # Not zeros: numpy asks the kernel for huge pages in `empty` only, and lookups are at random places.
        self._table = np.empty(sum(sizes), dtype)
        self._shifts = np.zeros(folder.parts, np.int64)
        self._nodes: dict[int, Array] = {}
        for part, size, stop in zip(self._parts, sizes, np.cumsum(sizes).tolist(), strict=True):
            self._nodes[part] = self._table[stop - size : stop]
            self._shifts[part] = stop - size - folder.nodes.bounds(part)[0]
        run_on_all_ranks(ranks, self._read_inner)
        self._ask_for_halos(ranks)

    def node_of_source(self, ntype: int, ids: Ints) -> Ints:
        """See `GraphKeys`."""
        return ids

    def node_of_part(self, part: int, numbers: Ints) -> Array:
        """See `GraphKeys`: int32 where all IDs fit, else int64."""
        found: Array = self._nodes[part].take(numbers, mode="clip")  # they are in the part: PartChecks
        return found

    def nodes(self, part: int, ntype: int, start: int, stop: int) -> Ints:
        """See `GraphKeys`: from the file, whose IDs may be wider, where they are wrong, than the table's."""
        return self._rows("node", part, self._folder.ntypes[ntype], start, stop)

    def edges(self, part: int, etype: int, start: int, stop: int) -> Ints:
        """See `GraphKeys`."""
        return self._rows("edge", part, self._folder.etypes[etype], start, stop)

    def count(self, kind: str, at: int) -> int:
        """See `GraphKeys`."""
        if kind == "node":
            return self._graph.node_count(self._folder.ntypes[at])
        return self._graph.edge_count(self._folder.etypes[at])

    def edge_of_source(self, etype: int, first: int) -> EdgeNamer:
        """See `GraphKeys`."""
        seen = first

        def name(dst: Ints) -> Ints:
            nonlocal seen
            seen += len(dst)
            return np.arange(seen - len(dst), seen)

        return name

    def _rows(self, kind: str, part: int, name: str, start: int, stop: int) -> Ints:
        """Original IDs of some of a part's rows of a type, int64."""
        if start == stop:
            return np.empty(0, np.int64)
        found: Ints = self._ids[kind][part][name].rows(start, stop).astype(np.int64, copy=False)
        return found

    def _read_inner(self) -> None:
        """Fill in the original IDs of the parts' own nodes."""
        for part, nodes in self._nodes.items():
            start = 0
            for at, name in enumerate(self._folder.ntypes):
                stop = start + int(self._folder.nodes.counts[part, at])
                if start < stop:
                    for first, rows in self._ids["node"][part][name].blocks(_NODES):
                        nodes[start + first : start + first + len(rows)] = rows
                start = stop

    def _ask_for_halos(self, ranks: Ranks) -> None:
        """Fill in the original IDs of halo nodes, in rounds of bounded size."""
        nothing = np.empty(0, self._folder.nodes.dtype)
        for ids, places in in_rounds(ranks, _joined(self._halos(), _NODES), (nothing, [])):
            owners = self._folder.nodes.parts_of(ids)
            if self._folder.parts > ranks.size:
                owners %= owners.dtype.type(ranks.size)
            found, at = ask_owners(ranks, owners, ids, self._answer), 0
            for place in places:
                place[:] = found[at : at + len(place)]
                at += len(place)

    def _halos(self) -> Iterator[tuple[Array, Array]]:
        """Shuffle-global IDs of halo nodes, and where their original IDs belong; shape (nodes,) each."""
        for part, nodes in self._nodes.items():
            stored = self._folder.graph(part).node_fields["_ID"]
            for start in range(int(self._folder.nodes.counts[part].sum()), len(nodes), _NODES):
                stop = min(start + _NODES, len(nodes))
                yield stored.rows(start, stop).astype(self._folder.nodes.dtype, copy=False), nodes[start:stop]

    def _answer(self, asked: Array) -> Array:
        """Original IDs of nodes of this rank's parts by their shuffle-global IDs: dtype of the table."""
        one = len(self._parts) == 1
        shifts = self._shifts[self._parts[0] if one else self._folder.nodes.parts_of(asked)]
        found: Array = self._table.take(asked + shifts)
        return found


def _joined(halos: Iterator[tuple[Array, Array]], rows: int) -> Iterator[tuple[Array, list[Array]]]:
    """Several parts in a round, at least `rows` IDs: with thousands of parts most have few halo nodes."""
    ids: list[Array] = []
    places: list[Array] = []
    held = 0
    for some, place in halos:
        ids.append(some)
        places.append(place)
        held += len(some)
        if held >= rows:
            yield np.concatenate(ids), places
            ids, places, held = [], [], 0
    if ids:
        yield np.concatenate(ids), places


def _ids(folder: PartitionFolder, part: int, kind: str) -> dict[str, StoredArray]:
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


# --- the assignment, and the IDs that follow from it


@dataclass(frozen=True)
class Assigned:
    """The assignment, of each node type a contiguous stretch of the nodes.

    Attributes:
        starts: By node type of the partition: original ID of the first node of the stretch.
        parts: The part of each of its nodes: uint8 or uint16, shape (nodes of the stretch,).
    """

    starts: list[int]
    parts: list[Array]

    def blocks(self, ntype: int, rows: int) -> Iterator[tuple[Ints, Array]]:
        """Original IDs and parts of the stretch's nodes, at most `rows` at a time."""
        start, parts = self.starts[ntype], self.parts[ntype]
        for at in range(0, len(parts), rows):
            block = parts[at : at + rows]
            yield np.arange(start + at, start + at + len(block)), block


def read_assignment(folder: Path, graph: ChunkedGraph, partition: PartitionFolder, ranks: Ranks) -> Assigned:
    """Read this rank's share of the assignment; collective.

    Raises:
        AgreedError: a file is missing or has another number of lines or parts.
    """
    run_on_all_ranks(ranks, lambda: _check_parts(folder, partition))
    counts = [graph.node_count(name) for name in partition.ntypes]
    found = read_stretches(ranks, folder, partition.ntypes, counts, partition.parts)
    return Assigned([each.start for each in found], [each.parts for each in found])


def _check_parts(folder: Path, partition: PartitionFolder) -> None:
    meta = load_meta(folder)
    if meta.num_parts != partition.parts:
        raise DataError(f"{folder}: assigns {meta.num_parts} parts, {partition.path} has {partition.parts}")


class StableIds:
    """Keys are shuffled IDs, int64, which follow from the assignment when input order is kept.

    For folders without original IDs; one process, which holds a table of all nodes.

    Args:
        folder: The partition.
        parts: By node type of the partition: the part of each node of the source, any integers.

    Attributes:
        are_rows: False.
    """

    are_rows = False

    def __init__(self, folder: PartitionFolder, parts: Sequence[Array]) -> None:
        self._folder = folder
        self._tables = [_number(folder, at, found) for at, found in enumerate(parts)]
        self._nodes: tuple[int, Ints] = (-1, np.empty(0, np.int64))

    def node_of_source(self, ntype: int, ids: Ints) -> Ints:
        """See `GraphKeys`."""
        return self._tables[ntype][ids]

    def node_of_part(self, part: int, numbers: Ints) -> Ints:
        """See `GraphKeys`."""
        if self._nodes[0] != part:
            graph = self._folder.graph(part)
            self._nodes = part, graph.node_fields["_ID"].rows(0, graph.num_nodes)
        return self._nodes[1][numbers]

    def nodes(self, part: int, ntype: int, start: int, stop: int) -> Ints:
        """See `GraphKeys`."""
        return np.arange(start, stop) + int(self._folder.nodes.starts[part, ntype])

    def edges(self, part: int, etype: int, start: int, stop: int) -> Ints:
        """See `GraphKeys`."""
        return np.arange(start, stop) + int(self._folder.edges.starts[part, etype])

    def count(self, kind: str, at: int) -> int:
        """See `GraphKeys`."""
        return self._folder.nodes.total if kind == "node" else self._folder.edges.total

    def edge_of_source(self, etype: int, first: int) -> EdgeNamer:
        """See `GraphKeys`; `first` is 0."""
        following = self._folder.edges.starts[:, etype].copy()

        def name(dst: Ints) -> Ints:
            return number_rows(self._folder.nodes.parts_of(dst), following)

        return name


def _number(folder: PartitionFolder, ntype: int, parts: Array) -> Ints:
    return number_rows(parts, folder.nodes.starts[:, ntype].copy())
