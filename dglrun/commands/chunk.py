"""`dglrun chunk`: make a chunked graph of a DGLGraph file, or of numpy or parquet tables.

With --config it is made of csv and Parquet tables with IDs of any kind: see chunk_tables.

Otherwise a table is given as `TYPE=FILE`: edges `src:rel:dst=FILE` (numpy: integers of shape (edges, 2), or
(2, edges) as many data sets keep them; parquet: two columns), features `type/name=FILE`, node counts
`type=NUMBER` where features do not tell them.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from dglrun.arrays import BFLOAT16, Array, dtype_name
from dglrun.commands import chunk_tables, elapsed, flags
from dglrun.commands.arguments import UsageError, whole
from dglrun.contract import exitcodes
from dglrun.errors import DataError
from dglrun.formats import writable
from dglrun.formats.chunked import check, names, read, write
from dglrun.formats.chunked.metadata import ChunkedGraph, Dialect
from dglrun.formats.chunked.stored_rows import InOrder, StoredRows
from dglrun.formats.chunked.table import CSV, FEATURE_DTYPES, FORMATS, NUMPY, PARQUET, FileSpec

AUTO, ROWS, COLUMNS = "auto", "rows", "columns"
Tables = dict[str, dict[str, Array]]


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of `chunk`."""
    flags.add_out_dir(parser, "the chunked graph")
    parser.add_argument("--name", help="graph name; needed without --config")
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="YAML that describes csv and Parquet tables with IDs of any kind (docs/howto/tables.md)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="with --config: print what would be read, mapped and written"
    )
    parser.add_argument("--dgl-graph", type=Path, metavar="FILE", help="file of dgl.save_graphs (needs dgl)")
    for flag, what, text in (
        ("nodes", "TYPE=NUMBER", "node count of a type"),
        ("edges", "S:R:D=FILE", "edges of a type: .npy, .parquet or .csv"),
        ("node-data", "TYPE/NAME=FILE", "a node feature"),
        ("edge-data", "TYPE/NAME=FILE", "an edge feature"),
    ):
        parser.add_argument(
            f"--{flag}", action="append", default=[], metavar=what, help=f"{text}; repeatable"
        )
    parser.add_argument(
        "--edge-layout",
        choices=(AUTO, ROWS, COLUMNS),
        default=AUTO,
        help="numpy edges: rows (edges, 2), columns (2, edges), or auto by shape; needed for (2, 2) "
        "(default: auto)",
    )
    _add_output_flags(parser)


def _add_output_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--files", type=whole(1), default=1, metavar="N", help="files for each table (default: 1)"
    )
    parser.add_argument(
        "--edge-format",
        choices=FORMATS,
        help="format of the edge files (default: csv; with --config parquet)",
    )
    parser.add_argument(
        "--feature-format",
        choices=(NUMPY, PARQUET),
        default=NUMPY,
        help="format of the feature files (default: numpy)",
    )
    parser.add_argument(
        "--dialect",
        choices=[each.value for each in Dialect],
        default=Dialect.BOTH.value,
        help="counts in metadata.json: for each chunk, each type, or both (default: both)",
    )


def run(args: argparse.Namespace) -> int:
    """Make the chunked graph; returns the exit code.

    Raises:
        UsageError: contradicting flags.
        DataError: bad input, or an output that cannot be written.
        BackendMissingError: --config without DuckDB.
        ModuleNotFoundError: --dgl-graph without dgl.
    """
    _refuse_flags(args)
    if args.config is not None:
        return chunk_tables.run(args)
    writable.require_folder(args.out_dir)
    try:
        with elapsed.showing(f"dglrun chunk: {args.name}"):
            graph = _written(args)
    except ValueError as error:
        raise error if isinstance(error, DataError) else DataError(str(error)) from error
    total = f"{sum(graph.num_nodes)} nodes, {sum(graph.num_edges)} edges"
    files = "1 file" if args.files == 1 else f"{args.files} files"
    print(f"dglrun chunk: {args.out_dir}: {total}, {files} per table")
    return exitcodes.OK


def _refuse_flags(args: argparse.Namespace) -> None:
    """With --config the tables stand in it."""
    if args.config is None:
        if args.name is None:
            raise UsageError("--name: expected a graph name")
        if args.dry_run:
            raise UsageError("--dry-run: expected --config with it")
        return
    flags = ("name", "dgl_graph", "nodes", "edges", "node_data", "edge_data")
    if given := [each for each in flags if getattr(args, each)]:
        raise UsageError(f"--{given[0].replace('_', '-')}: expected it in the file of --config")
    if args.edge_layout != AUTO:
        raise UsageError("--edge-layout: is for numpy edges, without --config")


