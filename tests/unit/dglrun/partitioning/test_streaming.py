"""The streaming back end on ranks that are threads, and its parts one by one."""

import gc
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dglrun.arrays import Array, Ints
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.id_map import IdMap
from dglrun.mpi import exchange
from dglrun.mpi.collectives import Ranks, SingleRank
from dglrun.partitioning import partition_quality, weights
from dglrun.partitioning.csr import Csr
from dglrun.partitioning.distributed import (
    distributed_csr,
    edge_cut,
    gather_assignment,
    part_loads,
    stream_choice,
    streaming,
)
from dglrun.partitioning.distributed.backend import PartitionProblem
from dglrun.partitioning.distributed.part_loads import Kinds, PartLoads
from dglrun.partitioning.distributed.stream_choice import Neighbours
from dglrun.partitioning.distributed.stream_order import StreamOrder, chances, even_chances
from dglrun.partitioning.distributed.vertex_distribution import CyclicDistribution
from dglrun.partitioning.weights import Balance
from tests.support.heterographs import QUIET, WITH_NODES, Toy
from tests.support.thread_ranks import on_ranks
from tests.unit.dglrun.partitioning.builders import two_communities

ALL = Balance(types=True, edges=True)


def own_problem(
    ranks: Ranks, graph: ChunkedGraph, num_parts: int, balance: Balance = ALL
) -> PartitionProblem:
    """A rank's share of a graph, read and weighed as rank_main does."""
    nodes = CyclicDistribution.of(sum(graph.num_nodes), ranks.size)
    rows = distributed_csr.rows(ranks, graph, nodes, 7)
    types = IdMap.of(graph.ntypes, graph.num_nodes).to_typed(nodes.ids(ranks.rank))[0]
    columns = weights.type_columns(graph.num_nodes, balance)
    loads = weights.multi(columns, types, rows.in_degree, None, balance)
    totals = np.sum(ranks.gather(loads.sum(axis=0)), axis=0)
    largest = np.max(ranks.gather(loads.max(axis=0, initial=0)), axis=0)
    bounds = weights.tolerances(totals, largest, num_parts, 1.05)[totals > 0]
    return PartitionProblem(nodes.starts, rows, weights.without_empty(loads, totals), bounds, num_parts, 1)


def streamed(graph: ChunkedGraph, num_parts: int, size: int, balance: Balance = ALL) -> Ints:
    """The part of each node in homogeneous order, made by `size` ranks."""
    nodes = sum(graph.num_nodes)

    def work(ranks: Ranks) -> Ints:
        problem = own_problem(ranks, graph, num_parts, balance)
        return streaming.Streaming().partition(ranks, problem).astype(np.int64)

    found = np.full(nodes, -1, np.int64)
    for rank, parts in enumerate(on_ranks(size, work)):
        found[rank::size] = parts
    return found


@settings(QUIET, max_examples=20)
@given(WITH_NODES, st.integers(1, 4))
def test_any_heterograph_is_assigned_alike_by_any_number_of_ranks(toy: Toy, size: int) -> None:
    """Empty and isolated types, more parts than nodes of a type; every node has a part."""
    with TemporaryDirectory() as folder:
        graph = ChunkedGraph.load(toy.write(Path(folder), chunks=2))
        nodes = sum(graph.num_nodes)

        found = streamed(graph, toy.parts, min(size, nodes))

        assert found.min() >= 0
        assert found.max() < toy.parts
        assert len(set(found.tolist())) == toy.parts or nodes < toy.parts
        assert (found == streamed(graph, toy.parts, 1)).all()


@pytest.mark.parametrize("size", [1, 3])
def test_communities_are_found_and_every_constraint_keeps_its_bound(tmp_path: Path, size: int) -> None:
    """Nodes of each type and edges, at once."""
    graph = two_communities(tmp_path)
    nodes = CyclicDistribution.of(sum(graph.num_nodes), size)
    types = np.repeat([0, 1], graph.num_nodes)

    found = streamed(graph, 2, size)

    def score(ranks: Ranks) -> partition_quality.PartitionQuality:
        own = found[ranks.rank :: size].astype(np.uint16)
        return edge_cut.measure_by_input(ranks, graph, nodes, own, 2, 50)

    quality = on_ranks(size, score)[0].details(graph.ntypes)
    assert quality["edge_cut_ratio"] < 0.06
    assert quality["edge_balance"] <= 1.06
    for kind, count in enumerate(graph.num_nodes):
        assert np.bincount(found[types == kind], minlength=2).max() <= 1.06 * count / 2 + 1


