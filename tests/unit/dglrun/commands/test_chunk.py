"""`dglrun chunk`."""

import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dglrun.commands import chunk
from dglrun.formats.chunked import check, read
from dglrun.formats.chunked.metadata import ChunkedGraph
from tests.support.commands import run_command
from tests.support.heterographs import edges_of


@pytest.mark.parametrize(("edge_format", "feature_format"), [("csv", "numpy"), ("parquet", "parquet")])
def test_tables_become_a_chunked_graph(tmp_path: Path, edge_format: str, feature_format: str) -> None:
    """Numpy as (edges, 2) and as (2, edges), parquet, features; node counts by flag and by features."""
    np.save(tmp_path / "cites.npy", np.array([[0, 1, 2], [2, 1, 0]]))
    pq.write_table(pa.table({"s": [4, 3], "d": [0, 2]}), tmp_path / "writes.parquet")
    np.save(tmp_path / "feat.npy", np.arange(6, dtype=np.float32).reshape(3, 2))
    out = tmp_path / "out"

    code = run_command(
        chunk, "chunk", "--out-dir", str(out), "--name", "g", "--files", "2", "--nodes", "author=5",
        "--edges", f"paper:cites:paper={tmp_path}/cites.npy",
        "--edges", f"author:writes:paper={tmp_path}/writes.parquet",
        "--node-data", f"paper/feat={tmp_path}/feat.npy",
        "--edge-format", edge_format, "--feature-format", feature_format,
    )  # fmt: skip

    graph = ChunkedGraph.load(out)
    check.check_counts(graph)
    assert code == 0
    assert dict(zip(graph.ntypes, graph.num_nodes, strict=True)) == {"author": 5, "paper": 3}
    assert edges_of(graph, "paper:cites:paper") == [[0, 2], [1, 1], [2, 0]]
    assert edges_of(graph, "author:writes:paper") == [[4, 0], [3, 2]]
    feature = np.concatenate(list(read.feature_blocks(graph.node_data["paper"]["feat"], 0, 3)))
    assert feature.tolist() == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), "expected --dgl-graph FILE or at least one --edges"),
        (("--edges", "n:r:n={0}/e.npy"), "node count of 'n' unknown; pass --nodes n=NUMBER"),
        (
            ("--edges", "n:r:n={0}/e.npy", "--nodes", "n=2"),
            "e.npy: row 1: expected IDs of n from 0 to 1, got 2",
        ),
        (
            ("--edges", "n:r:n={0}/e.csv", "--nodes", "n=2"),
            "e.csv: line 2: expected IDs of n from 0 to 1, got 2",
        ),
        (("--edges", "n:r={0}/e.npy", "--nodes", "n=3"), "expected 'source:relation:destination'"),
        (("--edges", "n:r:n={0}/none.npy", "--nodes", "n=3"), "none.npy: cannot be read"),
        (
            ("--edges", "n:r:n={0}/e.npy", "--nodes", "n=3", "--node-data", "n/f={0}/e.npy"),
            "n/f: expected 3 rows, got 2",
        ),
    ],
)
def test_bad_input_stops_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], expected: str
) -> None:
    """Exit code 65 and one line."""
    np.save(tmp_path / "e.npy", np.array([[0, 1], [2, 0]]))
    (tmp_path / "e.csv").write_text("0 1\n2 0\n")
    given = ["--edge-layout", "rows", *(flag.format(tmp_path) for flag in flags)]

    code = run_command(chunk, "chunk", "--out-dir", str(tmp_path / "out"), "--name", "g", *given)

    assert code == 65
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.dgl
@pytest.mark.filterwarnings("ignore")
def test_a_dgl_graph_becomes_a_chunked_graph(tmp_path: Path) -> None:
    """Type IDs are DGL's, edges keep their IDs, features of nodes and edges come along."""
    dgl, torch = pytest.importorskip("dgl"), pytest.importorskip("torch")
    graph = dgl.heterograph({("b", "r", "a"): ([0, 2], [1, 0]), ("a", "s", "a"): ([1], [1])})
    graph.nodes["b"].data["x"] = torch.arange(6.0).reshape(3, 2)
    graph.edges["r"].data["w"] = torch.tensor([5, 7])
    dgl.save_graphs(str(tmp_path / "g.bin"), [graph])

    code = run_command(
        chunk,
        "chunk",
        "--out-dir",
        str(tmp_path / "out"),
        "--name",
        "g",
        "--dgl-graph",
        f"{tmp_path}/g.bin",
    )

    found = ChunkedGraph.load(tmp_path / "out")
    assert code == 0
    assert (found.ntypes, found.num_nodes) == (tuple(graph.ntypes), (2, 3))
    assert found.etypes == tuple(":".join(etype) for etype in graph.canonical_etypes)
    assert edges_of(found, "b:r:a") == [[0, 1], [2, 0]]
    (weights,) = read.feature_blocks(found.edge_data["b:r:a"]["w"], 0, 2)
    assert weights.tolist() == [5, 7]


