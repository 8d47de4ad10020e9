"""`dglrun chunk --config FILE`: a chunked graph of csv and Parquet tables with IDs of any kind."""

import argparse
from collections.abc import Iterator
from contextlib import AbstractContextManager

from dglrun.commands import elapsed
from dglrun.contract import exitcodes
from dglrun.formats import writable
from dglrun.formats.chunked import check
from dglrun.formats.chunked.metadata import ChunkedGraph, Dialect
from dglrun.formats.chunked.table import PARQUET
from dglrun.formats.tables import config, ids
from dglrun.formats.tables.build import MAPPING, Layout, Tables, build
from dglrun.formats.tables.config import SPLITS, Masks, TableConfig, reverse_of
from dglrun.formats.tables.sources import TableFiles

_SHOWN = 3
"""Files of a table that a dry run names."""


def run(args: argparse.Namespace) -> int:
    """Make the chunked graph, or print the plan; returns the exit code.

    Raises:
        DataError: bad input, or an output that cannot be written.
        BackendMissingError: DuckDB is not installed.
        BackendFailedError: DuckDB failed.
    """
    tables = Tables.find(config.load(args.config))
    layout = Layout(args.edge_format or PARQUET, args.feature_format, args.files, Dialect(args.dialect))
    if args.dry_run:
        for line in plan(tables, layout):
            print(line)
        return exitcodes.OK
    ids.load()
    writable.require_folder(args.out_dir)

    def stage(what: str) -> AbstractContextManager[None]:
        return elapsed.showing(f"dglrun chunk: {tables.config.name}: {what}")

    graph = build(tables, args.out_dir, layout, stage)
    check.check_counts(graph)
    for line in _result(graph):
        print(f"dglrun chunk: {line}")
    nodes, edges = sum(graph.num_nodes), sum(graph.num_edges)
    print(f"dglrun chunk: {args.out_dir}: {nodes} nodes, {edges} edges; IDs in {args.out_dir / MAPPING}")
    return exitcodes.OK


def _result(graph: ChunkedGraph) -> Iterator[str]:
    for name, count in zip((*graph.ntypes, *graph.etypes), (*graph.num_nodes, *graph.num_edges), strict=True):
        data = {**graph.node_data, **graph.edge_data}.get(name, {})
        yield f"{name}: {count}{', ' if data else ''}{', '.join(data)}"


def plan(tables: Tables, layout: Layout) -> Iterator[str]:
    """What a run reads, maps and writes, line by line."""
    wanted = tables.config
    yield f"graph {wanted.name}"
    for ntype, nodes in wanted.nodes.items():
        if ntype not in tables.nodes:
            yield f"nodes {ntype}: the {nodes.ids} IDs that edges name, sorted"
            continue
        yield f"nodes {ntype}: {_files(tables.nodes[ntype])}"
        rest = "an error" if nodes.unlisted == "error" else "added behind them, sorted"
        yield f"  {nodes.ids} IDs of {nodes.id!r} in the order of the rows; IDs in edges only: {rest}"
        yield from _columns(nodes)
    for etype, edges in wanted.edges.items():
        yield f"edges {etype}: {_files(tables.edges[etype])}"
        yield f"  from {edges.src!r} to {edges.dst!r}"
        yield from _columns(edges)
        if edges.reverse:
            yield f"  and {reverse_of(etype)}, with the same features, without masks"
    yield f"memory: {wanted.memory_mib} MiB for joins, beyond that on disk in --out-dir"
    files = "1 file" if layout.files == 1 else f"{layout.files} files"
    yield f"written: edges as {layout.edges}, features as {layout.features}, {files} per table"
    yield "  " + ", ".join(f"{MAPPING}/{ntype}.parquet" for ntype in wanted.nodes)


def _files(source: TableFiles) -> str:
    names = [str(path) for path in source.paths[:_SHOWN]]
    more = [f"{len(source.paths) - _SHOWN} more"] if len(source.paths) > _SHOWN else []
    return f"{source.format}: {', '.join((*names, *more))}"


def _columns(table: TableConfig) -> Iterator[str]:
    for name, feature in table.features.items():
        what = "category" if feature.category else "vectors or values" if feature.column else "matrix"
        missing = "" if feature.missing is None else f", {feature.missing} where there is none"
        yield f"  {name}: {what} of {', '.join(map(repr, feature.names))}, {feature.kind}{missing}"
    if table.masks is not None:
        yield f"  {', '.join(f'{split}_mask' for split in SPLITS)}: {_masks(table.masks)}"


def _masks(masks: Masks) -> str:
    if masks.column:
        return f"by column {masks.column!r}: {', '.join(masks.words)}"
    return f"by ratio {', '.join(f'{ratio:g}' for ratio in masks.ratios)}"
