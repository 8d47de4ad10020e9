"""One part's graph.dgl and orig_eids.dgl, written from its edges in blocks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dglrun.arrays import Ints
from dglrun.dispatch import csc_csr, graphbolt
from dglrun.dispatch.edges import EdgeRun
from dglrun.dispatch.halo import batches, localise
from dglrun.dispatch.halo_edges import HaloEdges
from dglrun.formats.dgl.arrays import ArrayFile, ArraySpec
from dglrun.formats.dgl.graphs import GraphSpec, graph_file
from dglrun.formats.dgl.partition_book import Ranges
from dglrun.formats.dgl.tensors import tensor_file

_BLOCK = 1 << 20
_INT64, _INT32, _UINT8 = np.dtype("<i8"), np.dtype("<i4"), np.dtype("u1")


@dataclass(frozen=True)
class PartGraph:
    """The structure of one part.

    Attributes:
        part: Its number.
        nodes: Ranges of all nodes.
        edges: Ranges of all edges.
        chunks: By edge type: runs of edges in input order, sources and destinations shuffle-global.
        leaving: The part's halo edges, to write what DGL's partition_graph writes; None: what DGL's dispatch
            writes, which has no such edges and not the same fields.
    """

    part: int
    nodes: Ranges
    edges: Ranges
    chunks: Sequence[Sequence[EdgeRun]]
    leaving: HaloEdges | None = None

    def write(self, folder: Path, formats: tuple[str, ...], use_graphbolt: bool) -> None:
        """Write graph.dgl; afterwards the sources in `chunks` are part-local numbers.

        Its fields are `_ID` (shuffle-global, int64) and `inner_node` or `inner_edge` (uint8), see user guide
        7.4, and `_TYPE` (int32), of shapes (nodes,), halo nodes last, and (edges,). Edge ends are int64.
        With halo edges, which come last, it has partition_graph's fields.

        Args:
            folder: The part's folder.
            formats: Some of coo, csr, csc; with halo edges coo alone.
            use_graphbolt: Whether to leave there what `graphbolt.write` needs; not with halo edges.
        """
        inner = self.nodes.bounds(self.part)
        targets = [] if self.leaving is None else [self.leaving.dst]
        halo = localise([*(chunk.src for chunk in self._runs()), *targets], inner, self.nodes.total)
        nodes, edges = inner[1] - inner[0] + len(halo), self._num_edges + sum(map(len, targets))
        spec = GraphSpec(nodes, edges, formats, self._node_fields(nodes), self._edge_fields(edges))
        with graph_file(folder / "graph.dgl", spec) as file:
            self._put_nodes(file, inner, halo)
            self._put_edges(file)
            if self.leaving is not None:
                self._put_leaving(file, self.leaving, inner[0])
            if "coo" in formats:
                self._put_coo(file, inner[0])
            self._put_compressed(file, formats, nodes, inner[0])
        if use_graphbolt:
            graphbolt.put_scratch(folder, list(self._runs()), nodes, inner[0])

    def write_orig_eids(self, path: Path, etypes: Sequence[str]) -> None:
        """Write orig_eids.dgl: the original type-wise ID of each inner edge, by edge type.

        Args:
            path: The file; its tensors are int64, shape (inner edges of the type,).
            etypes: Names of the edge types; the tensors have them.
        """
        counts = self.edges.counts[self.part].tolist()
        specs = [ArraySpec(name, _INT64, (count,)) for name, count in zip(etypes, counts, strict=True)]
        with tensor_file(path, specs) as file:
            for name, runs in zip(etypes, self.chunks, strict=True):
                first = 0
                for chunk in runs:
                    assert chunk.rows is not None  # noqa: S101 - the caller asked for them
                    file.put(name, first, chunk.rows)
                    first += len(chunk.rows)

    @property
    def _num_edges(self) -> int:
        return int(self.edges.counts[self.part].sum())

    def _runs(self) -> Iterator[EdgeRun]:
        return (chunk for runs in self.chunks for chunk in runs)

    def _put_nodes(self, file: ArrayFile, inner: tuple[int, int], halo: Ints) -> None:
        count = inner[1] - inner[0]
        _put_sequence(file, "node/_ID", 0, inner)
        _put_constant(file, "node/inner_node", (0, count), 1)
        if self._has_types:
            _put_runs(file, "node/_TYPE", self.nodes.counts[self.part].tolist())
        if self._has_parts:
            _put_constant(file, "node/part_id", (0, count), self.part)
        for start, stop in batches(len(halo), _BLOCK):
            block = halo[start:stop]
            file.put("node/_ID", count + start, block)
            file.put("node/inner_node", count + start, np.zeros(len(block), np.uint8))
            if self._has_types:
                file.put("node/_TYPE", count + start, self.nodes.types_of(block))
            if self._has_parts:
                file.put("node/part_id", count + start, self.nodes.parts_of(block))

    def _put_edges(self, file: ArrayFile) -> None:
        _put_sequence(file, "edge/_ID", 0, self.edges.bounds(self.part))
        _put_constant(file, "edge/inner_edge", (0, self._num_edges), 1)
        if self._has_types:
            _put_runs(file, "edge/_TYPE", self.edges.counts[self.part].tolist())

    def _put_leaving(self, file: ArrayFile, leaving: HaloEdges, first_node: int) -> None:
        for start, stop in batches(len(leaving.ids), _BLOCK):
            row, block = self._num_edges + start, leaving.ids[start:stop]
            file.put("edge/_ID", row, block)
            file.put("edge/inner_edge", row, np.zeros(len(block), np.uint8))
            if self._has_types:
                file.put("edge/_TYPE", row, self.edges.types_of(block))
            file.put("coo/src", row, leaving.src[start:stop] - first_node)
            file.put("coo/dst", row, leaving.dst[start:stop])

    def _put_coo(self, file: ArrayFile, first_node: int) -> None:
        row = 0
        for chunk in self._runs():
            file.put("coo/src", row, chunk.src)
            file.put("coo/dst", row, chunk.dst - first_node)
            row += len(chunk.src)

    def _put_compressed(self, file: ArrayFile, formats: tuple[str, ...], nodes: int, first_node: int) -> None:
        sources = csc_csr.Side([chunk.src for chunk in self._runs()], 0)
        targets = csc_csr.Side([chunk.dst for chunk in self._runs()], first_node)
        if "csc" in formats:
            csc_csr.put(file, "csc", targets, sources, nodes)
        if "csr" in formats:
            csc_csr.put(file, "csr", sources, targets, nodes)

    @property
    def _has_types(self) -> bool:
        """partition_graph leaves them out where all are the same, but not of a single part."""
        several = self.nodes.counts.shape[1] > 1 or self.edges.counts.shape[1] > 1
        return self.leaving is None or several or self.nodes.parts == 1

    @property
    def _has_parts(self) -> bool:
        return self.leaving is not None and self.nodes.parts > 1

    def _node_fields(self, nodes: int) -> tuple[ArraySpec, ...]:
        return (
            ArraySpec("_ID", _INT64, (nodes,)),
            ArraySpec("inner_node", _UINT8, (nodes,)),
            *((ArraySpec("_TYPE", _INT32, (nodes,)),) if self._has_types else ()),
            *((ArraySpec("part_id", _INT64, (nodes,)),) if self._has_parts else ()),
        )

    def _edge_fields(self, edges: int) -> tuple[ArraySpec, ...]:
        return (
            ArraySpec("_ID", _INT64, (edges,)),
            ArraySpec("inner_edge", _UINT8, (edges,)),
            *((ArraySpec("_TYPE", _INT32, (edges,)),) if self._has_types else ()),
        )


def _put_sequence(file: ArrayFile, name: str, row: int, values: tuple[int, int]) -> None:
    for start, stop in batches(values[1] - values[0], _BLOCK):
        file.put(name, row + start, np.arange(values[0] + start, values[0] + stop))


def _put_runs(file: ArrayFile, name: str, counts: list[int]) -> None:
    """Write so many times 0, then so many times 1, and so on."""
    first = 0
    for value, count in enumerate(counts):
        _put_constant(file, name, (first, first + count), value)
        first += count


def _put_constant(file: ArrayFile, name: str, rows: tuple[int, int], value: int) -> None:
    dtype = np.uint8 if name.endswith(("inner_node", "inner_edge")) else np.int32
    for start, stop in batches(rows[1] - rows[0], _BLOCK):
        file.put(name, rows[0] + start, np.full(stop - start, value, dtype))
