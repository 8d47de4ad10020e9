"""A partition against its chunked source: nothing lost, doubled, moved or mixed up.

Every node, edge and feature row gets a key that both sides can tell: its original ID where the
partition carries original IDs, else the ID that a stable dispatch gives it by the assignment.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from dglrun.arrays import Array
from dglrun.formats.chunked import read
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.dgl.edge_blocks import BLOCK, edge_blocks
from dglrun.formats.dgl.folder import PartitionFolder
from dglrun.verify import checksum
from dglrun.verify.checksum import Hashes
from dglrun.verify.keys import Assigned, Keys

Blocks = Iterable[tuple[Array, Hashes]]


class SourceChecks:
    """The comparisons with the source; `problems` yields what is wrong.

    Args:
        folder: The partition.
        graph: Its source.
        keys: How nodes and edges are called on both sides.
        assigned: The assignment, where it is known.
        parts: Hold only these parts against what the source gives them; needs keys that are IDs of the
            partition (`StableIds`). None: all parts together.
    """

    def __init__(
        self,
        folder: PartitionFolder,
        graph: ChunkedGraph,
        keys: Keys,
        assigned: Assigned | None,
        parts: Sequence[int] | None = None,
    ) -> None:
        self.folder = folder
        self.graph = graph
        self.keys = keys
        self.assigned = assigned
        self._some = parts
        self.parts = tuple(range(folder.parts)) if parts is None else tuple(parts)

    def problems(self) -> Iterator[str]:
        """Say what differs from the source; nothing: the partition is its source."""
        yield from self._nodes()
        for at in range(len(self.folder.etypes)):
            yield from self._edges(at)
        yield from self._features("node", self.graph.node_data)
        yield from self._features("edge", self.graph.edge_data)

    def _nodes(self) -> Iterator[str]:
        for at, name in enumerate(self.folder.ntypes):
            wanted = self.graph.node_count(name)
            if (got := int(self.folder.nodes.counts[:, at].sum())) != wanted:
                yield f"{name} nodes: the source has {wanted}, the partition {got}"
            elif differs := checksum.compare(
                lambda at=at: self._ours("node", self._source_nodes(at)),  # type: ignore[misc]
                lambda at=at: self._part_nodes(at),  # type: ignore[misc]
                self.keys.count("node", at),
            ):
                yield f"{name} nodes: {differs}"

    def _source_nodes(self, ntype: int) -> Iterator[tuple[Array, Hashes]]:
        """Each node, and the part that owns it where the assignment is known."""
        rows = self.graph.node_count(self.folder.ntypes[ntype])
        for start in range(0, rows, BLOCK):
            ids = np.arange(start, min(start + BLOCK, rows))
            owner = self.assigned.parts[ntype][ids] if self.assigned else np.zeros(len(ids), np.int64)
            keys = self.keys.node_of_source(ntype, ids)
            yield keys, checksum.combine(keys, owner)

    def _ours(self, kind: str, blocks: Blocks) -> Blocks:
        """Of the source's rows those that belong into our parts."""
        if self._some is None:
            return blocks
        ranges = self.folder.nodes if kind == "node" else self.folder.edges
        marks = ((keys, hashes, np.isin(ranges.parts_of(keys), self.parts)) for keys, hashes in blocks)
        return ((keys[ours], hashes[ours]) for keys, hashes, ours in marks)

    def _part_nodes(self, ntype: int) -> Iterator[tuple[Array, Hashes]]:
        for part in self.parts:
            for start, stop in _blocks(int(self.folder.nodes.counts[part, ntype])):
                keys = self.keys.nodes(part, ntype, start, stop)
                owner = np.full(len(keys), part if self.assigned else 0)
                yield keys, checksum.combine(keys, owner)

    def _edges(self, etype: int) -> Iterator[str]:
        name = self.folder.etypes[etype]
        wanted, got = self.graph.edge_count(name), int(self.folder.edges.counts[:, etype].sum())
        if got != wanted:
            yield f"{name} edges: the source has {wanted}, the partition {got}"
        elif differs := checksum.compare(
            lambda: self._ours("edge", self._source_edges(etype)),
            lambda: self._part_edges(etype),
            self.keys.count("edge", etype),
        ):
            yield f"{name} edges: {differs}"

    def _source_edges(self, etype: int) -> Iterator[tuple[Array, Hashes]]:
        name = self.folder.etypes[etype]
        src_type, dst_type = self.folder.ends(etype)
        limits = tuple(self.graph.node_count(self.folder.ntypes[at]) for at in (src_type, dst_type))
        namer = self.keys.edge_of_source(etype)
        rows = self.graph.edge_count(name)
        blocks = read.edge_blocks(self.graph.edges[name], 0, rows, BLOCK, limits=(limits[0], limits[1]))
        for src, dst in blocks:
            ends = self.keys.node_of_source(src_type, src), self.keys.node_of_source(dst_type, dst)
            keys = namer(ends[1])
            yield keys, checksum.combine(keys, *ends)

    def _part_edges(self, etype: int) -> Iterator[tuple[Array, Hashes]]:
        """The inner edges of a type with the keys of their ends, from every part of ours."""
        for part in self.parts:
            start, stop = self._inner(part, etype)
            graph = self.folder.graph(part)
            node_ids = graph.node_fields["_ID"].rows(0, graph.num_nodes)
            for block in edge_blocks(graph):
                inside = (block.edges >= start) & (block.edges < stop)
                numbers = block.edges[inside] - start
                low, high = int(numbers.min(initial=0)), int(numbers.max(initial=-1)) + 1
                keys = self.keys.edges(part, etype, low, max(low, high))[numbers - low]
                ends = (self.keys.node_of_part(node_ids[end[inside]]) for end in (block.src, block.dst))
                yield keys, checksum.combine(keys, *ends)

    def _inner(self, part: int, etype: int) -> tuple[int, int]:
        start = int(self.folder.edges.counts[part, :etype].sum())
        return start, start + int(self.folder.edges.counts[part, etype])

    def _features(self, kind: str, data: Any) -> Iterator[str]:
        for owner, found in data.items():
            for name, spec in found.items():
                yield from self._feature(kind, owner, f"{owner}/{name}", spec)

    def _feature(self, kind: str, owner: str, name: str, spec: Any) -> Iterator[str]:
        stored = {part: self.folder.features(part, kind).get(name) for part in self.parts}
        lacking = [str(part) for part, found in stored.items() if found is None]
        if lacking:
            yield f"{kind} feature {name} is missing in part {', '.join(lacking)}"
            return
        names = self.folder.ntypes if kind == "node" else self.folder.etypes
        at = names.index(owner)
        differs = checksum.compare(
            lambda: self._ours(kind, self._source_rows(kind, at, spec)),
            lambda: self._part_rows(kind, at, stored),
            self.keys.count(kind, at),
        )
        if differs:
            yield f"{kind} feature {name}: {differs}"

    def _source_rows(self, kind: str, at: int, spec: Any) -> Iterator[tuple[Array, Hashes]]:
        keys = self._source_node_keys(at) if kind == "node" else self._source_edge_keys(at)
        stream = Joined(keys)
        count = self.graph.node_count if kind == "node" else self.graph.edge_count
        names = self.folder.ntypes if kind == "node" else self.folder.etypes
        for rows in read.feature_blocks(spec, 0, count(names[at]), BLOCK >> 4):
            found = stream.take(len(rows))
            yield found, checksum.combine(found, checksum.row_hashes(rows))

    def _source_node_keys(self, ntype: int) -> Iterator[Array]:
        return (keys for keys, _ in self._source_nodes(ntype))

    def _source_edge_keys(self, etype: int) -> Iterator[Array]:
        return (keys for keys, _ in self._source_edges(etype))

    def _part_rows(self, kind: str, at: int, stored: dict[int, Any]) -> Iterator[tuple[Array, Hashes]]:
        name_rows = self.keys.nodes if kind == "node" else self.keys.edges
        for part, array in stored.items():
            for start, rows in array.blocks(BLOCK >> 4):
                keys = name_rows(part, at, start, start + len(rows))
                yield keys, checksum.combine(keys, checksum.row_hashes(rows))


class Joined:
    """Blocks of keys, int64, shape (rows,), as blocks of other sizes."""

    def __init__(self, blocks: Iterable[Array]) -> None:
        self._blocks = iter(blocks)
        self._held = np.empty(0, np.int64)

    def take(self, rows: int) -> Array:
        """The next `rows` keys, int64, shape (rows,).

        Raises:
            StopIteration: fewer are left.
        """
        while len(self._held) < rows:
            self._held = np.concatenate((self._held, next(self._blocks)))
        found, self._held = self._held[:rows], self._held[rows:]
        return found


def _blocks(rows: int) -> Iterator[tuple[int, int]]:
    for start in range(0, rows, BLOCK):
        yield start, min(start + BLOCK, rows)
