"""Writing a chunked graph: edge and feature files from arrays or blocks, then its metadata.json."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from dglrun.arrays import BFLOAT16, Array
from dglrun.formats import output_folder
from dglrun.formats.chunked import metadata, npyfile, table
from dglrun.formats.chunked.metadata import ChunkedGraph, Dialect
from dglrun.formats.chunked.table import CSV, NUMPY, FileSpec

SUFFIX = {CSV: "csv", NUMPY: "npy", table.PARQUET: "parquet"}
BLOCK_ROWS = 1 << 20
BLOCK_VALUES = 1 << 24
BESIDE = "tables.json"
"""Names the files that are written beside the graph's own: mappings of IDs, names of categories."""
_BESIDE = re.compile(r"(mapping|categories)/[^/]+\.parquet")
_WRITTEN = re.compile(r"(edges|node_data|edge_data)/\d+-[^/]+-\d+\.(csv|npy|parquet)")
"""Names of the files that `graph` writes."""


def split(rows: int, files: int) -> list[tuple[int, int]]:
    """Cut rows into as many stretches as files, as even as they go."""
    ends = [rows * at // files for at in range(files + 1)]
    return list(pairwise(ends))


def edge_file(path: Path, layout: str, edges: Array, delimiter: str = " ") -> None:
    """Write edges, integers of shape (rows, 2), as one file.

    Args:
        path: The file.
        layout: `csv`, `numpy` or `parquet`.
        edges: Sources and destinations; may be a memory map, it is taken in blocks. The file holds int64.
        delimiter: For csv.
    """
    if layout == NUMPY:
        npyfile.write(path, np.dtype(np.int64), edges.shape, _blocks(edges))
        return
    with path.open("wb") as file:
        writer = _table_writer(file, layout, pa.schema([("src", pa.int64()), ("dst", pa.int64())]), delimiter)
        for block in _blocks(edges):
            columns = [pa.array(np.ascontiguousarray(block[:, at], np.int64)) for at in (0, 1)]
            writer.write_table(pa.table(columns, names=["src", "dst"]))
        writer.close()


def _table_writer(file: Any, layout: str, schema: Any, delimiter: str) -> Any:
    if layout == CSV:
        options = pacsv.WriteOptions(include_header=False, delimiter=delimiter, quoting_style="none")
        return pacsv.CSVWriter(file, schema, write_options=options)
    return pq.ParquetWriter(file, schema, compression="snappy")


def _blocks(rows: Array, block: int = BLOCK_ROWS) -> Iterable[Array]:
    return (np.asarray(rows[at : at + block]) for at in range(0, len(rows), block))


def feature_file(path: Path, layout: str, rows: Array) -> None:
    """Write a feature's rows, shape (rows, ...), as one numpy or parquet file; bfloat16 as uint16.

    parquet holds one column, of lists where a row has several values, and the whole shape in the schema
    metadata, by which DGL's reader and ours give back the same array. A column for each value would cost
    every reader a page of each.
    """
    rows = rows.view("<u2") if rows.dtype == BFLOAT16 else rows
    if layout == NUMPY:
        npyfile.write(path, rows.dtype, rows.shape, _blocks(rows))
        return
    kind = pa.from_numpy_dtype(rows.dtype)
    field = pa.field("vector", kind if rows.ndim == 1 else pa.list_(kind))
    schema = pa.schema([field], metadata={"shape": str(tuple(rows.shape))})
    with path.open("wb") as file, pq.ParquetWriter(file, schema, use_dictionary=False) as writer:
        for block in _blocks(rows, max(1, BLOCK_VALUES // max(1, _width(rows)))):
            writer.write_table(pa.Table.from_arrays([_vectors(block)], schema=schema))


def _vectors(block: Array) -> Any:
    """A column whose rows are the block's: values, or lists of them."""
    values = pa.array(np.ascontiguousarray(block).reshape(-1))
    if block.ndim == 1:
        return values
    return pa.ListArray.from_arrays(np.arange(len(block) + 1, dtype=np.int32) * _width(block), values)


def _width(rows: Array) -> int:
    return int(np.prod(rows.shape[1:], dtype=np.int64))


def graph(  # noqa: PLR0913 - a graph has these parts
    folder: Path,
    name: str,
    nodes: Mapping[str, int],
    edges: Mapping[str, Array],
    node_data: Mapping[str, Mapping[str, Array]] | None = None,
    edge_data: Mapping[str, Mapping[str, Array]] | None = None,
    *,
    layout: str = CSV,
    feature_layout: str = NUMPY,
    files: int = 1,
    dialect: Dialect = Dialect.BOTH,
    beside: Callable[[Path], None] | None = None,
) -> ChunkedGraph:
    """Write a graph held in arrays (or memory maps, or `StoredRows`) as a chunked graph.

    An array that is given for several features is written once.

    Args:
        folder: Where; made if absent. Files of an earlier call go when the new ones are whole.
        name: Graph name.
        nodes: Number of nodes by type, in the order of the type IDs.
        edges: Type-wise end points by edge type, integers of shape (edges, 2), in the order of the type IDs.
        node_data: Features by node type and name, shape (nodes, ...).
        edge_data: Features by edge type and name, shape (edges, ...).
        layout: Format of the edge files.
        feature_layout: Format of the feature files, numpy or parquet.
        files: Files for each table.
        dialect: Counts in metadata.json.
        beside: Writes more files into the folder that it is given, and names them in `tables.json` there.

    Returns:
        What was written.

    Raises:
        OutputError: another run is writing there, or the folder holds something else.
    """
    with output_folder.replacing(folder, _owned, (metadata.FILENAME,)) as draft:
        (draft / "edges").mkdir()
        tables = enumerate(edges.items())
        specs = {t: _edge_table(draft, at, t, rows, layout, files) for at, (t, rows) in tables}
        found = _described(name, nodes, edges, files, specs)
        node_tables = _feature_tables(draft / "node_data", node_data or {}, feature_layout, files)
        edge_tables = _feature_tables(draft / "edge_data", edge_data or {}, feature_layout, files)
        if beside is not None:
            beside(draft)
        metadata.write(replace(found, node_data=node_tables, edge_data=edge_tables), draft, dialect=dialect)
    return ChunkedGraph.load(folder)


def _owned(folder: Path) -> Iterator[Path]:
    """The files of an earlier call; metadata.json is one only if all that it names is."""
    found = output_folder.read_object(folder / metadata.FILENAME)
    if {"node_type", "edge_type", "edges"} <= found.keys():
        named = list(_data([found.get(key) for key in ("edges", "node_data", "edge_data")]))
        ours = [Path(name) for name in named if _WRITTEN.fullmatch(str(name))]
        yield from ours
        yield from _owned_beside(folder)
        if len(ours) == len(named):
            yield Path(metadata.FILENAME)


def _owned_beside(folder: Path) -> Iterator[Path]:
    """The files that `beside` wrote in an earlier call."""
    named = output_folder.read_object(folder / BESIDE).get("files")
    if isinstance(named, list):
        yield from (Path(name) for name in named if _BESIDE.fullmatch(str(name)))
        yield Path(BESIDE)


def _data(value: Any) -> Iterator[Any]:
    """The entries of all `data` lists, however deep."""
    if isinstance(value, dict) and isinstance(files := value.get("data"), list):
        yield from files
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _data(each)


def _described(
    name: str,
    nodes: Mapping[str, int],
    edges: Mapping[str, Array],
    files: int,
    specs: Mapping[str, FileSpec],
) -> ChunkedGraph:
    return ChunkedGraph(
        name,
        tuple(nodes),
        tuple(edges),
        tuple(nodes.values()),
        tuple(len(rows) for rows in edges.values()),
        specs,
        nodes_per_chunk=tuple(_chunks(count, files) for count in nodes.values()),
        edges_per_chunk=tuple(_chunks(len(rows), files) for rows in edges.values()),
    )


def _chunks(rows: int, files: int) -> tuple[int, ...]:
    return tuple(end - start for start, end in split(rows, files))


def _edge_table(folder: Path, at: int, etype: str, rows: Array, layout: str, files: int) -> FileSpec:
    """Files are named by number: relations of one name between other types must not meet."""
    relation = etype.split(":")[1]
    paths = []
    for number, (start, end) in enumerate(split(len(rows), files)):
        path = folder.absolute() / "edges" / f"{at}-{relation}-{number}.{SUFFIX[layout]}"
        edge_file(path, layout, rows[start:end])
        paths.append(path)
    return FileSpec(layout, tuple(paths))


def _feature_tables(
    folder: Path, data: Mapping[str, Mapping[str, Array]], layout: str, files: int
) -> dict[str, dict[str, FileSpec]]:
    written: dict[int, FileSpec] = {}  # by identity: a reverse relation has the features of its relation
    found: dict[str, dict[str, FileSpec]] = {}
    for at, (kind, features) in enumerate(data.items()):
        found[kind] = {}
        for name, rows in features.items():
            if id(rows) not in written:
                written[id(rows)] = _feature_table(folder, at, name, rows, layout, files)
            found[kind][name] = written[id(rows)]
    return found


def _feature_table(folder: Path, at: int, name: str, rows: Array, layout: str, files: int) -> FileSpec:
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, (start, end) in enumerate(split(len(rows), files)):
        path = folder.absolute() / f"{at}-{name}-{number}.{SUFFIX[layout]}"
        feature_file(path, layout, rows[start:end])
        paths.append(path)
    return FileSpec(layout, tuple(paths), dtype="bfloat16" if rows.dtype == BFLOAT16 else None)
