"""Numbers of nodes and edges beyond 32 bits: files with holes, and IDs as they are in graphs of that size."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dglrun.arrays import Ints, share
from dglrun.dispatch import halo, node_map
from dglrun.dispatch.edges import EdgeRun
from dglrun.dispatch.node_map import Nodes, NodeShare, ShardedNodeMap
from dglrun.dispatch.write_partition import PartGraph
from dglrun.formats.assignment_shares import read_share
from dglrun.formats.chunked import read, write
from dglrun.formats.chunked.table import FileSpec
from dglrun.formats.dgl.arrays import ArraySpec, FormatError
from dglrun.formats.dgl.graphs import read_graph
from dglrun.formats.dgl.partition_book import Ranges
from dglrun.formats.dgl.tensors import read_tensors, tensor_file
from dglrun.mpi.shared_index import index_tables
from dglrun.partitioning import random_partition
from dglrun.partitioning.distributed import edge_cut
from dglrun.partitioning.distributed.vertex_distribution import CyclicDistribution
from dglrun.partitioning.partition_quality import PartitionQuality
from tests.support.thread_ranks import ThreadRanks, on_ranks

WIDE = (1 << 32) + 1000


def with_holes(path: Path, dtype: str, shape: tuple[int, ...], last: Ints) -> FileSpec:
    """A numpy file of zeros that takes no room, but for its last rows."""
    file = np.lib.format.open_memmap(path, "w+", np.dtype(dtype), shape)  # type: ignore[no-untyped-call]
    file[-len(last) :] = last
    file.flush()
    assert path.stat().st_blocks * 512 < 1 << 20 < path.stat().st_size
    return FileSpec("numpy", (path,))


def test_rows_beyond_32_bits_are_read_by_the_ranks_that_share_the_files(tmp_path: Path) -> None:
    """Edges and features: the index of both, and the last rows of the last rank's share."""
    pairs, rows = np.arange(20).reshape(10, 2), np.arange(100, 110)
    edges = with_holes(tmp_path / "edges.npy", "u1", (WIDE, 2), pairs)
    features = with_holes(tmp_path / "feat.npy", "u1", (WIDE,), rows)

    def last(ranks: ThreadRanks) -> list[list[int]]:
        index = index_tables(ranks, {"edges": (edges, WIDE), "feat": (features, WIDE)})
        start, stop = share(WIDE, ranks.size - 1, ranks.size)
        assert start > 1 << 30
        found = read.edge_blocks(edges, stop - 10, stop, 4, limits=(20, 20), files=index[edges])
        ends = np.concatenate([np.stack(block, axis=1) for block in found])
        blocks = read.feature_blocks(features, stop - 10, stop, 3, files=index[features])
        return [ends.ravel().tolist(), np.concatenate(list(blocks)).tolist()]

    assert on_ranks(3, last) == [[pairs.ravel().tolist(), rows.tolist()]] * 3


def test_lines_beyond_32_bits_of_an_assignment_are_read(tmp_path: Path) -> None:
    """The last rank's share begins 4 GiB behind the first line."""
    lines = np.random.default_rng(0).integers(0, 12, 1 << 18)
    path = tmp_path / "n.txt"
    with path.open("wb") as file:
        file.seek(1 << 32)
        file.write(b"\n" + b"".join(b"%d\n" % part for part in lines.tolist()))
    ranks = path.stat().st_size >> 18

    found = read_share(path, 12, ranks - 1, ranks)

    assert 1 << 16 < len(found) < len(lines)
    assert (found == lines[-len(found) :]).all()


def test_random_parts_beyond_32_bits_are_those_of_any_share() -> None:
    """Each rank finds the parts of its own nodes without those before them."""
    whole = random_partition.assign(WIDE, 5, (1, 0), WIDE - 1000, WIDE)
    halves = [random_partition.assign(WIDE, 5, (1, 0), at, at + 500) for at in (WIDE - 1000, WIDE - 500)]

    assert np.concatenate(halves).tolist() == whole.tolist()
    assert np.bincount(whole, minlength=5).min() > 100


