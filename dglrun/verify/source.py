"""A partition against its chunked source: nothing lost, doubled, moved or mixed up.

Every node, edge and feature row gets a key that both sides can tell: its original ID where the
partition carries original IDs, else the ID that a stable dispatch gives it by the assignment.
Each rank reads its share of the source's rows and the rows of its own parts, both in blocks.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from dglrun.arrays import Array, Ints, dtype_name, share
from dglrun.errors import DataError
from dglrun.formats.chunked import read
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.chunked.row_index import Index
from dglrun.formats.chunked.table import FileSpec
from dglrun.formats.dgl.arrays import StoredArray
from dglrun.formats.dgl.edge_blocks import EdgeBlock, edge_blocks_between
from dglrun.formats.dgl.folder import PartitionFolder
from dglrun.mpi import checksum
from dglrun.mpi.checksum import Hashes, KeyRanges, TableSums
from dglrun.mpi.collectives import Ranks, run_on_all_ranks
from dglrun.mpi.shared_index import index_tables
from dglrun.mpi.shuffle import Owners
from dglrun.mpi.source_sums import Table
from dglrun.verify.keys import Assigned, GraphKeys

_ROWS = 1 << 18
_BYTES = 8 << 20
"""What is read at a time: rows of IDs, bytes of features."""
_EDGES = 1 << 17
"""Edges of a part: fewer rows, since their six columns together are to stay in the processor's cache."""

Blocks = Iterator[tuple[Array, Hashes]]


def load_source(
    in_dir: Path, folder: PartitionFolder, ranks: Ranks, metadata: str = "metadata.json"
) -> ChunkedGraph:
    """Read the metadata of the graph that a partition is compared with; collective.

    Raises:
        DataError: on every rank: it cannot be read or has other types than the partition, or the ranks have
            not the same metadata and JSON, as when a file of one worker is of an earlier run.
    """
    graph = run_on_all_ranks(ranks, lambda: _load(in_dir, folder, metadata))
    ranges = (folder.ntypes, folder.etypes, folder.nodes.counts.tolist(), folder.edges.counts.tolist())
    for path, said in ((folder.path, ranges), (in_dir / metadata, graph)):
        stamps = ranks.gather((hashlib.sha256(repr(said).encode()).hexdigest(), path))
        if others := [rank for rank, stamp in enumerate(stamps) if stamp[0] != stamps[0][0]]:
            raise DataError(f"{stamps[others[0]][1]}: rank {others[0]} has another one than rank 0")
    return graph


def _load(in_dir: Path, folder: PartitionFolder, metadata: str) -> ChunkedGraph:
    graph = ChunkedGraph.load(in_dir, metadata)
    if sorted(graph.ntypes) != sorted(folder.ntypes) or sorted(graph.etypes) != sorted(folder.etypes):
        raise DataError(f"{in_dir}: has other types than {folder.path}")
    return graph


@dataclass(frozen=True)
class KnownSums:
    """Sums of tables, by their names, that are known before the comparison reads any; keys are row numbers.

    Attributes:
        source: Of the source's whole tables, which then are not read unless the parts' are others.
        parts: Of this rank's rows in its parts, which then are not read a second time.
    """

    source: Mapping[str, Hashes] = field(default_factory=dict)
    parts: Mapping[str, Hashes] = field(default_factory=dict)


NOTHING_KNOWN = KnownSums()


class PartEdgeSums:
    """The sums of a part's edges, from the blocks that `PartChecks.edge_problems` reads.

    Args:
        folder: The partition.
        part: The part.
        keys: How nodes and edges are called.
    """

    def __init__(self, folder: PartitionFolder, part: int, keys: GraphKeys) -> None:
        self._folder = folder
        self._part = part
        self._keys = keys
        self._ends = np.cumsum(folder.edges.counts[part]).tolist()
        limits = [KeyRanges.of(0, keys.count("edge", at)) for at in range(len(folder.etypes))]
        self._sums = [TableSums(each) for each in limits]

    @property
    def can_be_added(self) -> bool:
        """Whether the edges come in the order of their numbers, as each type's must."""
        return next(iter(self._folder.graph(self._part).formats)) == "coo"

    def add(self, block: EdgeBlock) -> None:
        """Add the inner edges of a block of consecutive edges."""
        first = int(block.numbers[0])
        for at, (low, high) in enumerate(pairwise((0, *self._ends))):
            start, stop = max(low, first), min(high, first + len(block.src))
            if start < stop:
                rows = slice(start - first, stop - first)
                some = EdgeBlock(block.src[rows], block.dst[rows], block.numbers[rows])
                keys = self._keys.edges(self._part, at, start - low, stop - low)
                self._sums[at].add(keys, _hash_edges(self._keys, self._part, keys, some))

    def by_table(self) -> dict[str, Hashes]:
        """The sums of each type's edges."""
        tables = (str(Table("edges", name)) for name in self._folder.etypes)
        return {table: sums.values for table, sums in zip(tables, self._sums, strict=True)}


