"""metadata.json of the chunked graph format, both dialects (user guide 7.1.2).

The guide's older text and DGL's writer count per chunk (`num_nodes_per_chunk`), DGL's readers count per
type (`num_nodes_per_type`). Read is either or both, which then must agree; written is either or both.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from dglrun.errors import DataError
from dglrun.formats.chunked import input_file, names, read
from dglrun.formats.chunked.input_file import File
from dglrun.formats.chunked.table import CSV, FEATURE_DTYPES, FORMATS, FileSpec

FILENAME = "metadata.json"

Counts = tuple[tuple[int, ...], ...]


class Dialect(Enum):
    """Which counts a metadata.json carries; DGL's own tools between them need both."""

    PER_CHUNK = "per-chunk"
    PER_TYPE = "per-type"
    BOTH = "both"


@dataclass(frozen=True)
class ChunkedGraph:
    """What a metadata.json says, checked for itself; `check.check_counts` compares it with the files.

    Attributes:
        name: Graph name, under which DGL's servers share it.
        ntypes: Node types; the position is the node type ID.
        etypes: Edge types `src:relation:dst`; the position is the edge type ID.
        num_nodes: Nodes of each type.
        num_edges: Edges of each type.
        edges: Edge files of every edge type, two columns of type-wise node IDs.
        node_data: Feature files by node type and feature name.
        edge_data: Feature files by edge type and feature name.
        nodes_per_chunk: The per-chunk counts, one chunk for each type where the file has none.
        edges_per_chunk: The same for edges.
    """

    name: str
    ntypes: tuple[str, ...]
    etypes: tuple[str, ...]
    num_nodes: tuple[int, ...]
    num_edges: tuple[int, ...]
    edges: Mapping[str, FileSpec]
    node_data: Mapping[str, Mapping[str, FileSpec]] = field(default_factory=dict)
    edge_data: Mapping[str, Mapping[str, FileSpec]] = field(default_factory=dict)
    nodes_per_chunk: Counts = ()
    edges_per_chunk: Counts = ()

    def __post_init__(self) -> None:
        if not self.nodes_per_chunk:
            object.__setattr__(self, "nodes_per_chunk", tuple((count,) for count in self.num_nodes))
        if not self.edges_per_chunk:
            object.__setattr__(self, "edges_per_chunk", tuple((count,) for count in self.num_edges))

    @staticmethod
    def load(folder: str | File, metadata_filename: str = FILENAME) -> "ChunkedGraph":
        """Read and check `folder/metadata_filename`; the files it names must exist.

        Edge counts are taken from the edge files where the metadata has none (DGL before 2.4 wrote
        such files).

        Raises:
            DataError: the file is missing, is not JSON, lacks a key, counts in two ways that disagree,
                uses a name that DGL cannot load, or names a file that does not exist.
        """
        found = input_file.named(folder) if isinstance(folder, str) else folder
        return _Reader(input_file.absolute(found) / metadata_filename).graph()

    def node_count(self, ntype: str) -> int:
        """Number of nodes of a type."""
        return self.num_nodes[self.ntypes.index(ntype)]

    def edge_count(self, etype: str) -> int:
        """Number of edges of a type."""
        return self.num_edges[self.etypes.index(etype)]

    def ends(self, etype: str) -> tuple[int, int]:
        """Node type IDs of an edge type's sources and destinations."""
        src, _, dst = etype.split(":")
        return self.ntypes.index(src), self.ntypes.index(dst)

    def edge_tables(self) -> dict[str, tuple[FileSpec, int]]:
        """The table of every edge type by a name for people, with the rows that it must have."""
        return {f"edges of {t}": (self.edges[t], self.edge_count(t)) for t in self.etypes}

    def tables(self) -> dict[str, tuple[FileSpec, int]]:
        """Every table of the graph by a name for people, with the rows that it must have."""
        found = self.edge_tables()
        for t, features in self.node_data.items():
            found |= {f"node data {t}/{f}": (spec, self.node_count(t)) for f, spec in features.items()}
        for t, features in self.edge_data.items():
            found |= {f"edge data {t}/{f}": (spec, self.edge_count(t)) for f, spec in features.items()}
        return found


def write(
    graph: ChunkedGraph, folder: Path, filename: str = FILENAME, dialect: Dialect = Dialect.BOTH
) -> Path:
    """Write metadata.json whole or not at all; paths inside `folder` become relative.

    Args:
        graph: What to write.
        folder: Where; it must exist.
        filename: Name of the file.
        dialect: Which counts to write.

    Returns:
        The path of the file.
    """
    path = folder.absolute() / filename
    draft = path.with_name(path.name + ".partial")
    draft.write_text(json.dumps(to_json(graph, folder.absolute(), dialect), indent=1) + "\n")
    return draft.replace(path)