def test_nodes_are_numbered_and_found_beyond_32_bits() -> None:
    """By the counts of the ranks before, and by the rank that has a node's stretch."""
    sent = np.array([[[1 << 31, 0], [5, 1 << 32]], [[2, 1], [1, 3]]])
    parts = np.array([0, 1, 0], np.uint8)
    shares = NodeShare((1 << 31) + 5, parts, sent[0, :, 0]), NodeShare(1 << 32, parts[:0], sent[0, :, 1])
    nodes = Nodes(Ranges(sent.sum(axis=0)), shares, sent)

    table = node_map._number(nodes, 0)

    assert table.tolist() == [1 << 31, (1 << 31) + 2 + 1 + 5, (1 << 31) + 1]
    firsts = np.array([[0], [1 << 31], [1 << 33]])
    asked = np.array([(1 << 33) + 4, 3, (1 << 31) + 9, 1 << 33])

    def found(ranks: ThreadRanks) -> list[int]:
        shard = (1 << 40) * ranks.rank + np.arange(10)
        return ShardedNodeMap([shard], firsts, ranks).find(0, asked).tolist()  # type: ignore[no-any-return]

    assert on_ranks(3, found) == [[(1 << 41) + 4, 3, (1 << 40) + 9, 1 << 41]] * 3


@pytest.mark.parametrize("formats", [("coo",), ("coo", "csr", "csc")])
def test_a_part_beyond_32_bits_is_written_with_its_halo(tmp_path: Path, formats: tuple[str, ...]) -> None:
    """Five own nodes behind 2^32 of other parts, four edges behind 2^33."""
    nodes = Ranges(np.array([[1 << 31, 1 << 31], [3, 2], [7, 7]]))
    edges = Ranges(np.array([[1 << 33], [4], [1 << 33]]))
    first = 1 << 32
    src = np.array([first + 4, 7, (1 << 31) + 1, first + 9])
    dst = np.array([first, first + 1, first + 1, first + 4])
    rows = np.array([5, 1 << 32, 1 << 33, (1 << 33) + 1])
    part = PartGraph(1, nodes, edges, [[EdgeRun(src, dst, rows)]])

    part.write(tmp_path, formats, use_graphbolt=False)
    part.write_orig_eids(tmp_path / "orig_eids.dgl", ["a:r:b"])

    graph = read_graph(tmp_path / "graph.dgl")
    ids, types = graph.node_fields["_ID"].rows(0, 8), graph.node_fields["_TYPE"].rows(0, 8)
    assert ids.tolist() == [*range(first, first + 5), 7, (1 << 31) + 1, first + 9]
    assert types.tolist() == [0, 0, 0, 1, 1, 0, 1, 0]
    assert graph.formats["coo"]["src"].rows(0, 4).tolist() == [4, 5, 6, 7]
    assert graph.formats["coo"]["dst"].rows(0, 4).tolist() == [0, 1, 1, 4]
    assert graph.edge_fields["_ID"].rows(0, 4).tolist() == [(1 << 33) + at for at in range(4)]
    assert read_tensors(tmp_path / "orig_eids.dgl")["a:r:b"].rows(0, 4).tolist() == rows.tolist()


@dataclass(frozen=True)
class Stretch:
    """A distribution of some nodes in the midst of a wide graph, as its tables of all would not fit here."""

    first: int
    nodes: CyclicDistribution

    def locate(self, ids: Ints) -> tuple[Ints, Ints]:
        return self.nodes.locate(ids - self.first)

    def ids(self, rank: int) -> Ints:
        return self.nodes.ids(rank) + self.first