def ring(nodes: int, degree_weight: int = 1) -> PartitionProblem:
    """A ring, whose nodes may count as many edges each, for one rank and four parts."""
    near = np.arange(nodes)
    both = np.sort(np.stack([(near - 1) % nodes, (near + 1) % nodes], axis=1), axis=1)
    degrees = np.full(nodes, degree_weight, np.int64)
    rows = Csr(np.arange(nodes + 1) * 2, both.ravel().astype(np.int32), np.ones(2 * nodes, np.int32), degrees)
    loads = np.stack([np.ones(nodes, np.int64), degrees], axis=1)
    bounds = weights.tolerances(loads.sum(axis=0), loads.max(axis=0), 4, 1.05)
    return PartitionProblem(np.array([0, nodes]), rows, loads, bounds, 4, 1)


def power_law(scale: int, pairs: int, parts: int) -> PartitionProblem:
    """RMAT of 2^scale nodes, of which those count that have edges: hubs, and no communities; for one rank.

    Chakrabarti, Zhan and Faloutsos, "R-MAT: A Recursive Model for Graph Mining", SDM 2004.
    """
    rng = np.random.default_rng(1)
    ends = np.zeros((2, pairs), np.int64)
    for _ in range(scale):
        quarter = np.searchsorted([0.57, 0.76, 0.95], rng.random(pairs), side="right")
        ends = 2 * ends + np.stack([quarter // 2, quarter % 2])
    used, ends = np.unique(ends[:, ends[0] != ends[1]], return_inverse=True)
    nodes, ends = len(used), ends.reshape(2, -1)
    both = np.unique(np.concatenate([ends[0] * nodes + ends[1], ends[1] * nodes + ends[0]]))
    degrees = np.bincount(both // nodes, minlength=nodes)
    starts = np.concatenate([[0], np.cumsum(degrees)])
    rows = Csr(starts, (both % nodes).astype(np.int32), np.ones(len(both), np.int32), degrees)
    loads = np.stack([np.ones(nodes, np.int64), degrees], axis=1)
    bounds = weights.tolerances(loads.sum(axis=0), loads.max(axis=0), parts, 1.05)
    return PartitionProblem(np.array([0, nodes]), rows, loads, bounds, parts, 1)


@pytest.mark.parametrize(("parts", "cut"), [(8, 0.84), (32, 0.91)])
def test_a_power_law_keeps_the_bounds_of_nodes_and_edges(parts: int, cut: float) -> None:
    """Hubs fill parts with edges before these have their nodes; what leaves a part must not overfill others.

    Nodes that left by chance went round and round here, and the cut was nearly that of chance.
    """
    problem = power_law(17, 2_000_000, parts)

    found = streaming.Streaming().partition(SingleRank(), problem)

    loads = part_loads.sums(found, problem.weights, parts)
    assert (loads.max(axis=0) <= 1.004 * problem.bounds * loads.mean(axis=0)).all()
    src = np.repeat(found, np.diff(problem.rows.xadj))
    assert (src != found[problem.rows.adjncy]).mean() < cut


def test_from_a_part_with_too_many_edges_hubs_leave() -> None:
    """About as many edges as shall, with few nodes; of too many nodes as many as shall."""
    degrees = np.concatenate([np.full(9900, 1), np.full(100, 99)])
    loads = np.stack([np.ones(10_000, np.int64), degrees], axis=1)
    heaviness = part_loads.Heaviness.of(SingleRank(), loads, loads.sum(axis=0))

    of_nodes, of_edges = heaviness.chances(loads, np.full(loads.shape, 0.2)).T

    assert (of_edges @ degrees) / degrees.sum() == pytest.approx(0.2, rel=0.1)
    assert of_edges.sum() < 0.01 * 10_000
    assert of_nodes == pytest.approx(0.2)


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_heaviness_is_the_same_on_any_number_of_ranks(seed: int, size: int) -> None:
    """To the last bit, or ranks would decide otherwise than one."""
    rng = np.random.default_rng(seed)
    loads = np.ceil((1 + rng.pareto(1.0, (50, 2))) * 10.0 ** rng.integers(0, 9)).astype(np.int64)
    totals = loads.sum(axis=0)

    found = on_ranks(size, lambda ranks: part_loads.Heaviness.of(ranks, loads[ranks.rank :: size], totals))

    alone = part_loads.Heaviness.of(SingleRank(), loads, totals)
    assert all((each.step == alone.step).all() and (each.scale == alone.scale).all() for each in found)


def test_no_more_leaves_than_others_have_room_for() -> None:
    """What goes elsewhere would have to leave there again."""
    loads = PartLoads(SingleRank(), np.array([300, 300]), np.array([1.1, 1.5], np.float32), 3)
    loads.change(np.array([[130, 100], [90, 160], [80, 40]]))

    assert loads.places(np.array([100, 10])) == pytest.approx([0.5, 1.0])
    assert loads.excess(1, 1.0)[:, 0] == pytest.approx([20 / 130, 0, 0])
    assert loads.excess(32, 1.0)[0, 0] == 1.0
    dealt = loads.deal_by(np.array([0] * 100 + [1] * 100), np.tile((np.arange(100) + 0.5) / 100, 2))
    assert np.bincount(dealt[:100], minlength=3).tolist() == [0, 40, 60]
    assert np.bincount(dealt[100:], minlength=3).tolist() == [31, 0, 69]
    assert not loads.are_within_bounds


def test_loads_beyond_32_bits_are_balanced() -> None:
    """2^33 edges at each of 400 nodes: sums of 2^41, which back ends of 32 bits refuse."""
    problem = ring(400, 1 << 33)

    found = streaming.Streaming().partition(SingleRank(), problem)

    sums = part_loads.sums(found, problem.weights, 4)
    assert sums[:, 1].sum() == 400 << 33
    assert (sums.max(axis=0) <= 1.06 * sums.mean(axis=0)).all()


def test_another_seed_gives_another_assignment_and_the_same_one_the_same() -> None:
    """The order of the stream and chance come from the seed."""
    problem = ring(300)
    other = PartitionProblem(problem.starts, problem.rows, problem.weights, problem.bounds, 4, -5)

    found = [streaming.Streaming().partition(SingleRank(), each) for each in (problem, problem, other)]

    assert (found[0] == found[1]).all()
    assert (found[0] != found[2]).any()


@pytest.mark.parametrize("seed", [(1 << 31) - 1, 1 << 31, 1 << 32, (1 << 64) + 3, -(1 << 40)])
def test_a_seed_may_be_of_any_size(seed: int) -> None:
    """Every node gets a part, and each time the same."""
    problem = replace(ring(300), seed=seed)

    found = [streaming.Streaming().partition(SingleRank(), problem) for _ in range(2)]

    assert set(found[0].tolist()) == {0, 1, 2, 3}
    assert (found[0] == found[1]).all()


def test_a_bound_may_be_the_mean_itself() -> None:
    """`--imbalance` just above 1 is 1 in float32: no division by zero, and parts are nearly even."""
    problem = ring(300)
    bounds = weights.tolerances(problem.weights.sum(axis=0), problem.weights.max(axis=0), 4, 1 + 1e-9)
    assert (bounds == 1).all()

    with np.errstate(all="raise"):
        found = streaming.Streaming().partition(SingleRank(), replace(problem, bounds=bounds))

    assert np.bincount(found, minlength=4).max() <= 1.2 * 300 / 4


@pytest.mark.parametrize("seed", range(10))
def test_no_part_of_a_small_graph_is_empty(seed: int) -> None:
    """Two or three nodes for each part: chance alone leaves one empty with half of these seeds."""
    loads = np.ones((20, 1), np.int64)
    bounds = weights.tolerances(loads.sum(axis=0), loads.max(axis=0), 8, 1.05)
    problem = replace(ring(20), weights=loads, bounds=bounds, num_parts=8, seed=seed)

    found = streaming.Streaming().partition(SingleRank(), problem)

    assert set(found.tolist()) == set(range(8))


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 9), st.integers(0, 60))
def test_table_and_sort_choose_alike(seed: int, nodes: int, parts: int, entries: int) -> None:
    """Whichever is faster for the number of parts."""
    rng = np.random.default_rng(seed)
    near = Neighbours(
        np.sort(rng.integers(0, nodes, entries)),
        rng.integers(0, parts + 1, entries).astype(np.uint8),
        rng.integers(1, 4, entries).astype(np.int32),
    )
    current = rng.integers(0, parts + 1, nodes).astype(np.uint8)
    slack = rng.choice([0.0, 0.5, 1.0], (2, parts))
    kinds, chance = rng.integers(0, 2, nodes).astype(np.uint8), rng.random(nodes)

    table = stream_choice._by_table(near, current, slack, kinds, chance)
    sort = stream_choice._by_sort(near, current, slack, kinds, chance)

    assert (table.own == sort.own).all()
    assert (table.score == sort.score).all()
    some = table.score > 0
    assert (table.part[some] == sort.part[some]).all()


@given(st.integers(1, 10000), st.integers(1, 7), st.integers(0, 3))
def test_every_node_is_streamed_once_in_each_pass(nodes: int, owners: int, seed: int) -> None:
    """On the rank that owns it, in a batch that does not depend on the number of ranks."""
    owners, order = min(owners, nodes), StreamOrder.of(nodes, seed)

    for batches in (order.even(), order.growing()):
        streamed_ids = []
        for batch in batches:
            rows = [order.rows(batch, rank, owners) * owners + rank for rank in range(owners)]
            assert sorted(np.concatenate(rows).tolist()) == order.rows(batch, 0, 1).tolist()
            streamed_ids += np.concatenate(rows).tolist()
        assert sorted(streamed_ids) == list(range(nodes))
    sizes = [len(batch) for batch in order.growing()[:-1]]
    assert all(small <= large for small, large in pairwise(sizes))


def test_chance_is_even_and_knows_64_bits() -> None:
    """IDs that differ in their upper half only have different numbers."""
    ids = np.arange(10000)

    found, dealt = chances(ids, 3), even_chances(ids, 3)

    assert abs(np.histogram(found, 10, (0, 1))[0] - 1000).max() < 150
    assert abs(np.histogram(dealt, 10, (0, 1))[0] - 1000).max() < 5
    assert (chances(ids, 3) != chances(ids + (1 << 40), 3)).any()
    assert (chances(ids, 3) != chances(ids, 4)).any()


def test_only_constraints_in_which_a_node_weighs_something_hold_it_back() -> None:
    """A part that is full of one type takes the other one."""
    kinds = Kinds.find(np.array([[1, 0], [0, 1], [0, 1]]))
    loads = PartLoads(SingleRank(), np.array([40, 40]), np.array([1.05, 1.05], np.float32), 2)
    loads.change(np.array([[21, 0], [0, 10]]))

    slack = loads.slack(kinds, 1.0)[kinds.of[[0, 1]]]
    room = loads.admission(kinds, np.array([[4, 4], [4, 22]]), 1.0)[kinds.of[[0, 1]]]

    assert slack.tolist() == [[0.0, 1.0], [1.0, 1.0]]
    assert room[0].tolist() == [0.0, 1.0]
    assert room[1].tolist() == [1.0, pytest.approx(0.5)]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(1, 8))
