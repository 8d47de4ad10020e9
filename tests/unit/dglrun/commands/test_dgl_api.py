"""The stage of mode DGL-API on a chunked graph: the same graph, original IDs kept, clear errors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dglrun.arrays import Array
from dglrun.commands import validate_input, verify
from dglrun.dispatch import graphbolt
from dglrun.formats.dgl.folder import load_folder
from dglrun.partitioning.dgl_library import DglLibrary, Held
from tests.support.commands import run_command
from tests.support.heterographs import Toy, a_toy

pytest.importorskip("torch")
pytest.importorskip("dgl")
# Ours: where they cannot be imported, that is a failure.
from dglrun.commands import dgl_api, dgl_partition_graph

pytestmark = [
    pytest.mark.dgl,
    # DGL leaves /proc/self/status open.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def a_source(folder: Path) -> Path:
    """Two node types, each relation with enough edges that no part goes without."""
    rng = np.random.default_rng(1)
    nodes = {"a": 60, "b": 40}
    ends = {"a:x:b": ("a", "b"), "b:y:a": ("b", "a"), "a:z:a": ("a", "a")}
    edges = {
        name: np.stack([rng.integers(0, nodes[end], 300) for end in pair], axis=1)
        for name, pair in ends.items()
    }
    data: dict[str, Array] = {
        "train_mask": rng.integers(0, 2, 60).astype(np.uint8),
        "x": rng.random((60, 3), np.float32),
    }
    toy = Toy(nodes, edges, {}, 1, {"a": data}, {"a:x:b": {"w": rng.random(300, np.float32)}})
    toy.assignment.update({ntype: np.zeros(count, np.int64) for ntype, count in nodes.items()})
    return toy.write(folder / "in", chunks=3)


def partition(source: Path, out: Path, parts: int, *more: str) -> int:
    """Run the program."""
    flags = ("--in-dir", str(source), "--out-dir", str(out), "--num-parts", str(parts), *more)
    return int(dgl_api.main([*flags] if "--method" in more else [*flags, "--method", "metis"]))


@pytest.mark.parametrize("more", [(), ("--balance-train", "--balance-edges"), ("--method", "random")])
@pytest.mark.parametrize("parts", [1, 3])
def test_the_partition_is_its_source(tmp_path: Path, parts: int, more: tuple[str, ...]) -> None:
    """Every node, edge and feature row by its original ID, whatever DGL was asked to balance."""
    source = a_source(tmp_path)

    code = partition(source, tmp_path / "out", parts, *more)

    assert code == 0
    held = run_command(verify, "verify", str(tmp_path / "out/toy.json"), "--in-dir", str(source))
    assert held == 0
    folder = load_folder(tmp_path / "out/toy.json")
    assert folder.method == ("random" if "random" in more else "metis")
    assert folder.original_ids(0, "node") is not None


def test_fewer_parts_replace_more(tmp_path: Path) -> None:
    """No part of the earlier run stays; what a job's script keeps beside the parts does."""
    source, out = a_source(tmp_path), tmp_path / "out"
    out.mkdir()
    (out / "raw.csv").write_text("mine")
    assert partition(source, out, 3) == 0

    assert partition(source, out, 2) == 0

    assert sorted(path.name for path in out.iterdir()) == ["part0", "part1", "raw.csv", "toy.json"]
    assert run_command(verify, "verify", str(out / "toy.json"), "--in-dir", str(source)) == 0