@given(
    edges=st.lists(st.tuples(*[st.integers(0, 9)] * 2), min_size=1, max_size=30),
    back=st.lists(st.tuples(*[st.integers(0, 9)] * 2), max_size=30),
    size=st.integers(1, 5),
    seed=st.integers(0, 99),
)
@settings(max_examples=20)
def test_an_assignment_of_nodes_beyond_32_bits_is_scored(
    edges: list[tuple[int, int]], back: list[tuple[int, int]], size: int, seed: int
) -> None:
    """Ten nodes at the end of one type, ten at the begin of the next: like these edges in a small graph."""
    ends = np.array(edges).reshape(-1, 2), np.array(back, np.int64).reshape(-1, 2)
    wide, parts = (1 << 32) + (1 << 31), np.random.default_rng(seed).integers(0, 3, 20).astype(np.uint16)
    shift = np.array([wide - 10, 0])

    def score(count: int, pairs: Sequence[Ints], first: int) -> list[PartitionQuality]:
        named = dict(zip(("a:r:b", "b:s:a"), pairs, strict=True))
        with TemporaryDirectory() as folder:
            graph = write.graph(Path(folder), "g", {"a": count, "b": count}, named, layout="numpy", files=2)
            nodes: Any = Stretch(first, CyclicDistribution.of(20, size))
            found = on_ranks(
                size,
                lambda ranks: edge_cut.measure_by_input(
                    ranks, graph, nodes, parts[ranks.rank :: size], 3, block_rows=7
                ),
            )
        return found

    of_wide = score(wide, (ends[0] + shift, ends[1] + shift[::-1]), wide - 10)
    small = score(10, ends, 0)

    assert [each.details(("a", "b")) for each in of_wide] == [each.details(("a", "b")) for each in small]
    cut = sum(int(parts[src] != parts[10 + dst]) for src, dst in edges)
    assert small[0].cut == cut + sum(int(parts[10 + src] != parts[dst]) for src, dst in back)


@given(owners=st.integers(1 << 30, 1 << 31), more=st.integers(0, 5), rank=st.integers(0, (1 << 30) - 1))
@example(owners=1 << 30, more=3, rank=(1 << 30) - 1)
def test_nodes_beyond_32_bits_are_located_at_their_owner(owners: int, more: int, rank: int) -> None:
    """Node r + n * owners is number n of rank r, with a division and with a shift."""
    nodes = CyclicDistribution((4 * owners) + more, owners)

    found = nodes.locate(nodes.ids(rank))

    assert [each.tolist() for each in found] == [[rank] * nodes.size(rank), list(range(nodes.size(rank)))]
    assert nodes.size(rank) == 4 + (rank < more)


def test_rows_of_a_part_beyond_32_bits_are_put_and_read(tmp_path: Path) -> None:
    """Rows in any order, behind a hole; what was not written is told."""
    path, spec = tmp_path / "node_feat.dgl", ArraySpec("n/feat", np.dtype("<f4"), (WIDE, 1))

    with pytest.raises(FormatError, match=str(WIDE - 5)), tensor_file(path, [spec]) as file:
        file.put("n/feat", WIDE - 5, np.arange(5, dtype=np.float32).reshape(5, 1))

    stored = read_tensors(path)["n/feat"]
    assert stored.rows(WIDE - 7, WIDE).ravel().tolist() == [0, 0, 0, 1, 2, 3, 4]


@given(st.integers(0, 99), st.integers(0, 60), st.integers(0, 40), st.booleans())
@settings(max_examples=60)
def test_a_part_with_few_edges_numbers_its_nodes_as_one_with_many(
    seed: int, edges: int, own: int, wide: bool
) -> None:
    """Sorting its sources gives what going over all nodes gives, for IDs of 32 and of 64 bits."""
    rng = np.random.default_rng(seed)
    inner = (30, 30 + own)
    sources = [rng.integers(0, 100, edges).astype(np.int64 if wide else np.int32) for _ in range(2)]
    few, many = [each.copy() for each in sources], [each.copy() for each in sources]

    sorted_halo = halo._localise_few(few, inner)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(halo, "FEW", 1 << 40)
        halo_of_all = halo.localise(many, inner, 100)

    assert sorted_halo.tolist() == halo_of_all.tolist()
    assert [each.tolist() for each in few] == [each.tolist() for each in many]
    assert [each.dtype for each in few] == [each.dtype for each in sources]