def test_heavy_nodes_are_dealt_to_the_least_full_part(loads: list[int], parts: int) -> None:
    """As by Graham's rule: the fullest part is above the mean by less than one node."""
    heavy = np.array(loads).reshape(-1, 1)

    found = part_loads.level(heavy, np.array([1.0]), parts, range(parts))

    sums = part_loads.sums(found, heavy, parts)[:, 0]
    assert sums.max() <= sum(loads) / parts + max(loads)
    assert (sums > 0).sum() == min(parts, len(loads))


class FirstOfEight:
    """What rank 0 of eight sees of ranks that all do as it does."""

    rank, size = 0, 8

    def gather(self, value: Any) -> list[Any]:
        return [value] * self.size

    def concatenate(self, own: Array, rows: list[int]) -> Array:
        return np.zeros(sum(rows), own.dtype)


def test_what_a_rank_works_on_falls_with_its_share_of_the_nodes() -> None:
    """It knows the part of every node in one byte; whatever takes eight is of its own nodes only."""
    nodes, parts = 1 << 20, 4
    starts = np.arange(9) * (nodes // 8)
    own = nodes // 8
    none = np.zeros(0, np.int32)
    rows = Csr(np.zeros(own + 1, np.int64), none, none, np.zeros(own, np.int64))
    problem = PartitionProblem(starts, rows, np.ones((own, 1), np.int64), np.array([1.05]), parts, 1)
    stream = streaming._Stream(FirstOfEight(), problem)  # type: ignore[arg-type]
    stream._parts[:] = np.arange(nodes) % parts
    batch = stream.order.even()[0]
    mine = np.zeros(stream.order.count(batch, 0, 8), np.uint8)

    counting = peak_bytes(stream.fill_empty_parts)
    telling = peak_bytes(lambda: stream._tell(batch, mine))

    assert counting < 1.5 * 8 * own
    assert telling < 8 * len(batch) * stream.order.size


def test_the_score_looks_at_a_small_part_of_the_rows_at_once() -> None:
    """What it takes beside them is less than what they take themselves."""
    rows = ring(1 << 18).rows
    parts = np.zeros(1 << 18, np.uint16)
    types, starts = np.zeros(1 << 18, np.int64), np.array([0, 1 << 18])

    taken = peak_bytes(lambda: edge_cut._cut(SingleRank(), starts, rows, parts))
    assert taken < rows.adjncy.nbytes + rows.count.nbytes

    halves = (np.arange(1 << 18) // 2 % 2).astype(np.uint16)
    quality = edge_cut.measure(SingleRank(), starts, rows, types, halves, (1, 2))
    assert quality.details(("n",))["edge_cut_ratio"] == pytest.approx(0.5)


@pytest.mark.parametrize("size", [1, 2])
def test_blocks_of_edges_that_are_read_fall_with_the_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """16 of each rank's share, whatever a block may have at most."""
    monkeypatch.setattr(exchange, "LEAST_ROWS", 1)
    graph = two_communities(tmp_path)
    lengths: list[int] = []
    half_edges = distributed_csr._half_edges

    def counted(block: tuple[Ints, Ints], *others: Any) -> Any:
        lengths.append(len(block[0]))
        return half_edges(block, *others)

    monkeypatch.setattr(distributed_csr, "_half_edges", counted)
    nodes = CyclicDistribution.of(sum(graph.num_nodes), size)
    on_ranks(size, lambda ranks: distributed_csr.rows(ranks, graph, nodes, 1 << 19))

    assert sum(lengths) == sum(graph.num_edges)
    assert max(lengths) <= sum(graph.num_edges) // size // 16 + 1


@pytest.mark.parametrize("size", [1, 3, 8])
def test_the_assignment_comes_back_in_stretches_that_fall_with_the_share(size: int) -> None:
    """Each rank holds a part of the whole no longer than its share."""
    nodes = CyclicDistribution.of(400_000, size)
    wanted = np.arange(nodes.nodes) * 7 % 251

    def work(ranks: Ranks) -> list[tuple[int, Ints]]:
        parts = wanted[nodes.ids(ranks.rank)].astype(np.uint16)
        return list(gather_assignment.stretches(ranks, nodes, parts))  # type: ignore[arg-type]

    for found in on_ranks(size, work):
        assert max(len(parts) for _, parts in found) <= max(nodes.nodes // size // 16, 1 << 14)
        assert (np.concatenate([parts for _, parts in found]) == wanted).all()


def peak_bytes(work: Callable[[], object]) -> int:
    """What numpy and Python allocate at most while this runs."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
