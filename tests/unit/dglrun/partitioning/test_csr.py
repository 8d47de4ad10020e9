"""The simple undirected graph that partitioners want."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.partitioning import csr, freed_memory, serial
from tests.support.heterographs import QUIET, WITH_NODES, Toy


def naive_csr(edges: list[tuple[int, int]], nodes: int) -> tuple[list[dict[int, int]], list[int]]:
    """Neighbours with the number of edges to or from them, and in-degrees, by dictionaries."""
    rows: list[dict[int, int]] = [{} for _ in range(nodes)]
    degrees = [0] * nodes
    for src, dst in edges:
        degrees[dst] += 1
        if src != dst:
            rows[src][dst] = rows[src].get(dst, 0) + 1
            rows[dst][src] = rows[dst].get(src, 0) + 1
    return rows, degrees


@QUIET
@given(toy=WITH_NODES)
def test_the_simple_graph_is_what_partitioners_demand(
    tmp_path_factory: pytest.TempPathFactory, toy: Toy
) -> None:
    """Symmetric, no self-loops, no duplicates; what was merged is counted, in-degrees are the input's."""
    graph = ChunkedGraph.load(toy.write(tmp_path_factory.mktemp("g")))
    offsets = dict(zip(toy.nodes, np.cumsum([0, *toy.nodes.values()]), strict=False))
    edges = [
        (int(src + offsets[etype.split(":")[0]]), int(dst + offsets[etype.split(":")[2]]))
        for etype, pairs in toy.edges.items()
        for src, dst in pairs
    ]
    rows, degrees = naive_csr(edges, sum(toy.nodes.values()))

    found = serial.graph_rows(graph)

    assert found.in_degree.tolist() == degrees
    for node, neighbours in enumerate(rows):
        span = slice(found.xadj[node], found.xadj[node + 1])
        assert found.adjncy[span].tolist() == sorted(neighbours)
        counts = dict(zip(found.adjncy[span].tolist(), found.count[span].tolist(), strict=True))
        assert counts == neighbours


@pytest.mark.parametrize("bits", [7, 31], ids=["as 32-bit numbers", "as 64-bit numbers"])
def test_rows_are_the_same_whatever_the_buckets(bits: int) -> None:
    """A bucket's half-edges come from several groups; wide keys stand for graphs of many nodes."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 100, 5000), rng.integers(0, 100, 5000)
    keys = np.concatenate([csr.pack(dst, src, True), csr.pack(src[src != dst], dst[src != dst], False)])
    buckets = csr.Buckets(shift=4, number=7, bits=bits)
    groups = [part[np.argsort(part >> np.uint64(36), kind="stable")] for part in np.array_split(keys, 3)]

    found = csr.build(groups, buckets, 100, 0)

    rows, degrees = naive_csr(list(zip(src.tolist(), dst.tolist(), strict=True)), 100)
    assert buckets.narrow is (bits == 7)
    assert found.in_degree.tolist() == degrees
    assert np.diff(found.xadj).tolist() == [len(row) for row in rows]
    assert found.adjncy.tolist() == [neighbour for row in rows for neighbour in sorted(row)]


def test_memory_goes_back_before_the_rows_are_sorted_and_before_they_are_put_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What reading took, and the half-edges: their places have no room for a column."""
    groups = [csr.pack(np.arange(10), np.arange(1, 11), True)]
    held: list[int] = []
    monkeypatch.setattr(freed_memory, "give_back", lambda: held.append(len(groups)))

    csr.build(groups, csr.Buckets(shift=4, number=1, bits=7), 10, 0)

    assert held == [1, 0]


@given(st.integers(1, csr.MAX_NODES - 1), st.integers(1, 2000))
def test_buckets_cover_the_rows_and_fit_their_codes(nodes: int, ranks: int) -> None:
    """From one node to the limit, from one rank to thousands."""
    owners = min(nodes, ranks)
    buckets = csr.Buckets.of(nodes, owners)

    assert buckets.number << buckets.shift >= -(-nodes // owners)
    assert buckets.number * owners <= csr.MAX_CODES
    assert buckets.bits <= 31