def _written(args: argparse.Namespace) -> ChunkedGraph:
    nodes, edges, node_data, edge_data = _input(args)
    _refuse(args.name, nodes, edges, node_data, edge_data, dict(map(_pair, args.edges or ())))
    graph = write.graph(
        args.out_dir, args.name, nodes, edges, node_data, edge_data,
        layout=args.edge_format or CSV, feature_layout=args.feature_format, files=args.files,
        dialect=Dialect(args.dialect),
    )  # fmt: skip
    check.check_counts(graph)
    return graph


def _input(args: argparse.Namespace) -> tuple[dict[str, int], dict[str, Array], Tables, Tables]:
    if args.dgl_graph is not None:
        return _from_dgl(args.dgl_graph)
    if not args.edges:
        raise DataError("expected --dgl-graph FILE or at least one --edges S:R:D=FILE, got neither")
    edges = {etype: _edges(Path(path), args.edge_layout) for etype, path in map(_pair, args.edges)}
    node_data, edge_data = _features(args.node_data), _features(args.edge_data)
    return _node_counts(args.nodes, edges, node_data), edges, node_data, edge_data


def _pair(text: str) -> tuple[str, str]:
    key, mark, value = text.partition("=")
    if not (key and mark and value):
        raise DataError(f"expected NAME=VALUE, got {text!r}")
    return key, value


def _layout(path: Path) -> str:
    suffix = path.suffix.removeprefix(".")
    if suffix not in ("npy", "parquet", "csv"):
        raise DataError(f"{path}: expected a name that ends in .npy, .parquet or .csv")
    return NUMPY if suffix == "npy" else suffix


def _is_by_columns(path: Path, shape: tuple[int, ...], layout: str) -> bool:
    """Whether a numpy array holds the sources in one row and the destinations in the other.

    Raises:
        DataError: two edges, of which nothing says how they lie.
    """
    if layout == AUTO and shape == (2, 2):
        raise DataError(
            f"{path}: an array of shape (2, 2) may hold two edges either way: expected --edge-layout rows "
            "(each row is an edge) or columns (a row of sources, a row of destinations)"
        )
    return layout == COLUMNS or (layout == AUTO and len(shape) == 2 and shape[0] == 2)


def _edges(path: Path, layout: str) -> Array:
    """Edges as (edges, 2); numpy files are mapped, not read."""
    spec = FileSpec(_layout(path), (path,))
    if spec.format == NUMPY:
        read.row_counts(spec)
        found: Array = np.load(path, mmap_mode="r")
        return found.T if _is_by_columns(path, found.shape, layout) else found
    rows = sum(read.row_counts(spec))

    def blocks(start: int) -> Iterator[Array]:
        return (np.stack(pair, axis=1) for pair in read.edge_blocks(spec, start, rows))

    return _stored(blocks, rows, (2,), np.dtype(np.int64))


def _stored(
    blocks: Callable[[int], Iterator[Array]], rows: int, tail: tuple[int, ...], dtype: np.dtype[Any]
) -> Array:
    """What the writer takes for an array: it slices it, and makes arrays of the slices."""
    if not rows:
        return np.zeros((0, *tail), dtype)
    found: Any = StoredRows(InOrder(blocks), 0, rows, tail, dtype)
    return cast(Array, found)


def _features(given: Sequence[str]) -> Tables:
    found: Tables = {}
    for key, value in map(_pair, given):
        kind, mark, name = key.rpartition("/")
        if not mark:
            raise DataError(f"expected TYPE/NAME=FILE, got {key}={value}")
        found.setdefault(kind, {})[name] = _rows(Path(value))
    return found


