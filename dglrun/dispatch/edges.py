"""Edges: read in shares, numbered, and brought to the parts of their destinations."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dglrun.arrays import Array, Ints, share
from dglrun.dispatch.node_map import NodeMap
from dglrun.formats.chunked import read
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.chunked.row_index import Index
from dglrun.formats.dgl.partition_book import Ranges, id_dtype, part_dtype
from dglrun.mpi.collectives import Ranks, in_rounds
from dglrun.mpi.exchange import block_rows
from dglrun.mpi.shuffle import OutgoingRows, Owners, shuffle
from dglrun.mpi.source_sums import ReadSums, Table


class EdgeRun(NamedTuple):
    """A run of edges of one part and type, in input order; all arrays have shape (edges,).

    Attributes:
        src: Shuffle-global IDs of the sources; int32 or int64, as `Ranges.dtype` of the nodes says.
        dst: Shuffle-global IDs of the destinations, all in the part; same dtype.
        rows: Original type-wise edge IDs, int32 or int64; None where nobody asked for them.
    """

    src: Array
    dst: Array
    rows: Array | None


@dataclass
class Edges:
    """The edges of a rank's parts, and where the edges that it read went.

    Attributes:
        chunks: By part and edge type: runs in input order.
        sent: int64, shape (ranks, parts, types): edges that each rank read, by part and type.
        parts: By edge type: the part of each edge that this rank read (kept where features follow), uint8 up
            to 256 parts, else uint16, shape (edges that this rank read,).
    """

    chunks: dict[int, list[list[EdgeRun]]]
    sent: Ints
    parts: dict[int, Array] = field(default_factory=dict)

    @property
    def ranges(self) -> Ranges:
        """Ranges of the edges of all parts and types."""
        return Ranges(self.sent.sum(axis=0))


@dataclass(frozen=True)
class EdgeReader:
    """What all edge types have in common while they are read."""

    graph: ChunkedGraph
    index: Index
    nodes: Ranges
    finder: NodeMap
    ranks: Ranks
    owners: Owners
    sums: ReadSums

    def read(self, with_rows: bool, remember: Sequence[int]) -> Edges:
        """Read and route every edge type; collective.

        Args:
            with_rows: Whether original edge IDs travel along.
            remember: Edge types whose parts are kept for the features.

        Raises:
            DataError: bad input on some rank; the same on all.
        """
        owned = self.owners.owned(self.ranks.rank)
        found = Edges({part: [] for part in owned}, np.zeros(0, np.int64))
        counts = np.zeros((self.nodes.parts, len(self.graph.etypes)), np.int64)
        for etype in range(len(self.graph.etypes)):
            tally = Tally(self.nodes.parts, etype in remember)
            by_part = self._route(etype, with_rows, tally)
            for part in owned:
                found.chunks[part].append([chunk for run in by_part[part] for chunk in run])
            counts[:, etype] = tally.counts
            if etype in remember:
                found.parts[etype] = tally.parts()
        found.sent = np.stack(self.ranks.gather(counts))
        return found

    def parts_of(self, etype: int) -> Array:
        """The part of each edge of a type that this rank reads, without sending anything; collective.

        Returns:
            uint8 up to 256 parts, else uint16, shape (edges that this rank reads,), in input order.

        Raises:
            DataError: bad input on some rank; the same on all.
        """
        tally = Tally(self.nodes.parts, True)
        for raw in in_rounds(self.ranks, self._blocks(etype), _EMPTY):
            self._find(etype, raw, tally)
        return tally.parts()

    def _route(self, etype: int, with_rows: bool, tally: "Tally") -> dict[int, list[list[EdgeRun]]]:
        start, _ = self._share(etype)
        runs: dict[int, list[list[EdgeRun]]] = {
            part: [[] for _ in range(self.ranks.size)] for part in self.owners.owned(self.ranks.rank)
        }
        dtype = id_dtype(self.graph.num_edges[etype])

        def prepare(raw: tuple[Ints, Ints]) -> OutgoingRows:
            first = start + tally.seen
            src, dst, parts = self._find(etype, raw, tally)
            rows = (np.arange(first, first + len(src), dtype=dtype),) if with_rows else ()
            return OutgoingRows(parts, (src, dst, *rows))

        table = Table("edges", self.graph.etypes[etype])
        blocks = self.sums.of_edges(table, start, self.graph.num_edges[etype], self._blocks(etype))
        for arrival in shuffle(self.ranks, self.owners, blocks, _EMPTY, prepare):
            src, dst, *rows = arrival.columns
            runs[arrival.part][arrival.source].append(EdgeRun(src, dst, rows[0] if rows else None))
        return runs

    def _find(self, etype: int, raw: tuple[Ints, Ints], tally: "Tally") -> tuple[Array, Array, Array]:
        """Shuffle-global end points and part of each edge of a block; collective."""
        src_type, dst_type = self.graph.ends(self.graph.etypes[etype])
        src = self.finder.find(src_type, raw[0])
        dst = self.finder.find(dst_type, raw[1])
        parts = self.nodes.parts_of(dst)
        tally.add(parts)
        return src, dst, parts

    def _share(self, etype: int) -> tuple[int, int]:
        return share(self.graph.num_edges[etype], self.ranks.rank, self.ranks.size)

    def _blocks(self, etype: int) -> Iterator[tuple[Ints, Ints]]:
        name = self.graph.etypes[etype]
        src_type, dst_type = self.graph.ends(name)
        spec = self.graph.edges[name]
        limits = self.graph.num_nodes[src_type], self.graph.num_nodes[dst_type]
        rows = min(read.BLOCK_ROWS, block_rows(3 * self.nodes.dtype.itemsize))
        start, stop = self._share(etype)
        return read.edge_blocks(spec, start, stop, rows, limits=limits, files=self.index[spec])


class Tally:
    """Counts where the edges of one type go, and remembers it for each edge if asked.

    Part numbers are uint8 up to 256 parts, else uint16, as `Ranges.parts_of` gives them.

    Attributes:
        counts: Edges counted so far by part: int64, shape (parts,).
    """

    def __init__(self, parts: int, remember: bool) -> None:
        self.counts = np.zeros(parts, np.int64)
        self._remember = remember
        self._dtype = part_dtype(parts)
        self._parts: list[Array] = []

    @property
    def seen(self) -> int:
        """Edges counted so far."""
        return int(self.counts.sum())

    def add(self, parts: Array) -> None:
        """Count a block: the part of each of its edges, shape (edges,)."""
        self.counts += np.bincount(parts, minlength=len(self.counts))
        if self._remember:
            self._parts.append(parts)

    def parts(self) -> Array:
        """The parts of all edges counted, in order: shape (edges,), or (0,) if they are not remembered."""
        return np.concatenate([np.empty(0, self._dtype), *self._parts])


_EMPTY = (np.empty(0, np.int64), np.empty(0, np.int64))