@pytest.mark.parametrize(("layout", "edges"), [("rows", [[0, 1], [2, 0]]), ("columns", [[0, 2], [1, 0]])])
def test_two_edges_are_read_as_the_flag_says(tmp_path: Path, layout: str, edges: list[list[int]]) -> None:
    """Of shape (2, 2) either is possible, and the wrong one is another graph."""
    np.save(tmp_path / "e.npy", np.array([[0, 1], [2, 0]]))
    flags = ("--out-dir", str(tmp_path / "out"), "--name", "g", "--nodes", "n=3")
    edge_flags = ("--edges", f"n:r:n={tmp_path}/e.npy", "--edge-layout", layout)

    assert run_command(chunk, "chunk", *flags, *edge_flags) == 0

    assert edges_of(ChunkedGraph.load(tmp_path / "out"), "n:r:n") == edges


def test_two_edges_whose_layout_nobody_says_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A guess would be right for half of the data sets."""
    np.save(tmp_path / "e.npy", np.array([[0, 1], [2, 0]]))
    flags = ("--out-dir", str(tmp_path / "out"), "--name", "g", "--nodes", "n=3")

    code = run_command(chunk, "chunk", *flags, "--edges", f"n:r:n={tmp_path}/e.npy")

    assert code == 65
    assert "e.npy: an array of shape (2, 2) may hold two edges either way" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def peak_of_chunking(folder: Path, edges: int) -> int:
    """Bytes of numpy and Python at most, for edges and a feature of them in parquet, one row group each."""
    ends = np.arange(edges) % 7
    pq.write_table(pa.table({"s": ends, "d": ends[::-1]}), folder / "e.parquet", row_group_size=edges)
    pq.write_table(pa.table({"w": ends.astype(np.float32)}), folder / "w.parquet", row_group_size=edges)
    del ends
    tracemalloc.start()
    try:
        code = run_command(
            chunk, "chunk", "--out-dir", str(folder / str(edges)), "--name", "g", "--files", "3",
            "--nodes", "n=7", "--edges", f"n:r:n={folder}/e.parquet",
            "--edge-data", f"n:r:n/w={folder}/w.parquet", "--edge-format", "numpy",
        )  # fmt: skip
        assert code == 0
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_tables_are_read_in_blocks(tmp_path: Path) -> None:
    """Twice the rows take the same memory, and come in their order."""
    block = read.BLOCK_ROWS
    small, large = peak_of_chunking(tmp_path, 3 * block), peak_of_chunking(tmp_path, 6 * block)

    assert large < 1.25 * small
    graph = ChunkedGraph.load(tmp_path / str(6 * block))
    pairs = list(read.edge_blocks(graph.edges["n:r:n"], 0, 6 * block))
    weights = np.concatenate(list(read.feature_blocks(graph.edge_data["n:r:n"]["w"], 0, 6 * block)))
    expected = np.arange(6 * block) % 7
    assert np.array_equal(np.concatenate([src for src, _ in pairs]), expected)
    assert np.array_equal(np.concatenate([dst for _, dst in pairs]), expected[::-1])
    assert np.array_equal(weights[:, 0], expected)
