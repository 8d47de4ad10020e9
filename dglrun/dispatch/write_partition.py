"""One part's graph.dgl and orig_eids.dgl, written from its edges in blocks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dglrun.arrays import Ints
from dglrun.dispatch import csc_csr, graphbolt
from dglrun.dispatch.edges import EdgeRun
from dglrun.dispatch.halo import batches, localise
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
    """

    part: int
    nodes: Ranges
    edges: Ranges
    chunks: Sequence[Sequence[EdgeRun]]

    def write(self, folder: Path, formats: tuple[str, ...], use_graphbolt: bool) -> None:
        """Write graph.dgl; afterwards the sources in `chunks` are part-local numbers.

        Its fields are `_ID` (shuffle-global, int64) and `inner_node` or `inner_edge` (uint8), see user guide
        7.4, and `_TYPE` (int32), of shapes (nodes,), halo nodes last, and (edges,). Edge ends are int64.

        Args:
            folder: The part's folder.
            formats: Some of coo, csr, csc.
            use_graphbolt: Whether to leave there what `graphbolt.write` needs.
        """
        inner = self.nodes.bounds(self.part)
        halo = localise([chunk.src for chunk in self._runs()], inner, self.nodes.total)
        nodes = inner[1] - inner[0] + len(halo)
        spec = GraphSpec(nodes, self._num_edges, formats, _node_fields(nodes), _edge_fields(self._num_edges))
        with graph_file(folder / "graph.dgl", spec) as file:
            self._put_nodes(file, inner, halo)
            self._put_edges(file)
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
        first = 0
        for ntype, nodes in enumerate(self.nodes.counts[self.part].tolist()):
            _put_constant(file, "node/_TYPE", (first, first + nodes), ntype)
            first += nodes
        for start, stop in batches(len(halo), _BLOCK):
            block = halo[start:stop]
            file.put("node/_ID", count + start, block)
            file.put("node/inner_node", count + start, np.zeros(len(block), np.uint8))
            file.put("node/_TYPE", count + start, self.nodes.types_of(block))

    def _put_edges(self, file: ArrayFile) -> None:
        _put_sequence(file, "edge/_ID", 0, self.edges.bounds(self.part))
        _put_constant(file, "edge/inner_edge", (0, self._num_edges), 1)
        first = 0
        for etype, edges in enumerate(self.edges.counts[self.part].tolist()):
            _put_constant(file, "edge/_TYPE", (first, first + edges), etype)
            first += edges

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


def _node_fields(nodes: int) -> tuple[ArraySpec, ...]:
    return (
        ArraySpec("_ID", _INT64, (nodes,)),
        ArraySpec("inner_node", _UINT8, (nodes,)),
        ArraySpec("_TYPE", _INT32, (nodes,)),
    )


def _edge_fields(edges: int) -> tuple[ArraySpec, ...]:
    return (
        ArraySpec("_ID", _INT64, (edges,)),
        ArraySpec("inner_edge", _UINT8, (edges,)),
        ArraySpec("_TYPE", _INT32, (edges,)),
    )


def _put_sequence(file: ArrayFile, name: str, row: int, values: tuple[int, int]) -> None:
    for start, stop in batches(values[1] - values[0], _BLOCK):
        file.put(name, row + start, np.arange(values[0] + start, values[0] + stop))


def _put_constant(file: ArrayFile, name: str, rows: tuple[int, int], value: int) -> None:
    dtype = np.int32 if name.endswith("_TYPE") else np.uint8
    for start, stop in batches(rows[1] - rows[0], _BLOCK):
        file.put(name, rows[0] + start, np.full(stop - start, value, dtype))
