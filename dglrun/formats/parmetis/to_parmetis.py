"""A chunked graph as the text that pm_dglpart and pm_dglpart3 read.

    <stem>_stats.txt   `<nodes> <edges> <weights of a node>`
    <stem>_nodes.txt   row = homogeneous ID: `<node type> <w1> ... <wT> <type-wise ID>`, a weight for each
                       node type that has nodes: ParMETIS refuses one that is 0 everywhere
    <stem>_edges.txt   `<source> <destination> <type-wise edge ID> <edge type>`, homogeneous end points

The programs must not see self-loops or an edge twice. Both are left out here and kept, in the form of
the edges file, in `<stem>_removed_edges.txt`; the input itself stays as it is, so dispatch has them all.
"""

import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from dglrun.arrays import Ints, NDArray
from dglrun.errors import DataError
from dglrun.formats import open_files, output_folder
from dglrun.formats.chunked import read, write
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.id_map import IdMap
from dglrun.formats.parmetis import spill
from dglrun.formats.parmetis.spill import ByRange, Spill

BLOCK_ROWS = 1 << 19
BUCKET_ROWS = 1 << 21
"""Edges in which copies are looked for at a time, some 250 MB."""
RANGE = 1 << 20
"""Nodes, or edges, whose weights or flags are in memory at a time."""
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
    with _replacing(folder, stem) as draft, first_pass(graph, draft, by_degree) as found:
        _write_text(graph, draft, stem, found)
        return found.written


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


def _write_text(graph: ChunkedGraph, folder: Path, stem: str, found: "FirstPass") -> None:
    with (
        _Lines(folder / f"{stem}_edges.txt", 4) as kept,
        _Lines(folder / f"{stem}_removed_edges.txt", 4) as removed,
    ):
        for columns, flags in _flagged_rows(graph, found):
            kept.add(*(column[flags] for column in columns))
            removed.add(*(column[~flags] for column in columns))
    _nodes(graph, folder / f"{stem}_nodes.txt", 0, sum(graph.num_nodes), found.weights)
    _stats(graph, folder, stem, found.written.edges)


def to_lists(graph: ChunkedGraph, folder: Path, stem: str, files: int, by_degree: bool = False) -> Written:
    """Write the two-list form: `<stem>_nfiles.txt` and `<stem>_efiles.txt` name `files` files each.

    A line of the first is `path start end` (homogeneous, end exclusive); edge files have two columns.
    Rank i reads file i mod ranks, in rounds: `files` must be a multiple of the number of ranks. The removed
    edges are kept as in the one-file form.

    Raises:
        DataError: a bad edge row or an ID out of range; names file and line.
    """
    folder = folder.absolute()
    names = [(f"{stem}_nodes-{number}.txt", f"{stem}_edges-{number}.txt") for number in range(files)]
    with _replacing(folder, stem) as draft, first_pass(graph, draft, by_degree) as found:
        node_lines = []
        for (name, _), (start, end) in zip(names, write.split(sum(graph.num_nodes), files), strict=True):
            _nodes(graph, draft / name, start, end, found.weights)
            node_lines.append(f"{folder / name} {start} {end}\n")
        _edge_files(graph, found, [draft / name for _, name in names], draft / f"{stem}_removed_edges.txt")
        (draft / f"{stem}_nfiles.txt").write_text("".join(node_lines))
        (draft / f"{stem}_efiles.txt").write_text("".join(f"{folder / name}\n" for _, name in names))
        _stats(graph, draft, stem, found.written.edges)
        return found.written


def _edge_files(graph: ChunkedGraph, found: "FirstPass", paths: Sequence[Path], removed_path: Path) -> None:
    """Write the kept edges in turn to the files, and those left out."""
    if len(paths) > open_files.limit() - _OTHER_FILES:
        raise DataError(
            f"{len(paths)} files: expected at most {open_files.limit() - _OTHER_FILES} (ulimit -Hn)"
        )
    with ExitStack() as stack:
        writers = [stack.enter_context(_Lines(path, 2)) for path in paths]
        removed = stack.enter_context(_Lines(removed_path, 4))
        for turn, (columns, flags) in enumerate(_flagged_rows(graph, found)):
            writers[turn % len(paths)].add(*(column[flags] for column in columns[:2]))
            removed.add(*(column[~flags] for column in columns))


def _stats(graph: ChunkedGraph, folder: Path, stem: str, edges: int) -> None:
    text = f"{sum(graph.num_nodes)} {edges} {len(weighted(graph))}\n"
    (folder / f"{stem}_stats.txt").write_text(text)


@dataclass(frozen=True)
class FirstPass:
    """What is known of the edges only when all have been read.

    Attributes:
        written: The counts.
        again: Which rows are further copies of an edge, bool by homogeneous edge ID.
        weights: The weight of each node in the column of its type, int64 by homogeneous ID.
    """

    written: Written
    again: ByRange
    weights: ByRange