class SourceChecks:
    """The comparisons with the source; collective, and so is every step of `problems`.

    Args:
        folder: The partition; its parts are sound (`PartChecks`).
        graph: Its source.
        keys: How nodes and edges are called on both sides; with several ranks `OriginalIds`.
        assigned: This rank's share of the assignment, where it is known.
        ranks: The processes.
        sums: What is known of them.

    Raises:
        AgreedError: the source cannot be read.
    """

    def __init__(
        self,
        folder: PartitionFolder,
        graph: ChunkedGraph,
        keys: GraphKeys,
        assigned: Assigned | None,
        ranks: Ranks,
        sums: KnownSums = NOTHING_KNOWN,
    ) -> None:
        self.folder = folder
        self.graph = graph
        self.keys = keys
        self.assigned = assigned
        self.ranks = ranks
        self.parts = Owners(folder.parts, ranks.size).owned(ranks.rank)
        self.sums = sums
        self.index: Index = {} if sums.source else index_tables(ranks, graph.tables())

    def problems(self) -> Iterator[str]:
        """Say what differs from the source, on every rank the same; nothing: the partition is its source.

        Raises:
            AgreedError: a file cannot be read.
        """
        for at in range(len(self.folder.ntypes)):
            yield from self._nodes(at)
        for at in range(len(self.folder.etypes)):
            yield from self._edges(at)
        yield from self._features("node", self.graph.node_data)
        yield from self._features("edge", self.graph.edge_data)

    # --- nodes

    def _nodes(self, ntype: int) -> Iterator[str]:
        name = self.folder.ntypes[ntype]
        wanted, got = self.graph.node_count(name), int(self.folder.nodes.counts[:, ntype].sum())
        if got != wanted:
            yield f"{name} nodes: the source has {wanted}, the partition {got}"
            return
        yield from self._compare(
            f"{name} nodes",
            lambda: self._source_nodes(ntype),
            lambda: self._part_nodes(ntype),
            self.keys.count("node", ntype),
        )

    def _source_nodes(self, ntype: int) -> Blocks:
        """Each node, and the part that owns it where the assignment is known."""
        for ids, owner in self._node_ids(ntype):
            keys = self.keys.node_of_source(ntype, ids)
            yield keys, checksum.hash_columns(keys, owner)

    def _node_ids(self, ntype: int) -> Iterator[tuple[Ints, Array]]:
        if self.assigned is not None:
            yield from self.assigned.blocks(ntype, _ROWS)
            return
        for start, stop in _blocks(*self._share(self.graph.node_count(self.folder.ntypes[ntype]))):
            yield np.arange(start, stop), np.zeros(stop - start, np.uint8)

    def _part_nodes(self, ntype: int) -> Blocks:
        for part in self.parts:
            for start, stop in _blocks(0, int(self.folder.nodes.counts[part, ntype])):
                keys = self.keys.nodes(part, ntype, start, stop)
                owner = np.broadcast_to(np.int64(0 if self.assigned is None else part), keys.shape)
                yield keys, checksum.hash_columns(keys, owner)

    # --- edges

    def _edges(self, etype: int) -> Iterator[str]:
        name = self.folder.etypes[etype]
        wanted, got = self.graph.edge_count(name), int(self.folder.edges.counts[:, etype].sum())
        if got != wanted:
            yield f"{name} edges: the source has {wanted}, the partition {got}"
            return
        yield from self._compare_with_source(
            f"{name} edges",
            Table("edges", name),
            lambda: ((keys, checksum.hash_columns(keys, *ends)) for keys, *ends in self._source_edges(etype)),
            lambda: self._part_edges(etype),
            self.keys.count("edge", etype),
        )

    def _source_edges(self, etype: int) -> Iterator[tuple[Ints, Ints, Ints]]:
        """Keys of edges and of their ends."""
        name = self.folder.etypes[etype]
        src_type, dst_type = self.folder.ends(etype)
        spec = self.graph.edges[name]
        limits = (
            self.graph.node_count(self.folder.ntypes[src_type]),
            self.graph.node_count(self.folder.ntypes[dst_type]),
        )
        start, stop = self._share(self.graph.edge_count(name))
        namer = self.keys.edge_of_source(etype, start)
        blocks = read.edge_blocks(spec, start, stop, _ROWS, limits=limits, files=self.index[spec])
        for src, dst in blocks:
            to = self.keys.node_of_source(dst_type, dst)
            yield namer(to), self.keys.node_of_source(src_type, src), to

    def _part_edges(self, etype: int) -> Blocks:
        """The inner edges of a type with the keys of their ends, from every part of ours."""
        for part in self.parts:
            start = int(self.folder.edges.counts[part, :etype].sum())
            stop = start + int(self.folder.edges.counts[part, etype])
            keys_of = self._edge_keys(part, etype, start)
            for block in edge_blocks_between(self.folder.graph(part), start, stop, _EDGES):
                keys = keys_of(block.edges)
                yield keys, _hash_edges(self.keys, part, keys, block)

    def _edge_keys(self, part: int, etype: int, start: int) -> Callable[[Ints], Ints]:
        """Names a part's edges of a type, the first of which is `start`, by their part-local numbers.

        Takes and returns int64, shape (edges,).

        In csc and csr any numbers may stand in one block: then the keys of all are read once and held.
        """
        if next(iter(self.folder.graph(part).formats)) != "coo":
            held = self.keys.edges(part, etype, 0, int(self.folder.edges.counts[part, etype]))
            return lambda edges: held[edges - start]

        def of_run(edges: Ints) -> Ints:
            low = int(edges[0]) - start if len(edges) else 0
            return self.keys.edges(part, etype, low, low + len(edges))

        return of_run

    # --- features

    def _features(self, kind: str, data: Mapping[str, Mapping[str, FileSpec]]) -> Iterator[str]:
        known = {f"{owner}/{name}" for owner, found in data.items() for name in found}
        invented = run_on_all_ranks(
            self.ranks, lambda: {part: set(self.folder.features(part, kind)) - known for part in self.parts}
        )
        by_part = {part: names for held in self.ranks.gather(invented) for part, names in held.items()}
        for part, names in sorted(by_part.items()):
            for name in sorted(names):
                yield f"{kind} feature {name} is in part {part}, the source has none of that name"
        for owner, found in data.items():
            for name, spec in found.items():
                yield from self._feature(kind, owner, f"{owner}/{name}", spec)

    def _feature(self, kind: str, owner: str, name: str, spec: FileSpec) -> Iterator[str]:
        what = f"{kind} feature {name}"
        stored = run_on_all_ranks(
            self.ranks, lambda: {part: self.folder.features(part, kind).get(name) for part in self.parts}
        )
        lacking = self.ranks.gather([part for part, found in stored.items() if found is None])
        if without := sorted(part for found in lacking for part in found):
            yield f"{what} is missing in part {', '.join(map(str, without))}"
            return
        others = self.ranks.gather(run_on_all_ranks(self.ranks, lambda: _other_rows(spec, stored)))
        if any(others):
            yield from (f"{what}: {text}" for found in others for text in found)
            return
        names = self.folder.ntypes if kind == "node" else self.folder.etypes
        at = names.index(owner)
        yield from self._compare_with_source(
            what,
            Table(kind, owner, name.removeprefix(f"{owner}/")),
            lambda: self._source_rows(kind, at, spec),
            lambda: self._part_rows(kind, at, stored),
            self.keys.count(kind, at),
        )

    def _source_rows(self, kind: str, at: int, spec: FileSpec) -> Blocks:
        stream = Joined(self._source_keys(kind, at))
        names = self.folder.ntypes if kind == "node" else self.folder.etypes
        count = self.graph.node_count if kind == "node" else self.graph.edge_count
        start, stop = self._share(count(names[at]))
        info = read.feature_info(spec)
        rows = max(1, _BYTES // max(1, info.dtype.itemsize * int(np.prod(info.tail, dtype=np.int64))))
        for block in read.feature_blocks(spec, start, stop, rows, files=self.index[spec]):
            keys = stream.take(len(block))
            yield keys, checksum.hash_rows(keys, block)

    def _source_keys(self, kind: str, at: int) -> Iterator[Ints]:
        """Keys of this rank's rows of the source."""
        if self.keys.are_rows:
            names = self.folder.ntypes if kind == "node" else self.folder.etypes
            count = self.graph.node_count if kind == "node" else self.graph.edge_count
            return (np.arange(start, stop) for start, stop in _blocks(*self._share(count(names[at]))))
        if kind == "node":
            return (self.keys.node_of_source(at, ids) for ids, _ in self._node_ids(at))
        return (keys for keys, _, _ in self._source_edges(at))

    def _part_rows(self, kind: str, at: int, stored: Mapping[int, Any]) -> Blocks:
        name_rows = self.keys.nodes if kind == "node" else self.keys.edges
        for part, array in stored.items():
            for start, rows in array.blocks(_rows_of(array)):
                keys = name_rows(part, at, start, start + len(rows))
                yield keys, checksum.hash_rows(keys, rows)

    # --- both

    def _compare_with_source(
        self, what: str, table: Table, source: checksum.Stream, parts: checksum.Stream, keys: int
    ) -> Iterator[str]:
        """Compare by the known sums where there are some; what differs is named by reading the source."""
        known = self.sums.source.get(str(table))
        own = self.sums.parts.get(str(table))
        if known is not None and checksum.has_sums(self.ranks, parts if own is None else own, keys, known):
            return
        if not self.index:
            self.index = index_tables(self.ranks, self.graph.tables())
        found = list(self._compare(what, source, parts, keys))
        yield from found
        if known is not None and not found:
            yield f"{what}: as the source is now; dispatch read others: a file changes or a disk errs"

    def _compare(
        self, what: str, source: checksum.Stream, parts: checksum.Stream, keys: int
    ) -> Iterator[str]:
        differs = checksum.compare(self.ranks, source, parts, keys)
        if differs is None:
            return
        held = ", ".join(map(str, differs.holders))
        where = f" (held by rank {held})" if held and self.ranks.size > 1 else ""
        yield f"{what}: {differs}{where}"

    def _share(self, rows: int) -> tuple[int, int]:
        return share(rows, self.ranks.rank, self.ranks.size)


class Joined:
    """Blocks of keys, int64, shape (rows,), as blocks of other sizes."""

    def __init__(self, blocks: Iterable[Ints]) -> None:
        self._blocks = iter(blocks)
        self._held: Ints = np.empty(0, np.int64)

    def take(self, rows: int) -> Ints:
        """The next `rows` keys, int64, shape (rows,).

        Raises:
            StopIteration: fewer are left.
        """
        while len(self._held) < rows:
            self._held = np.concatenate((self._held, next(self._blocks)))
        found, self._held = self._held[:rows], self._held[rows:]
        return found


def _hash_edges(keys: GraphKeys, part: int, edges: Array, block: EdgeBlock) -> Hashes:
    """Hash edges of a part with their keys and those of their ends."""
    return checksum.hash_columns(edges, *(keys.node_of_part(part, end) for end in (block.src, block.dst)))


def _other_rows(spec: FileSpec, stored: Mapping[int, StoredArray | None]) -> list[str]:
    """Say in which parts a feature has another dtype or row shape than in the source."""
    info = read.feature_info(spec)
    dtype = np.dtype(np.uint8) if info.dtype == np.bool_ else info.dtype  # as DGL stores it
    wanted = f"{dtype_name(dtype)}{list(info.tail)}"
    shown = {
        part: f"{dtype_name(array.spec.dtype)}{list(array.spec.shape[1:])}"
        for part, array in stored.items()
        if array is not None
    }
    return [
        f"rows of {got} in part {part}, expected {wanted}" for part, got in shown.items() if got != wanted
    ]


def _rows_of(array: StoredArray) -> int:
    return max(1, _BYTES // max(1, array.spec.row_bytes))


def _blocks(start: int, stop: int) -> Iterator[tuple[int, int]]:
    for at in range(start, stop, _ROWS):
        yield at, min(at + _ROWS, stop)
