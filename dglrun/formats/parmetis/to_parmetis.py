"""A chunked graph as the text that pm_dglpart and pm_dglpart3 read.

    <stem>_stats.txt   `<nodes> <edges> <weights of a node>`
    <stem>_nodes.txt   row = homogeneous ID: `<node type> <w1> ... <wT> <type-wise ID>`, a weight for each
                       node type that has nodes: ParMETIS refuses one that is 0 everywhere
    <stem>_edges.txt   `<source> <destination> <type-wise edge ID> <edge type>`, homogeneous end points

The programs must not see self-loops or an edge twice. Both are left out here and kept, in the form of
the edges file, in `<stem>_removed_edges.txt`; the input itself stays as it is, so dispatch has them all.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv

from dglrun.arrays import Ints
from dglrun.errors import DataError
from dglrun.formats import open_files, output_folder
from dglrun.formats.chunked import read, write
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.id_map import IdMap

BLOCK_ROWS = 1 << 19
_OTHER_FILES = 64
"""Descriptors for all but the edge files."""


@dataclass(frozen=True)
class Written:
    """What was written: the edges kept, and how many self-loops and further copies were left out."""

    nodes: int
    edges: int
    self_loops: int
    duplicates: int


class _Lines:
    """A file of integer columns between single blanks; `add` takes them as int64, shape (lines,) each."""

    def __init__(self, path: Path, columns: int) -> None:
        self._names = [str(at) for at in range(columns)]
        self._file = path.open("wb")
        schema = pa.schema([(name, pa.int64()) for name in self._names])
        options = pacsv.WriteOptions(include_header=False, delimiter=" ", quoting_style="none")
        self._writer = pacsv.CSVWriter(self._file, schema, write_options=options)

    def add(self, *columns: Ints) -> None:
        if len(columns[0]):
            self._writer.write_table(pa.table([pa.array(each) for each in columns], names=self._names))

    def __enter__(self) -> "_Lines":
        return self

    def __exit__(self, *_error: object) -> None:
        self._writer.close()
        self._file.close()


def to_text(graph: ChunkedGraph, folder: Path, stem: str, by_degree: bool = False) -> Written:
    """Write the three files of the one-file form, and the removed edges.

    Args:
        graph: The graph.
        folder: Where; made if absent.
        stem: Beginning of the file names.
        by_degree: Weigh nodes by 1 + in-degree (balances edges) instead of 1.

    Raises:
        DataError: a bad edge row or an ID out of range; names file and line.
    """
    keep = _kept(graph)
    with _replacing(folder, stem) as draft:
        return _write_text(graph, draft, stem, by_degree, keep)


@contextmanager
def _replacing(folder: Path, stem: str) -> Iterator[Path]:
    """Text of an earlier run under the same stem is replaced, in either form."""
    ends = "nodes|edges|removed_edges|stats|nfiles|efiles|nodes-[0-9]+|edges-[0-9]+"
    written = re.compile(f"{re.escape(stem)}_({ends})\\.txt")

    def owned(folder: Path) -> Iterator[Path]:
        if (folder / f"{stem}_stats.txt").is_file():
            yield from (Path(path.name) for path in folder.iterdir() if written.fullmatch(path.name))

    with output_folder.replacing(folder, owned, (f"{stem}_stats.txt",)) as draft:
        yield draft


def _write_text(graph: ChunkedGraph, folder: Path, stem: str, by_degree: bool, keep: "_Kept") -> Written:
    with (
        _Lines(folder / f"{stem}_edges.txt", 4) as kept,
        _Lines(folder / f"{stem}_removed_edges.txt", 4) as removed,
    ):
        at = 0
        for columns in _edge_rows(graph):
            flags = keep.kept[at : at + len(columns[0])]
            kept.add(*(column[flags] for column in columns))
            removed.add(*(column[~flags] for column in columns))
            at += len(flags)
    _nodes(graph, folder / f"{stem}_nodes.txt", 0, sum(graph.num_nodes), _weights(graph, by_degree))
    found = Written(sum(graph.num_nodes), int(keep.kept.sum()), keep.self_loops, keep.duplicates)
    _stats(graph, folder, stem, found.edges)
    return found


def to_lists(graph: ChunkedGraph, folder: Path, stem: str, files: int, by_degree: bool = False) -> Written:
    """Write the two-list form: `<stem>_nfiles.txt` and `<stem>_efiles.txt` name `files` files each.

    A line of the first is `path start end` (homogeneous, end exclusive); edge files have two columns.
    Rank i reads file i mod ranks, in rounds: `files` must be a multiple of the number of ranks. The removed
    edges are kept as in the one-file form.

    Raises:
        DataError: a bad edge row or an ID out of range; names file and line.
    """
    keep, weights, folder = _kept(graph), _weights(graph, by_degree), folder.absolute()
    names = [(f"{stem}_nodes-{number}.txt", f"{stem}_edges-{number}.txt") for number in range(files)]
    with _replacing(folder, stem) as draft:
        node_lines = []
        for (name, _), (start, end) in zip(names, write.split(sum(graph.num_nodes), files), strict=True):
            _nodes(graph, draft / name, start, end, weights)
            node_lines.append(f"{folder / name} {start} {end}\n")
        _edge_files(graph, keep, [draft / name for _, name in names], draft / f"{stem}_removed_edges.txt")
        (draft / f"{stem}_nfiles.txt").write_text("".join(node_lines))
        (draft / f"{stem}_efiles.txt").write_text("".join(f"{folder / name}\n" for _, name in names))
        found = Written(sum(graph.num_nodes), int(keep.kept.sum()), keep.self_loops, keep.duplicates)
        _stats(graph, draft, stem, found.edges)
    return found


def _edge_files(graph: ChunkedGraph, keep: "_Kept", paths: Sequence[Path], removed_path: Path) -> None:
    """Write the kept edges in turn to the files, and those left out."""
    if len(paths) > open_files.limit() - _OTHER_FILES:
        raise DataError(
            f"{len(paths)} files: expected at most {open_files.limit() - _OTHER_FILES} (ulimit -Hn)"
        )
    with ExitStack() as stack:
        writers, at = [stack.enter_context(_Lines(path, 2)) for path in paths], 0
        removed = stack.enter_context(_Lines(removed_path, 4))
        for turn, columns in enumerate(_edge_rows(graph)):
            flags = keep.kept[at : at + len(columns[0])]
            writers[turn % len(paths)].add(*(column[flags] for column in columns[:2]))
            removed.add(*(column[~flags] for column in columns))
            at += len(flags)


def _stats(graph: ChunkedGraph, folder: Path, stem: str, edges: int) -> None:
    text = f"{sum(graph.num_nodes)} {edges} {len(weighted(graph))}\n"
    (folder / f"{stem}_stats.txt").write_text(text)


@dataclass(frozen=True)
class _Kept:
    kept: npt.NDArray[np.bool_]
    self_loops: int
    duplicates: int


def _kept(graph: ChunkedGraph) -> _Kept:
    """Which edges stay, in the order of homogeneous edge IDs: no self-loop, of equal ones the first."""
    nodes, total, at = sum(graph.num_nodes), sum(graph.num_edges), 0
    keys = np.empty(total, np.int64)
    for src, dst, _, _ in _edge_rows(graph):
        keys[at : at + len(src)] = np.where(src == dst, -1, src * nodes + dst)
        at += len(src)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    again = np.concatenate((np.zeros(min(1, total), bool), keys[1:] == keys[:-1]))
    loops = keys < 0
    kept = np.empty(total, bool)
    kept[order] = ~(again | loops)
    return _Kept(kept, int(loops.sum()), int((again & ~loops).sum()))


def _edge_rows(graph: ChunkedGraph) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
    """All edges as the four columns, in the order of homogeneous edge IDs, in blocks."""
    offsets = IdMap.of(graph.ntypes, graph.num_nodes).offsets
    for kind, etype in enumerate(graph.etypes):
        ends, at = graph.ends(etype), 0
        limits = graph.num_nodes[ends[0]], graph.num_nodes[ends[1]]
        blocks = read.edge_blocks(graph.edges[etype], 0, graph.num_edges[kind], BLOCK_ROWS, limits=limits)
        for src, dst in blocks:
            numbers = np.arange(at, at + len(src))
            yield src + offsets[ends[0]], dst + offsets[ends[1]], numbers, np.full(len(src), kind)
            at += len(src)


def _weights(graph: ChunkedGraph, by_degree: bool) -> Ints:
    """The weight of each node in the column of its type, int64, shape (nodes,)."""
    found = np.ones(sum(graph.num_nodes), np.int64)
    if by_degree:
        for _, dst, _, _ in _edge_rows(graph):
            found += np.bincount(dst, minlength=len(found))
    return found


def weighted(graph: ChunkedGraph) -> list[int]:
    """IDs of the node types that have nodes, and so a column of weights."""
    return [at for at, count in enumerate(graph.num_nodes) if count]


def _nodes(graph: ChunkedGraph, path: Path, start: int, stop: int, weights: Ints) -> None:
    """Write the rows of the homogeneous IDs start..stop."""
    ids, types = IdMap.of(graph.ntypes, graph.num_nodes), weighted(graph)
    with _Lines(path, len(types) + 2) as lines:
        for at in range(start, stop, BLOCK_ROWS):
            end = min(at + BLOCK_ROWS, stop)
            kinds, own = ids.to_typed(np.arange(at, end))
            hot: list[Any] = [np.where(kinds == kind, weights[at:end], 0) for kind in types]
            lines.add(kinds, *hot, own)
