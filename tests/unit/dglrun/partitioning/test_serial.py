"""Assignment: random, METIS, the user's own; their files, weights and score."""

import ctypes
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dglrun.commands import partition as partition_command
from dglrun.errors import BackendMissingError, DataError
from dglrun.formats import assignment
from dglrun.formats.chunked import write
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.partitioning import csr, metis, partition_quality, random_partition, serial, weights
from tests.support.commands import run_command
from tests.support.heterographs import Toy, a_toy, toys


def has_metis() -> bool:
    try:
        metis.load()
    except BackendMissingError:
        return False
    return True


NEEDS_METIS = pytest.mark.skipif(not has_metis(), reason="libmetis is not installed (Debian: libmetis5)")
WITH_NODES = toys().filter(lambda toy: any(toy.nodes.values()))
QUIET = settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def partition(source: Path, out: Path, *flags: str) -> int:
    return run_command(partition_command, "partition", "--in-dir", str(source), "--out-dir", str(out), *flags)


@given(st.integers(0, 200), st.integers(1, 40), st.integers(0, 9))
def test_random_gives_each_part_its_share_of_each_type(nodes: int, parts: int, seed: int) -> None:
    """Parts differ by one node at most, so each has one as soon as there are enough."""
    found = random_partition.assign(nodes, parts, np.random.default_rng(seed))

    sizes = np.bincount(found, minlength=parts)
    assert (len(found), len(sizes)) == (nodes, parts)
    assert sizes.max() - sizes.min() <= 1


def test_small_types_do_not_all_land_in_the_first_parts() -> None:
    """Which part gets the odd node is chance too."""
    rng = np.random.default_rng(0)

    assert {int(random_partition.assign(1, 4, rng)[0]) for _ in range(100)} == {0, 1, 2, 3}


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


@given(st.integers(1, csr.MAX_NODES - 1), st.integers(1, 2000))
def test_buckets_cover_the_rows_and_fit_their_codes(nodes: int, ranks: int) -> None:
    """From one node to the limit, from one rank to thousands."""
    owners = min(nodes, ranks)
    buckets = csr.Buckets.of(nodes, owners)

    assert buckets.number << buckets.shift >= -(-nodes // owners)
    assert buckets.number * owners <= csr.MAX_CODES
    assert buckets.bits <= 31


@QUIET
@given(toy=toys())
def test_the_score_counts_every_edge_once(tmp_path_factory: pytest.TempPathFactory, toy: Toy) -> None:
    """Cut, edges by the destination's part, nodes by type: against loops."""
    graph = ChunkedGraph.load(toy.write(tmp_path_factory.mktemp("g")))
    parts = {ntype: each.astype(np.uint16) for ntype, each in toy.assignment.items()}

    found = partition_quality.of_assignment(graph, parts, toy.parts)

    cut, edges = 0, [0] * toy.parts
    for etype, pairs in toy.edges.items():
        src_type, _, dst_type = etype.split(":")
        for src, dst in pairs:
            edges[parts[dst_type][dst]] += 1
            cut += parts[src_type][src] != parts[dst_type][dst]
    assert (found.cut, found.edges.tolist()) == (cut, edges)
    assert found.nodes.sum(axis=1).tolist() == list(toy.nodes.values())


@given(st.lists(st.integers(0, 1233), max_size=50))
def test_lines_are_one_number_each(parts: list[int]) -> None:
    """One to four digits."""
    found = assignment.lines(np.array(parts, np.uint16), 1234)

    assert found == "".join(f"{part}\n" for part in parts).encode()


@QUIET
@given(toy=toys())
def test_an_assignment_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, toy: Toy) -> None:
    """With parts and types without nodes."""
    folder = tmp_path_factory.mktemp("g")
    graph = ChunkedGraph.load(toy.write(folder))
    parts = {ntype: each.astype(np.uint16) for ntype, each in toy.assignment.items()}
    meta = assignment.AssignmentMeta(toy.parts, "zoltan", {"edge_cut": 3})

    assignment.write(folder / "out", graph, parts, meta)

    again, found = assignment.load(folder / "out", graph)
    assert again == meta
    assert all((found[ntype] == parts[ntype]).all() for ntype in toy.nodes)