@contextmanager
def first_pass(graph: ChunkedGraph, folder: Path, by_degree: bool) -> Iterator[FirstPass]:
    """Read all edges once, into files that go at the end; memory does not grow with the graph.

    Args:
        graph: The graph.
        folder: Where the files lie meanwhile: 24 bytes for each edge, 8 more by degree.
        by_degree: Weigh nodes by 1 + in-degree instead of 1.

    Raises:
        DataError: a bad edge row or an ID out of range; names file and line.
    """
    nodes, total, loops, copies = sum(graph.num_nodes), sum(graph.num_edges), 0, 0
    of_nodes, of_rows = spill.room(nodes, RANGE, 3), spill.room(total, RANGE, 3)
    buckets = max(1, -(-total // spill.room(total, BUCKET_ROWS, 3)))
    with tempfile.TemporaryDirectory(prefix="spill-", dir=folder) as name:
        work = Path(name)
        with Spill(work / "pairs", 3) as pairs, Spill(work / "again", 1) as again:
            with Spill(work / "targets", 1) as targets:
                for start, (src, dst, _, _) in _numbered_rows(graph):
                    loops += _spill_pairs(pairs, buckets, start, src, dst)
                    if by_degree:
                        targets.add(dst // of_nodes, dst[:, None])
            for bucket in range(buckets):
                for rows in _copies(pairs.blocks(bucket, BUCKET_ROWS)):
                    again.add(rows // of_rows, rows[:, None])
                    copies += len(rows)
                pairs.drop(bucket)
        yield FirstPass(
            Written(nodes, total - loops - copies, loops, copies),
            ByRange(of_rows, lambda at: _tally(again, at, of_rows).astype(bool)),
            ByRange(of_nodes, lambda at: 1 + _tally(targets, at, of_nodes)),
        )


def _spill_pairs(pairs: Spill, buckets: int, start: int, src: Ints, dst: Ints) -> int:
    """Add (edge, source, destination) by a hash of the ends; returns how many self-loops were left out."""
    others = src != dst
    rows = np.column_stack([np.arange(start, start + len(src)), src, dst])[others]
    pairs.add(_mixed(rows[:, 1], rows[:, 2]) % buckets, rows)
    return len(src) - len(rows)


def _mixed(src: Ints, dst: Ints) -> Ints:
    """A number from 0 on for each pair, equal for equal ones; hubs and adjacent IDs are scattered."""
    mixed = src.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) ^ dst.astype(np.uint64)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return (mixed >> np.uint64(33)).astype(np.int64)


def _copies(blocks: Iterable[Ints]) -> Iterator[Ints]:
    """Numbers of the rows (number, source, destination) whose pair came before: int64, shape (copies,)."""
    seen = np.empty((0, 2), np.int64)
    for rows in blocks:
        pairs = np.concatenate([seen, rows[:, 1:]])
        order = np.lexsort((pairs[:, 1], pairs[:, 0]))  # stable: of equal ones the first stays first
        pairs = pairs[order]
        again = np.zeros(len(pairs), bool)
        again[1:] = (pairs[1:] == pairs[:-1]).all(axis=1)
        yield rows[order[again] - len(seen), 0]
        seen = pairs[~again]


def _tally(spilled: Spill, number: int, size: int) -> Ints:
    """How often each number of a range is in the first column: int64, shape (size,)."""
    found = np.zeros(size, np.int64)
    for rows in spilled.blocks(number, size):
        found += np.bincount(rows[:, 0] - number * size, minlength=size)
    return found


def _numbered_rows(graph: ChunkedGraph) -> Iterator[tuple[int, tuple[Ints, Ints, Ints, Ints]]]:
    """The blocks of `_edge_rows`, each with the homogeneous ID of its first edge."""
    at = 0
    for columns in _edge_rows(graph):
        yield at, columns
        at += len(columns[0])


def _flagged_rows(
    graph: ChunkedGraph, found: FirstPass
) -> Iterator[tuple[tuple[Ints, Ints, Ints, Ints], NDArray[np.bool_]]]:
    """The blocks of `_edge_rows`, each with which edges stay: no self-loop, of equal ones the first."""
    for start, columns in _numbered_rows(graph):
        flags = columns[0] != columns[1]
        yield columns, flags & ~found.again.between(start, start + len(flags))


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


def weighted(graph: ChunkedGraph) -> list[int]:
    """IDs of the node types that have nodes, and so a column of weights."""
    return [at for at, count in enumerate(graph.num_nodes) if count]


def _nodes(graph: ChunkedGraph, path: Path, start: int, stop: int, weights: ByRange) -> None:
    """Write the rows of the homogeneous IDs start..stop."""
    ids, types = IdMap.of(graph.ntypes, graph.num_nodes), weighted(graph)
    with _Lines(path, len(types) + 2) as lines:
        for at in range(start, stop, BLOCK_ROWS):
            end = min(at + BLOCK_ROWS, stop)
            kinds, own = ids.to_typed(np.arange(at, end))
            loads = weights.between(at, end)
            hot: list[Any] = [np.where(kinds == kind, loads, 0) for kind in types]
            lines.add(kinds, *hot, own)
