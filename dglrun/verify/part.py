"""What must hold inside one part, whatever its source: DGL looks nodes and edges up by arithmetic.

The rules are those that dgl.distributed relies on (its loader checks some, its server and sampler
none): local number = ID minus the part's first ID, inner before halo, edges with their destination.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import pairwise

import numpy as np

from dglrun.arrays import Array, Ints
from dglrun.errors import DataError
from dglrun.formats.dgl.arrays import StoredArray
from dglrun.formats.dgl.edge_blocks import BLOCK, EdgeBlock, edge_blocks
from dglrun.formats.dgl.folder import PartitionFolder
from dglrun.formats.dgl.partition_book import Ranges
from dglrun.mpi import checksum

_ROWS = 1 << 17
"""Rows that are checked at a time: a few of their columns stay in the processor's cache."""
_EDGES = 1 << 18
"""Edges: larger blocks, since each passes through some thirty calls, which find the cache full of others."""


class PartChecks:
    """The checks of one part; `problems` yields what is wrong.

    Attributes:
        folder: The partition.
        part: The part.
        graph: What its graph.dgl holds.
        inner_nodes: Nodes that it owns, by the JSON.
        inner_edges: Edges that it owns, by the JSON.
        edges: Edges in the part, halo edges included.
        halo_ids: Shuffle-global ID of each of its halo nodes, int64, shape (halo nodes,).
        cut: Inner edges whose source is a halo node, by edge type, int64, shape (types,); counted when
            `edge_problems` has come to its end without any.

    Raises:
        DataError: graph.dgl is missing or damaged, or lacks a field that every part has.
    """

    def __init__(self, folder: PartitionFolder, part: int) -> None:
        self.folder = folder
        self.part = part
        self.graph = folder.graph(part)
        self.inner_nodes = int(folder.nodes.counts[part].sum())
        self.inner_edges = int(folder.edges.counts[part].sum())
        for kind, fields in (("node", self.graph.node_fields), ("edge", self.graph.edge_fields)):
            types = folder.ntypes if kind == "node" else folder.etypes
            needed = ["_ID", f"inner_{kind}", *(["_TYPE"] if len(types) > 1 else [])]
            if lacking := [name for name in needed if name not in fields]:
                raise DataError(f"part {part}: graph.dgl has no {', '.join(lacking)} of its {kind}s")
        self.edges = len(self.graph.edge_fields["_ID"])
        self.halo_ids = self.graph.node_fields["_ID"].rows(self.inner_nodes, self.graph.num_nodes)
        self.cut = np.zeros(len(folder.etypes), np.int64)
        self._ends: Ints = np.cumsum(folder.edges.counts[part])
        self._has_edges = False

    def problems(self) -> Iterator[str]:
        """Say what is wrong with the part; nothing: every rule holds."""
        yield from self.row_problems()
        yield from self.edge_problems()

    def row_problems(self) -> Iterator[str]:
        """Of them those of the nodes and of the fields of nodes and edges; `edge_problems` comes next."""
        for text in (*self._fields(), *self._nodes()):
            yield f"part {self.part}: {text}"
        if self.graph.num_nodes < self.inner_nodes:
            return
        if broken := next(self._broken_formats(), None):
            yield f"part {self.part}: {broken}"
            return
        self._has_edges = True

    def edge_problems(self, also: Callable[[EdgeBlock], None] | None = None) -> Iterator[str]:
        """The others; nothing, too, where the edges cannot be read, as `row_problems` has said.

        Args:
            also: Gets each block of edges as it is read, with end points that are nodes of the part.
        """
        if not self._has_edges:
            return
        for text in (
            *self._edges(also),
            *self._forms(),
            *self._orders(),
            *self._features("node"),
            *self._features("edge"),
        ):
            yield f"part {self.part}: {text}"

    def _fields(self) -> Iterator[str]:
        for kind, fields, inner in (
            ("node", self.graph.node_fields, self.inner_nodes),
            ("edge", self.graph.edge_fields, self.inner_edges),
        ):
            ranges = self.folder.nodes if kind == "node" else self.folder.edges
            if len(fields["_ID"]) < inner:
                yield f"graph.dgl has {len(fields['_ID'])} {kind}s, the JSON gives it {inner}"
            else:
                yield from _field_problems(kind, fields, inner, ranges, self.part)

    def _nodes(self) -> Iterator[str]:
        start, stop = self.folder.nodes.bounds(self.part)
        halo = self.halo_ids
        if len(halo) and not (halo.min() >= 0 and halo.max() < self.folder.nodes.total):
            yield f"halo node IDs: expected 0 to {self.folder.nodes.total - 1}, got others"
        if ((halo >= start) & (halo < stop)).any():
            yield "a halo node is the part's own"
        ascends = bool((halo[1:] > halo[:-1]).all())  # as dispatch writes them: no need to sort
        if not ascends and len(np.unique(halo)) != len(halo):
            yield "a halo node is there twice"

    def _edges(self, also: Callable[[EdgeBlock], None] | None) -> Iterator[str]:
        """End points in one pass over the edges."""
        used = np.zeros(self.graph.num_nodes, bool)
        used[: self.inner_nodes] = True
        last_inner = max(self.inner_nodes - 1, 0)  # stands for all inner nodes: one place, not many
        found: dict[str, int] = {}
        for block in edge_blocks(self.graph, block_rows=_EDGES):
            last_dst = _largest(block.dst)
            if max(_largest(block.src), last_dst) >= self.graph.num_nodes:
                wrong = self._is_no_node(block.src) | self._is_no_node(block.dst)
                yield f"edge {_first(block, wrong)}: an end point is no node of the part"
                return
            used[np.maximum(block.src, last_inner)] = True
            if self.edges > self.inner_edges:
                used[np.maximum(block.dst, last_inner)] = True
            for what, wrong in self._wrong_edges(block, last_dst):
                if wrong.any():
                    found.setdefault(what, _first(block, wrong))
            self.cut += block.cut(self.inner_nodes, self._ends)
            if also is not None:
                also(block)
        yield from (f"edge {edge}: {what}" for what, edge in found.items())
        if not used.all():
            yield f"halo node {int(np.flatnonzero(~used)[0])} is an end of no edge"

    def _forms(self) -> Iterator[str]:
        """All stored formats hold the same edges: DGL may sample from another than is checked here."""
        sums = {name: self._sum(name) for name in self.graph.formats} if len(self.graph.formats) > 1 else {}
        first = next(iter(sums), "")
        for name, found in sums.items():
            if found != sums[first]:
                yield f"format {name} has other edges than format {first}"

    def _broken_formats(self) -> Iterator[str]:
        """What could not even be read as edges."""
        for name, arrays in self.graph.formats.items():
            if name == "coo":
                continue
            indptr = arrays["indptr"].rows(0, len(arrays["indptr"]))
            ascends = bool((indptr[1:] >= indptr[:-1]).all())
            if not ascends or indptr[[0, -1]].tolist() != [0, len(arrays["indices"])]:
                yield f"{name}: indptr does not go from 0 to the number of edges"
            if any(_largest(numbers) >= self.edges for _, numbers in arrays["eids"].blocks(_ROWS)):
                yield f"{name}: an edge number is not from 0 to {self.edges - 1}"

    def _sum(self, layout: str) -> int:
        total = 0
        for block in edge_blocks(self.graph, layout):
            total += int(checksum.hash_columns(block.edges, block.src, block.dst).sum(dtype=np.uint64))
        return total % (1 << 64)

    def _is_no_node(self, numbers: Ints) -> Array:
        return (numbers < 0) | (numbers >= self.graph.num_nodes)

    def _wrong_edges(self, block: EdgeBlock, last_dst: int) -> Iterator[tuple[str, Array]]:
        if self.edges > self.inner_edges:
            crosses = block.dst >= self.inner_nodes
            inner = block.edges < self.inner_edges
            yield "an inner edge ends at a halo node", inner & crosses
            yield "a halo edge ends at an inner node", ~(inner | crosses)
        elif last_dst >= self.inner_nodes:  # dispatch writes no halo edges
            yield "an inner edge ends at a halo node", block.dst >= self.inner_nodes
        if len(self.folder.ntypes) > 1:
            yield "its ends are not of its relation's types", self._wrong_types(block)

    def _wrong_types(self, block: EdgeBlock) -> Array:
        wrong: Array = np.zeros(len(block.src), bool)
        ends = np.array([self.folder.ends(at) for at in range(len(self.folder.etypes))]).reshape(-1, 2)
        etypes = self._edge_types(block.edges)
        for column, local in enumerate((block.src, block.dst)):
            wrong |= ends[:, column].astype(self._node_types.dtype)[etypes] != self._node_types[local]
        return wrong

    def _edge_types(self, edges: Ints) -> Ints:
        """Types of edges by part-local numbers: those of the ranges, for halo edges those of their IDs."""
        found = np.searchsorted(self._ends, edges, side="right")
        if (halo := edges >= self.inner_edges).any():
            low, high = int(edges[halo].min()), int(edges[halo].max()) + 1
            ids = self.graph.edge_fields["_ID"].rows(low, high)
            found[halo] = self.folder.edges.types_of(ids[edges[halo] - low])
        return found

    @cached_property
    def _node_types(self) -> Array:
        """Type of each node of the part."""
        counts = self.folder.nodes.counts[self.part]
        found = np.empty(self.graph.num_nodes, np.min_scalar_type(len(counts)))
        found[: self.inner_nodes] = np.repeat(np.arange(len(counts)), counts)
        halo = found[self.inner_nodes :]
        for at in range(0, len(halo), BLOCK):
            halo[at : at + BLOCK] = self.folder.nodes.types_of(self.halo_ids[at : at + BLOCK])
        return found

    def _orders(self) -> Iterator[str]:
        """In CSC the in-edges of each node must be sorted by type, as distributed sampling assumes."""
        if "csc" not in self.graph.formats:
            return
        types = self.graph.edge_fields.get("_TYPE")
        if types is None:
            return
        etypes = types.rows(0, len(types))
        before = (-1, -1)
        for block in edge_blocks(self.graph, "csc"):
            rows = np.concatenate(([before[0]], block.dst))
            kinds = np.concatenate(([before[1]], etypes[block.edges]))
            if ((np.diff(rows) == 0) & (np.diff(kinds) < 0)).any():
                yield "csc: in-edges of a node are not sorted by type"
                return
            before = (int(rows[-1]), int(kinds[-1]))

    def _features(self, kind: str) -> Iterator[str]:
        names = self.folder.ntypes if kind == "node" else self.folder.etypes
        ranges = self.folder.nodes if kind == "node" else self.folder.edges
        for name, stored in self.folder.features(self.part, kind).items():
            owner = name.split("/")[0]
            if owner not in names:
                yield f"{kind} feature {name}: {owner} is no type of the graph"
                continue
            rows = int(ranges.counts[self.part, names.index(owner)])
            if len(stored) != rows:
                yield f"{kind} feature {name}: expected {rows} rows, got {len(stored)}"