@pytest.mark.parametrize(("method", "algo"), [("random", "random"), ("metis", "metis"), ("zoltan", "metis")])
def test_dgl_accepts_the_metadata_of_every_method(tmp_path: Path, method: str, algo: str) -> None:
    """DGL's loader knows version 1.0.0 and two names; the true one stands beside."""
    graph = ChunkedGraph.load(a_toy().write(tmp_path))
    assignment.write(
        tmp_path / "out", graph, serial.random_parts(graph, 2, 0), assignment.AssignmentMeta(2, method)
    )

    raw = json.loads((tmp_path / "out" / "partition_meta.json").read_text())

    assert raw == {"version": "1.0.0", "num_parts": 2, "algo_name": algo, "method": method}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0\n1\n", "expected 30 lines, one for each n0 node, got 2"),
        ("0\n" * 29 + "3\n", "line 30: expected a part from 0 to 2, got '3'"),
        ("0\n" * 3 + "x\n" + "0\n" * 26, "line 4: expected a part from 0 to 2, got 'x'"),
    ],
)
def test_an_assignment_of_the_user_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, expected: str
) -> None:
    """Number of lines and parts, told by file and line; nothing is written."""
    source = a_toy().write(tmp_path / "in")
    (source / "parts" / "n0.txt").write_text(text)
    flags = ("--backend", "user", "--assignment", str(source / "parts"), "--num-parts", "3")

    code = partition(source, tmp_path / "out", *flags)

    assert code == 65
    assert f"n0.txt: {expected}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_assignment_of_the_user_is_taken_as_it_is(tmp_path: Path) -> None:
    """And scored."""
    toy = a_toy()
    source = toy.write(tmp_path / "in")
    flags = ("--backend", "user", "--assignment", str(source / "parts"), "--num-parts", "3")

    code = partition(source, tmp_path / "out", *flags)

    meta, parts = assignment.load(tmp_path / "out", ChunkedGraph.load(source))
    assert (code, meta.method) == (0, "user")
    assert all((parts[ntype] == toy.assignment[ntype]).all() for ntype in toy.nodes)
    assert sum(meta.details["edges_per_part"]) == 130


@NEEDS_METIS
@QUIET
@given(toy=WITH_NODES)
def test_metis_partitions_any_graph(tmp_path_factory: pytest.TempPathFactory, toy: Toy) -> None:
    """Isolated nodes, self-loops, duplicates, empty types, more parts than nodes."""
    folder = tmp_path_factory.mktemp("g")
    graph = ChunkedGraph.load(toy.write(folder))

    parts, _ = serial.metis_parts(graph, toy.parts, 1, weights.Balance(), 1.05)

    assert {ntype: len(found) for ntype, found in parts.items()} == toy.nodes
    assert all((found < toy.parts).all() for found in parts.values())