def to_json(graph: ChunkedGraph, folder: Path, dialect: Dialect = Dialect.BOTH) -> dict[str, Any]:
    """The metadata as the JSON object that `write` writes."""
    found: dict[str, Any] = {"graph_name": graph.name, "node_type": list(graph.ntypes)}
    if dialect is not Dialect.PER_CHUNK:
        found["num_nodes_per_type"] = list(graph.num_nodes)
    if dialect is not Dialect.PER_TYPE:
        found["num_nodes_per_chunk"] = [list(chunks) for chunks in graph.nodes_per_chunk]
    found["edge_type"] = list(graph.etypes)
    if dialect is not Dialect.PER_CHUNK:
        found["num_edges_per_type"] = list(graph.num_edges)
    if dialect is not Dialect.PER_TYPE:
        found["num_edges_per_chunk"] = [list(chunks) for chunks in graph.edges_per_chunk]
    found["edges"] = {etype: _spec_json(spec, folder) for etype, spec in graph.edges.items()}
    found["node_data"] = _data_json(graph.node_data, folder)
    found["edge_data"] = _data_json(graph.edge_data, folder)
    return found


def _data_json(data: Mapping[str, Mapping[str, FileSpec]], folder: Path) -> dict[str, Any]:
    return {
        kind: {name: _spec_json(spec, folder) for name, spec in features.items()}
        for kind, features in data.items()
    }


def _spec_json(spec: FileSpec, folder: Path) -> dict[str, Any]:
    layout = {"name": spec.format}
    if spec.format == CSV:
        layout["delimiter"] = spec.delimiter
    if spec.dtype is not None:
        layout["dtype"] = spec.dtype
    return {"format": layout, "data": [_relative(path, folder) for path in spec.paths]}


def _relative(path: File, folder: Path) -> str:
    is_inside = isinstance(path, Path) and path.is_relative_to(folder)
    return str(path.relative_to(folder)) if isinstance(path, Path) and is_inside else str(path)