def _field_problems(
    kind: str, fields: dict[str, StoredArray], inner: int, ranges: Ranges, part: int
) -> Iterator[str]:
    """Check `_ID`, `_TYPE` and `inner_...` against the ranges, block by block."""
    first = ranges.bounds(part)[0]
    for start, ids in fields["_ID"].blocks(_ROWS):
        own = min(max(inner - start, 0), len(ids))
        count_up = _count_up(ids[:own], start + first)
        if _largest(ids[own:] if count_up else ids) >= ranges.total:
            row = start + int(np.flatnonzero((ids < 0) | (ids >= ranges.total))[0])
            yield f"{kind} {row}: its ID does not exist"
            return
        for what, wrong in _wrong_rows(kind, fields, ranges, part, start, ids, own):
            if wrong.any():
                yield f"{kind} {start + int(np.flatnonzero(wrong)[0])}: {what}"
                return
        if not count_up:
            yield f"{kind}s {start} on: inner IDs do not count up from {first}"
            return


def _count_up(ids: Ints, first: int) -> bool:
    """Whether they are `first`, `first` + 1, ...: they ascend, and there is none to leave out."""
    if not len(ids):
        return True
    ends = (int(ids[0]), int(ids[-1]))
    return ends == (first, first + len(ids) - 1) and bool((ids[1:] > ids[:-1]).all())