def two_communities(folder: Path, rng: np.random.Generator) -> ChunkedGraph:
    """Two groups of 400 nodes, 300 of type a and 100 of type b in each, few edges between them."""
    group = {"a": np.arange(600) % 2, "b": np.arange(200) % 2}
    edges = {}
    for etype, count in (("a:r:a", 6000), ("b:s:a", 2000)):
        src_type, _, dst_type = etype.split(":")
        src = rng.integers(0, len(group[src_type]), count)
        own = group[src_type][src] ^ (rng.random(count) < 0.03)
        dst = 2 * rng.integers(0, len(group[dst_type]) // 2, count) + own
        edges[etype] = np.stack([src, dst], axis=1)
    return write.graph(folder, "two", {"a": 600, "b": 200}, edges)


@NEEDS_METIS
def test_metis_finds_communities_and_balances_types_and_edges(tmp_path: Path) -> None:
    """Few edges cut, and each type and the edges even."""
    two_communities(tmp_path / "in", np.random.default_rng(0))

    code = partition(tmp_path / "in", tmp_path / "out", "--num-parts", "2")

    meta = assignment.load_meta(tmp_path / "out")
    known = meta.details
    assert (code, meta.method, known["balance"]) == (0, "metis", ["edges", "types"])
    assert known["edge_cut_ratio"] < 0.05
    assert known["edge_balance"] < 1.08
    for row in known["nodes_per_part"].values():
        assert max(row) * 2 / sum(row) < 1.08


@NEEDS_METIS
def test_one_seed_gives_one_assignment(tmp_path: Path) -> None:
    """Whatever the method."""
    graph = two_communities(tmp_path / "in", np.random.default_rng(0))

    for backend in ("random", "metis"):
        for out in ("one", "two"):
            flags = ("--num-parts", "4", "--backend", backend, "--seed", "7")
            assert partition(tmp_path / "in", tmp_path / out, *flags) == 0
        one, two = (assignment.load(tmp_path / out, graph)[1] for out in ("one", "two"))
        assert all((one[ntype] == two[ntype]).all() for ntype in graph.ntypes)


def test_metis_refuses_what_it_cannot_count() -> None:
    """32-bit numbers overflow silently in the library, so the sizes are compared before the call."""
    lib = metis.Library("libmetis.so.5", ctypes.CDLL(None), np.int32)
    none = np.zeros(0, np.int32)
    rows = csr.Csr(np.array([0, 1 << 31, 1 << 31, 1 << 31]), none, none, np.zeros(3, np.int64))

    with pytest.raises(DataError, match="counts in 32 bits"):
        metis.assign(lib, rows, np.ones((3, 1), np.int64), np.ones(1, np.float32), 2, 1)


def test_weights_are_one_hot_by_type_with_the_degree_last() -> None:
    """As the guide describes node weights."""
    columns = weights.type_columns([2, 0, 3], weights.Balance())

    found = weights.multi(columns, np.array([0, 0, 2, 2, 2]), np.array([5, 0, 1, 1, 1]), weights.Balance())

    assert found.tolist() == [[0, 1, 5], [0, 1, 0], [1, 0, 1], [1, 0, 1], [1, 0, 1]]


def test_many_types_share_the_last_column() -> None:
    """Back ends have a limit; the smallest types are balanced together."""
    columns = weights.type_columns(range(100, 0, -1), weights.Balance())

    assert columns.tolist() == [*range(14), *[14] * 86]


def test_bounds_leave_room_for_what_cannot_be_even() -> None:
    """A type of one node in four parts can only be four times its mean."""
    bounds = weights.tolerances(np.array([1, 4000]), np.array([1, 1]), 4, 1.05)

    assert bounds.tolist() == [pytest.approx(5.0), pytest.approx(1.05)]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--mode", "DGL-API", "--backend", "zoltan"), "--mode DGL-API takes --backend metis, random, user"),
        (("--mode", "DistParMETIS", "--backend", "metis"), "takes --backend parmetis, zoltan, got metis"),
        (("--mode", "DistParMETIS"), "needs --hostfile and --agent outside of a job"),
        (("--backend", "user"), "--assignment DIR goes with --backend user"),
        (("--assignment", "x"), "--assignment DIR goes with --backend user"),
        (("--num-parts", "0"), "--num-parts: expected 1 to 32768, got 0"),
        (("--imbalance", "1"), "--imbalance: expected a number above 1"),
        (("--balance", "nodes,luck"), "--balance: expected nodes, types or edges, got 'luck'"),
    ],
)
def test_flags_that_contradict_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], expected: str
) -> None:
    """Exit code 2; a mode never runs another back end than it names."""
    code = partition(a_toy().write(tmp_path / "in"), tmp_path / "out", "--num-parts", "2", *flags)

    assert code == 2
    assert expected in capsys.readouterr().err


def test_an_absent_back_end_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 69, and nothing else runs in its place."""
    monkeypatch.setattr(metis, "SONAMES", ("libnone.so.1",))

    code = partition(a_toy().write(tmp_path / "in"), tmp_path / "out", "--num-parts", "2")

    assert code == 69
    assert "install it (Debian: apt-get install libmetis5)" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