class _Reader:
    """One metadata.json on its way to a ChunkedGraph; every refusal names the file and the key."""

    def __init__(self, path: File) -> None:
        self.path = path
        self.raw = self._object(_parse(path), "the file")
        input_file.list_folder(path.parent)

    def graph(self) -> ChunkedGraph:
        ntypes = self._strings("node_type")
        etypes = self._strings("edge_type")
        nodes, node_chunks = self._counts("nodes", ntypes)
        edges = self._edges(etypes)
        counts, edge_chunks = self._edge_counts(etypes, edges)
        graph = ChunkedGraph(
            self._text("graph_name"),
            ntypes,
            etypes,
            nodes,
            counts,
            edges,
            self._data("node_data", ntypes),
            self._data("edge_data", etypes),
            node_chunks,
            edge_chunks,
        )
        self._refuse_names(graph)
        return graph

    def _edge_counts(
        self, etypes: tuple[str, ...], edges: Mapping[str, FileSpec]
    ) -> tuple[tuple[int, ...], Counts]:
        if self.raw.keys() & {"num_edges_per_type", "num_edges_per_chunk"}:
            return self._counts("edges", etypes)
        chunks = tuple(read.row_counts(edges[etype]) for etype in etypes)
        return tuple(map(sum, chunks)), tuple(rows or (0,) for rows in chunks)

    def _counts(self, what: str, types: tuple[str, ...]) -> tuple[tuple[int, ...], Counts]:
        totals, chunks = self.raw.get(f"num_{what}_per_type"), self.raw.get(f"num_{what}_per_chunk")
        if totals is None and chunks is None:
            raise self._error(f"expected num_{what}_per_type or num_{what}_per_chunk, found neither")
        if chunks is None:
            per_type = self._numbers(totals, f"num_{what}_per_type", len(types))
            return per_type, tuple((count,) for count in per_type)
        per_chunk = self._chunks(chunks, f"num_{what}_per_chunk", len(types))
        sums = tuple(map(sum, per_chunk))
        if totals is not None and (got := self._numbers(totals, f"num_{what}_per_type", len(types))) != sums:
            raise self._error(
                f"num_{what}_per_chunk sums to {list(sums)} but num_{what}_per_type is {list(got)}"
            )
        return sums, per_chunk

    def _chunks(self, value: object, key: str, length: int) -> Counts:
        rows = self._list(value, key)
        if len(rows) != length:
            raise self._error(f"{key}: expected {length} lists, one for each type, got {len(rows)}")
        return tuple(self._numbers(row, f"{key}[{at}]") for at, row in enumerate(rows))

    def _numbers(self, value: object, key: str, length: int | None = None) -> tuple[int, ...]:
        found = self._list(value, key)
        if length is not None and len(found) != length:
            raise self._error(f"{key}: expected {length} numbers, one for each type, got {len(found)}")
        for number in found:
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                raise self._error(f"{key}: expected counts, got {number!r}")
        return tuple(found)

    def _edges(self, etypes: tuple[str, ...]) -> dict[str, FileSpec]:
        raw = self._object(self.raw.get("edges"), "edges")
        if set(raw) != set(etypes):
            raise self._error(f"edges: expected exactly the types {list(etypes)}, got {list(raw)}")
        return {etype: self._spec(raw[etype], f"edges/{etype}") for etype in etypes}

    def _data(self, key: str, types: tuple[str, ...]) -> dict[str, dict[str, FileSpec]]:
        raw = self._object(self.raw.get(key, {}), key)
        for kind in raw:
            if kind not in types:
                raise self._error(f"{key}: {kind!r} is none of the types {list(types)}")
        return {kind: self._features(raw[kind], f"{key}/{kind}") for kind in raw}

    def _features(self, value: object, where: str) -> dict[str, FileSpec]:
        features = self._object(value, where)
        found = {name: self._spec(raw, f"{where}/{name}") for name, raw in features.items()}
        for name, spec in found.items():
            if not spec.paths:
                raise self._error(f"{where}/{name}: expected a file, which gives the dtype, got none")
        return found

    def _spec(self, value: object, where: str) -> FileSpec:
        raw = self._object(value, where)
        layout = self._object(raw.get("format"), f"{where}/format")
        if (name := layout.get("name")) not in FORMATS:
            raise self._error(f"{where}/format: expected name {' or '.join(FORMATS)}, got {name!r}")
        paths = tuple(self._file(entry, where) for entry in self._list(raw.get("data"), f"{where}/data"))
        if (dtype := layout.get("dtype")) not in (None, *FEATURE_DTYPES):
            raise self._error(f"{where}/format: expected dtype {', '.join(FEATURE_DTYPES)}, got {dtype!r}")
        if name == CSV and dtype == "bfloat16":
            raise self._error(f"{where}/format: csv holds no bfloat16: expected name numpy or parquet")
        spec = FileSpec(name, paths, dtype=dtype)
        return replace(spec, delimiter=self._delimiter(layout, where)) if name == CSV else spec

    def _delimiter(self, layout: dict[str, Any], where: str) -> str:
        delimiter = layout.get("delimiter", " ")
        legal = isinstance(delimiter, str) and len(delimiter) == 1 and delimiter.isascii()
        if not legal or delimiter.isdigit() or delimiter in '\r\n"-.+':
            raise self._error(f"{where}/format: expected a delimiter of one character, got {delimiter!r}")
        return str(delimiter)

    def _file(self, entry: object, where: str) -> File:
        if not isinstance(entry, str) or not entry:
            raise self._error(f"{where}/data: expected paths, got {entry!r}")
        path = input_file.beside(self.path.parent, entry)
        if not input_file.exists(path):
            raise self._error(f"{where}/data: {path} does not exist or is not a file")
        return path

    def _refuse_names(self, graph: ChunkedGraph) -> None:
        if problem := names.problem(graph.name, graph.ntypes, graph.etypes, graph.node_data, graph.edge_data):
            raise self._error(problem)

    def _strings(self, key: str) -> tuple[str, ...]:
        found = self._list(self.raw.get(key), key)
        if not found or not all(isinstance(item, str) for item in found):
            raise self._error(f"{key}: expected a list of names, got {found!r}")
        return tuple(found)

    def _text(self, key: str) -> str:
        if not isinstance(value := self.raw.get(key), str) or not value:
            raise self._error(f"{key}: expected a name, got {value!r}")
        return value

    def _list(self, value: object, where: str) -> list[Any]:
        if not isinstance(value, list):
            raise self._error(f"{where}: expected a list, got {_shown(value)}")
        return value

    def _object(self, value: object, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._error(f"{where}: expected an object, got {_shown(value)}")
        return value

    def _error(self, text: str) -> DataError:
        return DataError(f"{self.path}: {text}")


def _parse(path: File) -> object:
    data = input_file.read_bytes(path)
    try:
        return json.loads(data)
    except ValueError as error:
        raise DataError(f"{path}: is not JSON: {error}") from None


def _shown(value: object) -> str:
    return "nothing" if value is None else repr(value)[:80]