def _rows(path: Path) -> Array:
    spec = FileSpec(_layout(path), (path,))
    info = read.feature_info(spec)
    if spec.format == NUMPY:
        mapped: Array = np.load(path, mmap_mode="r")
        return mapped
    rows = sum(read.row_counts(spec))
    block_rows = max(1, write.BLOCK_VALUES // max(1, math.prod(info.tail)))

    def blocks(start: int) -> Iterator[Array]:
        return read.feature_blocks(spec, start, rows, min(block_rows, read.BLOCK_ROWS))

    return _stored(blocks, rows, info.tail, info.dtype)


def _node_counts(given: Sequence[str], edges: Mapping[str, Array], node_data: Tables) -> dict[str, int]:
    """Node types in the order given, then as the edge types name them; counts by flag or by features."""
    counts = {name: _count(name, value) for name, value in map(_pair, given)}
    for etype in edges:
        for ntype in etype.split(":")[::2]:
            if ntype not in counts:
                rows = [len(feature) for feature in node_data.get(ntype, {}).values()]
                if not rows:
                    raise DataError(f"node count of {ntype!r} unknown; pass --nodes {ntype}=NUMBER")
                counts[ntype] = rows[0]
    return counts


def _count(ntype: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise DataError(f"--nodes {ntype}: expected a whole number, got {text!r}")
    return int(text)


def _from_dgl(path: Path) -> tuple[dict[str, int], dict[str, Array], Tables, Tables]:
    """The first graph of a file of dgl.save_graphs; type IDs are DGL's."""
    import dgl  # noqa: PLC0415 - heavy, and only for this input

    if not path.is_file():
        raise DataError(f"{path}: does not exist")
    try:
        graphs, _ = dgl.load_graphs(str(path), [0])
    except Exception as error:
        raise DataError(f"{path}: DGL cannot load it: {error}") from None
    graph = graphs[0]
    nodes = {ntype: int(graph.num_nodes(ntype)) for ntype in graph.ntypes}
    edges, edge_data = {}, {}
    for etype in graph.canonical_etypes:
        src, dst = graph.edges(etype=etype, order="eid")
        edges[":".join(etype)] = np.stack([src.numpy(), dst.numpy()], axis=1)
        edge_data[":".join(etype)] = {name: _array(data) for name, data in graph.edges[etype].data.items()}
    node_data = {
        ntype: {name: _array(data) for name, data in graph.nodes[ntype].data.items()} for ntype in nodes
    }
    return nodes, edges, node_data, edge_data


def _array(tensor: Any) -> Array:
    """A tensor as an array; bfloat16, which numpy lacks, by its bytes."""
    import torch  # noqa: PLC0415 - comes with dgl

    if tensor.dtype is torch.bfloat16:
        return np.ascontiguousarray(tensor.view(torch.int16).numpy()).view(BFLOAT16)
    found: Array = tensor.numpy()
    return found


def _refuse(
    name: str,
    nodes: Mapping[str, int],
    edges: Mapping[str, Array],
    node_data: Tables,
    edge_data: Tables,
    origins: Mapping[str, str],
) -> None:
    """Stop before anything is written: names, shapes, IDs, numbers of rows."""
    if problem := names.problem(name, tuple(nodes), tuple(edges), node_data, edge_data):
        raise DataError(problem)
    for etype, rows in edges.items():
        _refuse_edges(etype, rows, nodes, origins.get(etype, etype))
    sizes = {**nodes, **{etype: len(rows) for etype, rows in edges.items()}}
    for kind, features in (*node_data.items(), *edge_data.items()):
        if kind not in sizes:
            raise DataError(f"{kind}: has data, but is none of the types {', '.join(sizes)}")
        for feature, values in features.items():
            if len(values) != sizes[kind]:
                raise DataError(f"{kind}/{feature}: expected {sizes[kind]} rows, got {len(values)}")
            if dtype_name(values.dtype) not in FEATURE_DTYPES:
                raise DataError(f"{kind}/{feature}: DGL cannot hold {values.dtype}")


def _refuse_edges(etype: str, rows: Array, nodes: Mapping[str, int], origin: str) -> None:
    if rows.ndim != 2 or rows.shape[1] != 2 or rows.dtype.kind not in "iu":
        raise DataError(f"{origin}: expected integers of shape (edges, 2), got {rows.dtype} {rows.shape}")
    for at in range(0, len(rows), read.BLOCK_ROWS):
        block = np.asarray(rows[at : at + read.BLOCK_ROWS])
        for column, ntype in enumerate(etype.split(":")[::2]):
            wrong = np.flatnonzero((block[:, column] < 0) | (block[:, column] >= nodes[ntype]))
            if len(wrong):
                row = at + int(wrong[0])
                where = f"line {row + 1}" if origin.endswith(".csv") else f"row {row}"
                expected = f"expected IDs of {ntype} from 0 to {nodes[ntype] - 1}"
                raise DataError(f"{origin}: {where}: {expected}, got {block[wrong[0], column]}")
