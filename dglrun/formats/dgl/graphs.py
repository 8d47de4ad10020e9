"""graph.dgl: one homogeneous graph with node and edge fields, in COO, CSR or CSC."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dglrun.formats.dgl.arrays import (
    ArrayFile,
    ArraySpec,
    Cursor,
    FormatError,
    Segment,
    StoredArray,
    literal_array,
    named,
    scalars,
    text,
)

_FILE_MAGIC = 0xDD2E4FF046B4A13F
_HETERO_MAGIC = 0xDD589FBE35224ABF
_META_MAGIC = 0xDD3C5FFE20046ABF
_UNIT_MAGIC = 0xDD2E60F0F6B4A127
_COO_MAGIC = 0xDD61FFD305DFF127
_CSR_MAGIC = 0xDD6CD31205DFF127
_VERSION, _HETEROGRAPH = 2, 2
_PAGE = 4096
_FLAG = 1 << 32
_BITS = {"coo": 1, "csr": 2, "csc": 4}
_ALL = 7
_INT64 = np.dtype("<i8")

FORMATS = tuple(_BITS)


def parse_formats(given: str | None) -> tuple[str, ...]:
    """Read `--graph-formats`: names joined by commas; None means coo, as DGL's dispatch does.

    Raises:
        ValueError: a name is not one of coo, csr, csc.
    """
    names = [name.strip() for name in (given or "coo").split(",")]
    unknown = [name for name in names if name not in _BITS]
    if unknown:
        raise ValueError(f"graph formats: expected some of {', '.join(FORMATS)}, got {', '.join(unknown)}")
    return tuple(name for name in FORMATS if name in names)


@dataclass(frozen=True)
class GraphSpec:
    """What a graph file holds.

    Attributes:
        num_nodes: Inner and halo nodes.
        num_edges: Edges.
        formats: Some of coo, csr, csc, in any order: the file has its own.
        node_fields: Arrays of `num_nodes` rows.
        edge_fields: Arrays of `num_edges` rows.
    """

    num_nodes: int
    num_edges: int
    formats: tuple[str, ...]
    node_fields: tuple[ArraySpec, ...]
    edge_fields: tuple[ArraySpec, ...]

    def segments(self) -> list[Segment]:
        """The content in order; arrays are named `<format>/<column>`, `node/<field>`, `edge/<field>`."""
        # DGL reads them in this order, whatever the order in which they were asked for.
        relation = [self._relation(name) for name in FORMATS if name in self.formats]
        return [
            *self._preamble(),
            *(segment for part in relation for segment in part),
            scalars("Qq", 1, self.num_nodes),
            scalars("Q", 1),
            *_fields("node", self.node_fields),
            scalars("Q", 1),
            *_fields("edge", self.edge_fields),
            scalars("Q", 1) + text("_N"),
            scalars("Q", 1) + text("_E"),
            _index(),
        ]

    def _preamble(self) -> list[Segment]:
        page = scalars("QQQQ", _FILE_MAGIC, _VERSION, _HETEROGRAPH, 1).ljust(_PAGE, b"\0")
        no_labels = scalars("QQ", _PAGE + 16, 0)
        hetero = scalars("Q", _HETERO_MAGIC) + _meta_graph() + scalars("Q", 1)
        saved = sum(_BITS[name] for name in set(self.formats))
        return [page + no_labels + hetero + scalars("QQQ", _UNIT_MAGIC, saved | _FLAG, _ALL | _FLAG)]

    def _relation(self, name: str) -> list[Segment]:
        rows, edges = self.num_nodes, self.num_edges
        if name == "coo":
            none = literal_array(np.empty(0, _INT64))
            head = _meta_graph() + scalars("Qqq", _COO_MAGIC, rows, rows)
            return [head, *_columns(name, {"src": edges, "dst": edges}), none + b"\0\0"]
        head = _meta_graph() + scalars("Qqq", _CSR_MAGIC, rows, rows)
        return [head, *_columns(name, {"indptr": rows + 1, "indices": edges, "eids": edges}), b"\0"]


def graph_file(path: Path, spec: GraphSpec) -> ArrayFile:
    """Begin a file that `dgl.load_graphs` reads."""
    return ArrayFile(path, spec.segments())


@dataclass(frozen=True)
class StoredGraph:
    """Where the arrays of a graph file lie.

    Attributes:
        num_nodes: Number of nodes.
        formats: {format: {column: array}}; coo has src and dst, csr and csc have indptr, indices, eids.
        node_fields: {field: array}.
        edge_fields: {field: array}.
    """

    num_nodes: int
    formats: dict[str, dict[str, StoredArray]]
    node_fields: dict[str, StoredArray]
    edge_fields: dict[str, StoredArray]


def read_graph(path: Path) -> StoredGraph:
    """Index a file that `dgl.save_graphs` wrote with one homogeneous graph.

    Raises:
        FormatError: the file is something else, or is cut short.
    """
    with Cursor(path) as cursor:
        cursor.expect(_FILE_MAGIC, "a DGL graph file")
        version, kind, graphs = cursor.take("QQQ")
        if (version, kind, graphs) != (_VERSION, _HETEROGRAPH, 1):
            raise FormatError(f"{path}: expected one graph in version 2, got {graphs} in version {version}")
        cursor.offset = _PAGE
        (cursor.offset,) = cursor.take("Q")
        formats = _read_relation(cursor)
        ((_, num_nodes), (_,)) = (cursor.take("Qq"), cursor.take("Q"))
        node_fields = cursor.named_arrays()
        cursor.take("Q")
        return StoredGraph(num_nodes, formats, node_fields, cursor.named_arrays())


def _read_relation(cursor: Cursor) -> dict[str, dict[str, StoredArray]]:
    cursor.expect(_HETERO_MAGIC, "a heterograph")
    _skip_meta_graph(cursor)
    (relations,) = cursor.take("Q")
    if relations != 1:
        raise FormatError(f"{cursor.path}: expected a homogeneous graph, got {relations} relations")
    cursor.expect(_UNIT_MAGIC, "a relation graph")
    saved, _ = cursor.take("QQ")
    return {name: _read_format(cursor, name) for name in FORMATS if saved & _BITS[name]}


def _read_format(cursor: Cursor, name: str) -> dict[str, StoredArray]:
    _skip_meta_graph(cursor)
    if name == "coo":
        cursor.expect(_COO_MAGIC, "a COO matrix")
        cursor.take("qq")
        found = {column: cursor.array(f"coo/{column}") for column in ("src", "dst", "eids")}
        cursor.take("BB")
        return found
    cursor.expect(_CSR_MAGIC, "a CSR matrix")
    cursor.take("qq")
    found = {column: cursor.array(f"{name}/{column}") for column in ("indptr", "indices", "eids")}
    cursor.take("B")
    return found


def _skip_meta_graph(cursor: Cursor) -> None:
    cursor.expect(_META_MAGIC, "a meta graph")
    cursor.expect(_CSR_MAGIC, "the meta graph's matrix")
    cursor.take("qq")
    for column in ("indptr", "indices", "eids"):
        cursor.array(column)
    cursor.take("B")


def _meta_graph() -> bytes:
    """One node type with one relation to itself, as a CSR matrix of one row."""
    columns = (np.array([0, 1]), np.array([0]), np.array([0]))
    arrays = b"".join(literal_array(column.astype(_INT64)) for column in columns)
    return scalars("QQqq", _META_MAGIC, _CSR_MAGIC, 1, 1) + arrays + b"\0"


def _index() -> bytes:
    """The list of graph positions, as a string and its length: one graph after the empty labels."""
    positions = scalars("QQ", 1, _PAGE + 16)
    return scalars("Q", len(positions)) + positions + scalars("Q", len(positions))


def _columns(name: str, lengths: dict[str, int]) -> list[ArraySpec]:
    return [ArraySpec(f"{name}/{column}", _INT64, (length,)) for column, length in lengths.items()]


def _fields(prefix: str, specs: Sequence[ArraySpec] | Iterable[ArraySpec]) -> list[Segment]:
    return named({spec.name: ArraySpec(f"{prefix}/{spec.name}", spec.dtype, spec.shape) for spec in specs})