def _wrong_rows(
    kind: str,
    fields: dict[str, StoredArray],
    ranges: Ranges,
    part: int,
    start: int,
    ids: Ints,
    own: int,
) -> Iterator[tuple[str, Array]]:
    """Mark the wrong rows of a block, whose IDs exist and of which the first `own` are the part's own."""
    stop = start + len(ids)
    flags = fields[f"inner_{kind}"].rows(start, stop)
    wrong = flags != 1
    wrong[own:] = flags[own:] != 0
    yield f"inner_{kind} is wrong", wrong
    if "_TYPE" in fields:
        stored = fields["_TYPE"].rows(start, stop)
        wrong = np.empty(len(ids), bool)
        ends = (np.cumsum(ranges.counts[part]) - start).clip(0, own).tolist()
        for at, (low, high) in enumerate(pairwise((0, *ends))):
            np.not_equal(stored[low:high], at, out=wrong[low:high])
        wrong[own:] = stored[own:] != ranges.types_of(ids[own:])
        yield "its _TYPE is not that of its ID", wrong


def _largest(numbers: Ints) -> int:
    """The largest number, -1 if there is none; negative ones are huge, since they are read without a sign."""
    return int(numbers.view(f"u{numbers.itemsize}").max()) if len(numbers) else -1


def _first(block: EdgeBlock, wrong: Array) -> int:
    return int(block.edges[np.flatnonzero(wrong)[0]])