def by_partition_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the path of --use-graphbolt run with a DGL that does not know it."""
    monkeypatch.setattr(graphbolt, "lacking", lambda: None)
    monkeypatch.setattr(dgl_partition_graph, "GRAPHBOLT", {})


@pytest.mark.parametrize("more", [(), ("--balance-train", "--balance-edges"), ("--method", "random")])
def test_for_graphbolt_partition_graph_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    """The same graph, with its original IDs."""
    source, out = a_source(tmp_path), tmp_path / "out"
    by_partition_graph(monkeypatch)

    assert partition(source, out, 3, "--use-graphbolt", *more) == 0

    assert sorted(path.name for path in out.iterdir()) == ["part0", "part1", "part2", "toy.json"]
    assert run_command(verify, "verify", str(out / "toy.json"), "--in-dir", str(source)) == 0


def test_more_parts_than_partition_graph_can_write_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """DGL indexes into nothing where a part lacks a type, or all nodes; the user is told what to do.

    Which of the two it is depends on the seed.
    """
    toy = a_toy(parts=2)
    source = toy.write(tmp_path / "in")
    by_partition_graph(monkeypatch)

    for seed in range(20):
        code = partition(source, tmp_path / "out", 16, "--use-graphbolt", "--seed", str(seed))

        assert code == 65
        assert "expected fewer than 16 parts" in capsys.readouterr().err


def test_parts_without_a_type_are_written(tmp_path: Path) -> None:
    """Which partition_graph cannot; whether DGL can train on them is for the check of the parts."""
    source = a_toy(parts=2).write(tmp_path / "in")

    assert partition(source, tmp_path / "out", 16) == 0

    assert run_command(verify, "verify", str(tmp_path / "out/toy.json"), "--in-dir", str(source)) == 0


def test_balancing_training_nodes_needs_a_mask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--balance-train without any train_mask is refused before DGL runs."""
    toy = a_toy(parts=2)
    toy.node_data.clear()

    code = partition(toy.write(tmp_path / "in"), tmp_path / "out", 2, "--balance-train")

    assert code == 65
    assert "no node type has node data train_mask" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_balance_has_no_effect_on_random(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Which is said, once, and of METIS is not."""
    balance = ("--balance-train", "--balance-edges")

    for method in ("random", "metis"):
        assert partition(a_source(tmp_path), tmp_path / method, 2, "--method", method, *balance) == 0

    told = "--balance-train and --balance-edges: no effect with --method random"
    assert capsys.readouterr().err.count(told) == 1


@pytest.mark.parametrize(("more", "columns"), [((), 2), (("--balance-train",), 3), (("--balance-edges",), 4)])
def test_what_shall_be_balanced_reaches_dgl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], columns: int
) -> None:
    """As weights: two node types, of which one may have a mask, and the in-degrees in each of them."""
    weights: list[int] = []

    def asking(library: DglLibrary, name: str, *args: Any) -> Held:
        if name.endswith("MetisPartition_Hetero"):
            weights.append(len(args[2].values()))
        return really(library, name, *args)

    really = DglLibrary.call
    monkeypatch.setattr(DglLibrary, "call", asking)

    assert partition(a_source(tmp_path), tmp_path / "out", 2, *more) == 0

    assert weights == [columns * (60 + 40)]


def test_a_feature_with_too_few_rows_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ranks that assign nodes read no features; dispatch does, after the whole partitioning."""
    source = a_toy().write(tmp_path / "in", chunks=2)
    np.save(source / "n0-feat-1.npy", np.zeros((4, 3), np.float32))

    code = validate_input.main(["--in-dir", str(source), "--graph-name", "toy"])

    assert code == 65
    assert "node data n0/feat: the metadata says 30 rows, the files have 19" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "words"),
    [("toy", ""), ("other", "graph_name: expected 'other' as --graph-name says, got 'toy'")],
)
def test_the_graph_is_the_one_that_is_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, words: str
) -> None:
    """The partition's JSON is called by the name, so another name would be noticed only much later."""
    source = a_toy().write(tmp_path / "in")

    code = validate_input.main(["--in-dir", str(source), "--graph-name", name])

    assert code == (65 if words else 0)
    assert words in capsys.readouterr().err


def test_a_missing_graph_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The path is in the message."""
    code = validate_input.main(["--in-dir", str(tmp_path / "nowhere"), "--graph-name", "toy"])

    assert code == 65
    assert f"{tmp_path}/nowhere/metadata.json" in capsys.readouterr().err
