"""The distributed verification beyond 32 bits: files with holes, and wide original IDs."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dglrun.arrays import Ints
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.chunked.table import FileSpec
from dglrun.formats.dgl.folder import PartitionFolder, load_folder
from dglrun.formats.dgl.tensors import read_tensors
from dglrun.mpi import checksum
from dglrun.mpi.checksum import Difference
from dglrun.mpi.collectives import Ranks, SingleRank
from dglrun.mpi.shared_index import index_tables
from dglrun.verify.keys import OriginalIds
from dglrun.verify.source import KnownSums, SourceChecks
from tests.support.heterographs import WITH_NODES, Toy, a_toy
from tests.support.thread_ranks import on_ranks
from tests.unit.dglrun.dispatch.test_wide_ids import WIDE, with_holes
from tests.unit.dglrun.verify.test_distributed import SIZES
from tests.unit.dglrun.verify.test_verify import a_partition, poke

SOME = settings(max_examples=6)
SHIFT = (1 << 32) + (1 << 31)
"""Added to the IDs of a small graph, whose table of nodes would not fit here if it were whole."""


class Last:
    """The last of so many ranks that its share of a wide table is small."""

    size = 1 << 14
    rank = size - 1


def shifted(toy: Toy) -> Toy:
    """The same edges between nodes with wide IDs, without features of nodes."""
    nodes = {name: number + SHIFT for name, number in toy.nodes.items()}
    edges = {name: pairs + SHIFT for name, pairs in toy.edges.items()}
    return replace(toy, nodes=nodes, edges=edges, node_data={})


def shift_nodes(folder: PartitionFolder) -> None:
    """Write wide original IDs of nodes into every part."""
    for path in folder.path.parent.glob("part*/orig_nids.dgl"):
        for stored in read_tensors(path).values():
            for row, node in enumerate(stored.rows(0, len(stored)).tolist()):
                poke(stored, row, node + SHIFT)


def edge_problems(json_path: Path, source: Path, size: int) -> list[str]:
    """What `size` ranks find in the edges of all types."""

    def check(ranks: Ranks) -> list[str]:
        folder, graph = load_folder(json_path), ChunkedGraph.load(source)
        checks = SourceChecks(folder, graph, OriginalIds(folder, graph, ranks), None, ranks)
        return [text for at in range(len(folder.etypes)) for text in checks._edges(at)]

    return on_ranks(size, check)[0]


@SOME
@given(toy=WITH_NODES, size=SIZES, formats=st.sampled_from(["coo", "csc"]), data=st.data())
def test_ends_beyond_32_bits_are_compared_whole(
    toy: Toy, size: int, formats: str, data: st.DataObject
) -> None:
    """Halo nodes are asked for under wide IDs; an end that differs by 2^32 only is another node."""
    with TemporaryDirectory() as name:
        json_path = a_partition(Path(name), toy, formats=formats)
        shift_nodes(load_folder(json_path))
        wide = shifted(toy)
        source = wide.write(Path(name) / "wide", chunks=2)

        assert edge_problems(json_path, source, size) == []

        tables = [pairs for pairs in wide.edges.values() if len(pairs)]
        assume(tables)
        pairs = data.draw(st.sampled_from(tables))
        row, end = data.draw(st.integers(0, len(pairs) - 1)), data.draw(st.integers(0, 1))
        pairs[row, end] -= 1 << 32
        wide.write(source, chunks=2)
        assert edge_problems(json_path, source, size) != []


@SOME
@given(
    keys=st.lists(st.integers(0, (1 << 34) - 1), min_size=1, max_size=20, unique=True),
    size=SIZES,
    data=st.data(),
)
def test_rows_beyond_32_bits_that_differ_are_named(keys: list[int], size: int, data: st.DataObject) -> None:
    """By their numbers, whatever rank has them; in an order of their own on either side."""
    source, parts = np.array(sorted(keys)), np.array(keys)
    at = data.draw(st.integers(0, len(keys) - 1))

    def compared(ranks: Ranks, changed: Ints) -> Difference | None:
        mine, theirs = source[ranks.rank :: ranks.size], parts[ranks.rank :: ranks.size]
        one = [(mine, checksum.hash_columns(mine))]
        two = [(theirs, checksum.hash_columns(theirs + (1 << 32) * np.isin(theirs, changed)))]
        return checksum.compare(ranks, lambda: one, lambda: two, 1 << 34)

    assert on_ranks(size, lambda ranks: compared(ranks, parts[:0])) == [None] * size
    for found in on_ranks(size, lambda ranks: compared(ranks, parts[at : at + 1])):
        assert found == Difference([], [], [keys[at]], [at % size])


def test_the_last_rank_names_rows_beyond_32_bits_of_files_with_holes(tmp_path: Path) -> None:
    """Edges and a feature: the numbers of the rows and what stands in them."""
    json_path = a_partition(tmp_path, a_toy(parts=2))
    folder, graph = load_folder(json_path), ChunkedGraph.load(tmp_path / "in")
    etype = folder.etypes[0]
    pairs, values = np.array([[2, 1], [0, 1], [1, 0]]), np.array([7, 8, 9])
    edges = with_holes(tmp_path / "edges.npy", "u1", (WIDE, 2), pairs)
    feature = with_holes(tmp_path / "feat.npy", "u1", (WIDE,), values)
    counts = tuple(WIDE if name == etype else graph.edge_count(name) for name in graph.etypes)
    wide = replace(graph, num_edges=counts, edges={**graph.edges, etype: edges})
    checks = checks_of_last(folder, wide, {"edges": (edges, WIDE), "feat": (feature, WIDE)})

    rows = [np.concatenate(column)[-4:].tolist() for column in zip(*checks._source_edges(0), strict=True)]
    found = [np.concatenate(column) for column in zip(*checks._source_rows("edge", 0, feature), strict=True)]

    last = np.arange(WIDE - 4, WIDE)
    assert rows == [last.tolist(), [0, 2, 0, 1], [0, 1, 1, 0]]
    assert found[0][-4:].tolist() == last.tolist()
    expected = checksum.hash_rows(last, np.array([0, *values], np.uint8))
    assert found[1][-4:].tolist() == expected.tolist()


def checks_of_last(
    folder: PartitionFolder, graph: ChunkedGraph, tables: dict[str, tuple[FileSpec, int]]
) -> SourceChecks:
    """The comparison as the last of many ranks sees it, with the index of these tables."""
    ranks: Any = Last()
    keys = OriginalIds(folder, graph, SingleRank())
    checks = SourceChecks(folder, graph, keys, None, ranks, KnownSums({"none": np.zeros((2, 64), np.uint64)}))
    checks.index = index_tables(SingleRank(), tables)
    return checks
