"""`dglrun partition`: its flags, its back ends of one process, and what a user brings."""

from pathlib import Path

import numpy as np
import pytest

from dglrun.commands import partition as partition_command
from dglrun.formats import assignment
from dglrun.formats.chunked import write
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.partitioning import metis
from tests.support.commands import run_command
from tests.support.heterographs import a_toy
from tests.support.needs import NEEDS_METIS


def partition(source: Path, out: Path, *flags: str) -> int:
    return run_command(partition_command, "partition", "--in-dir", str(source), "--out-dir", str(out), *flags)


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
