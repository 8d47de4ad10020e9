"""ParMETIS text: the three files, the two-list form, the pieces, the part file, and the way back."""

import tracemalloc
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglrun.commands import convert as convert_command
from dglrun.errors import DataError, UnwritableError
from dglrun.formats import assignment
from dglrun.formats.chunked import write
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.id_map import IdMap
from dglrun.formats.parmetis import from_parmetis, pm_dglpart_output, to_parmetis
from dglrun.formats.parmetis.spill import Spill
from tests.support.commands import run_command
from tests.support.heterographs import QUIET, Toy, edges_of, toys


def a_graph(folder: Path) -> ChunkedGraph:
    """Three nodes of type a, four of type b; a self-loop and an edge given twice."""
    edges = {
        "a:r:b": np.array([[0, 0], [1, 3], [0, 0], [2, 1]]),
        "a:s:a": np.array([[0, 1], [2, 2]]),
    }
    return write.graph(folder, "g", {"a": 3, "b": 4}, edges)


def test_the_three_files_are_the_guides(tmp_path: Path) -> None:
    """Node rows with one-hot weights as in the guide's example; loops and copies are kept apart."""
    graph = a_graph(tmp_path / "in")

    done = to_parmetis.to_text(graph, tmp_path / "txt", "g")

    def lines(name: str) -> list[str]:
        return (tmp_path / "txt" / name).read_text().splitlines()

    assert done == to_parmetis.Written(nodes=7, edges=4, self_loops=1, duplicates=1)
    assert lines("g_stats.txt") == ["7 4 2"]
    assert lines("g_nodes.txt") == [
        "0 1 0 0", "0 1 0 1", "0 1 0 2", "1 0 1 0", "1 0 1 1", "1 0 1 2", "1 0 1 3",
    ]  # fmt: skip
    assert lines("g_edges.txt") == ["0 3 0 0", "1 6 1 0", "2 4 3 0", "0 1 0 1"]
    assert lines("g_removed_edges.txt") == ["0 3 2 0", "2 2 1 1"]


def test_the_two_list_form_names_every_file(tmp_path: Path) -> None:
    """Absolute paths, end exclusive, two columns for edges."""
    graph = a_graph(tmp_path / "in")

    to_parmetis.to_lists(graph, tmp_path / "txt", "g", 2, by_degree=True)

    nodes = [line.split() for line in (tmp_path / "txt" / "g_nfiles.txt").read_text().splitlines()]
    edges = (tmp_path / "txt" / "g_efiles.txt").read_text().splitlines()
    assert [span[1:] for span in nodes] == [["0", "3"], ["3", "7"]]
    assert Path(nodes[1][0]).read_text().splitlines()[0] == "1 0 3 0"
    pairs = [line for path in edges for line in Path(path).read_text().splitlines()]
    assert sorted(pairs) == ["0 1", "0 3", "1 6", "2 4"]


@QUIET
@given(toy=toys(), files_=st.integers(1, 3))
def test_text_leads_back_to_the_same_graph(
    tmp_path_factory: pytest.TempPathFactory, toy: Toy, files_: int
) -> None:
    """Removed edges are restored, edge IDs are kept, types may be empty."""
    folder = tmp_path_factory.mktemp("g")
    graph = ChunkedGraph.load(toy.write(folder / "in"))
    to_parmetis.to_text(graph, folder / "txt", "g")

    again = from_parmetis.from_text(folder / "txt", "g", folder / "out", graph.ntypes, graph.etypes, files_)

    assert (again.num_nodes, again.num_edges) == (graph.num_nodes, graph.num_edges)
    for etype, pairs in toy.edges.items():
        found = edges_of(again, etype)
        assert found == pairs.tolist()


@QUIET
@given(toy=toys(), files_=st.integers(1, 4))
def test_the_two_list_form_leads_back_where_the_ends_tell_the_type(
    tmp_path_factory: pytest.TempPathFactory, toy: Toy, files_: int
) -> None:
    """The same edges; their order is that of the files. Else it is refused, as it has no edge types."""
    folder = tmp_path_factory.mktemp("g")
    graph = ChunkedGraph.load(toy.write(folder / "in"))
    to_parmetis.to_lists(graph, folder / "txt", "g", files_)
    ends = [etype.split(":")[::2] for etype in graph.etypes]
    is_told = all(ends.count(pair) == 1 for pair in ends)

    with nullcontext() if is_told else pytest.raises(DataError, match="join the same node types"):
        again = from_parmetis.from_text(folder / "txt", "g", folder / "out", graph.ntypes, graph.etypes, 2)

    if is_told:
        assert (again.num_nodes, again.num_edges) == (graph.num_nodes, graph.num_edges)
        for etype, pairs in toy.edges.items():
            found = edges_of(again, etype)
            assert sorted(found) == sorted(pairs.tolist())


BAD_TEXT = {
    "g_nfiles.txt": (
        "g_nodes-0.txt 0 3\ng_nodes-1.txt 4 7\n",
        "g_nfiles.txt: line 2: expected start 3, got 4",
    ),
    "g_efiles.txt": ("g_edges-0.txt\n", "g_stats.txt says 4 lines, got"),
    "g_nodes-1.txt": ("1 0 1 0\n1 0 1 1\n7 0 1 2\n1 0 1 3\n", r"g_nodes-1.txt: line 3: expected a node type"),
    "g_edges-1.txt": ("0 99\n", r"g_edges-1.txt: line 1: expected a node from 0 to 6, got 99"),
    "g_removed_edges.txt": (
        "0 3 2 0\n2 2 1 9\n",
        r"g_removed_edges.txt: line 2: expected an edge type from 0",
    ),
}


@pytest.mark.parametrize("name", BAD_TEXT)
def test_what_is_wrong_in_one_of_many_files_is_named_by_that_file_and_its_line(
    tmp_path: Path, name: str
) -> None:
    """Nothing is written."""
    graph = a_graph(tmp_path / "in")
    to_parmetis.to_lists(graph, tmp_path / "txt", "g", 2)
    bad, message = BAD_TEXT[name]
    (tmp_path / "txt" / name).write_text(bad)

    with pytest.raises(DataError, match=message):
        from_parmetis.from_text(tmp_path / "txt", "g", tmp_path / "out", graph.ntypes, graph.etypes, 1)

    assert not (tmp_path / "out").exists()


def test_a_type_without_nodes_has_no_weights(tmp_path: Path) -> None:
    """ParMETIS refuses a constraint that is 0 for every node."""
    graph = write.graph(tmp_path / "in", "g", {"a": 2, "none": 0, "b": 1}, {"a:r:b": np.array([[0, 0]])})

    to_parmetis.to_text(graph, tmp_path / "txt", "g")

    assert (tmp_path / "txt/g_stats.txt").read_text() == "3 1 2\n"
    assert (tmp_path / "txt/g_nodes.txt").read_text() == "0 1 0 0\n0 1 0 1\n2 0 1 0\n"


def test_files_with_more_edges_than_the_metadata_says_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last ones would be lost."""
    graph = a_graph(tmp_path / "in")
    with Path(str(graph.edges["a:r:b"].paths[0])).open("a") as file:
        file.write("2 2\n")

    code = run_command(
        convert_command,
        "convert",
        "to-parmetis",
        "--in-dir",
        str(tmp_path / "in"),
        "--out-dir",
        str(tmp_path / "txt"),
    )

    assert code == 65
    assert "edges of a:r:b: the metadata says 4 rows, the files have 5" in capsys.readouterr().err
    assert not (tmp_path / "txt").exists()


def write_pieces(toy: Toy, folder: Path) -> None:
    """What pm_dglpart writes for the toy's assignment: a line per node, in each part's file."""
    folder.mkdir()
    new_id = 0
    for part in range(toy.parts):
        rows = []
        for kind, (ntype, parts) in enumerate(toy.assignment.items()):
            weighted = [other for other, count in enumerate(toy.nodes.values()) if count]
            weights = " ".join(str(int(kind == other)) for other in weighted)
            for own in np.flatnonzero(parts == part):
                rows.append(f"{new_id} {kind} {weights} {own}\n")
                new_id += 1
            assert len(parts) == toy.nodes[ntype]
        (folder / f"p{part:03}-g_nodes.txt").write_text("".join(rows))


@QUIET
@given(toy=toys().filter(lambda toy: any(toy.nodes.values())), seed=st.integers(0, 9))
def test_both_outputs_become_the_assignment(
    tmp_path_factory: pytest.TempPathFactory, toy: Toy, seed: int
) -> None:
    """Pieces and the unsorted part file."""
    folder = tmp_path_factory.mktemp("g")
    graph = ChunkedGraph.load(toy.write(folder / "in"))
    write_pieces(toy, folder / "pieces")
    flat = np.concatenate(list(toy.assignment.values()))
    order = np.random.default_rng(seed).permutation(len(flat))
    (folder / "g_part.8").write_text("".join(f"{node} {flat[node]}\n" for node in order))

    found = [
        pm_dglpart_output.from_pieces(graph, folder / "pieces", "g", toy.parts),
        pm_dglpart_output.from_part_file(graph, folder / "g_part.8", toy.parts),
    ]

    for each in found:
        assert {ntype: parts.tolist() for ntype, parts in each.items()} == {
            ntype: parts.tolist() for ntype, parts in toy.assignment.items()
        }


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("0 0\n1 1\n", "5 nodes have no part, first node 2 of 'a'"),
        ("0 0\n0 1\n", "line 2: node 0 (homogeneous ID) is named twice"),
        ("7 0\n", "line 1: expected a node from 0 to 6, got 7"),
        ("0 2\n", "line 1: expected a part from 0 to 1, got 2"),
        ("0\n", "line 1: expected 2 integers"),
    ],
)
def test_a_part_file_that_is_not_whole_is_refused(tmp_path: Path, body: str, expected: str) -> None:
    """By file and line; DGL's script takes what it finds."""
    graph = a_graph(tmp_path / "in")
    (tmp_path / "g_part.2").write_text(body)

    with pytest.raises(DataError) as caught:
        pm_dglpart_output.from_part_file(graph, tmp_path / "g_part.2", 2)

    assert expected in str(caught.value)


def test_the_command_goes_both_ways(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """to-parmetis, from-parmetis, from-part-file; a part without a node is legal."""
    a_graph(tmp_path / "in")
    part_file = tmp_path / "g_part.3"
    part_file.write_text("".join(f"{node} {node % 2}\n" for node in range(7)))

    def convert(*argv: object) -> int:
        return run_command(convert_command, "convert", *map(str, argv))

    codes = [
        convert("to-parmetis", "--in-dir", tmp_path / "in", "--out-dir", tmp_path / "txt"),
        convert(
            "from-parmetis", "--in-dir", tmp_path / "txt", "--stem", "g", "--out-dir", tmp_path / "again",
            "--ntypes", "a,b", "--etypes", "a:r:b,a:s:a",
        ),
        convert(
            "from-part-file", "--in-dir", tmp_path / "again", "--part-file", part_file, "--num-parts", 3,
            "--out-dir", tmp_path / "parts",
        ),
    ]  # fmt: skip

    meta, parts = assignment.load(tmp_path / "parts", ChunkedGraph.load(tmp_path / "in"))
    assert codes == [0, 0, 0]
    assert (meta.num_parts, parts["b"].tolist()) == (3, [1, 0, 1, 0])
    assert "1 self-loops and 1 duplicate edges left out" in capsys.readouterr().out


def test_the_command_refuses_bad_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """65, the reason, and no graph."""
    to_parmetis.to_text(a_graph(tmp_path / "in"), tmp_path / "txt", "g")
    stats = tmp_path / "txt" / "g_stats.txt"
    stats.write_text("7 5 2\n")

    code = run_command(
        convert_command, "convert", "from-parmetis", "--in-dir", str(tmp_path / "txt"), "--stem", "g",
        "--out-dir", str(tmp_path / "again"), "--ntypes", "a,b", "--etypes", "a:r:b,a:s:a",
    )  # fmt: skip

    assert code == 65
    assert "g_edges.txt: g_stats.txt says 5 lines, got 4" in capsys.readouterr().err
    assert not (tmp_path / "again").exists()


def test_what_a_killed_run_left_goes_with_the_next(tmp_path: Path) -> None:
    """Its temporary folder with the edges, which nobody else knows of."""
    graph = a_graph(tmp_path / "in")
    to_parmetis.to_text(graph, tmp_path / "txt", "g")
    left = tmp_path / "out/.dglrun-text-killed"
    left.mkdir(parents=True)
    (left / "0").write_bytes(b"edges")

    from_parmetis.from_text(tmp_path / "txt", "g", tmp_path / "out", graph.ntypes, graph.etypes, 1)

    assert not left.exists()


def test_attributes_after_the_columns_are_passed_over(tmp_path: Path) -> None:
    """The format allows them at the end of nodes and edges."""
    graph = a_graph(tmp_path / "in")
    to_parmetis.to_text(graph, tmp_path / "txt", "g")
    for name in ("g_nodes.txt", "g_edges.txt"):
        path = tmp_path / "txt" / name
        path.write_text("".join(f"{line} 0.5 x\n" for line in path.read_text().splitlines()))

    back = from_parmetis.from_text(tmp_path / "txt", "g", tmp_path / "out", graph.ntypes, graph.etypes, 1)

    assert (back.num_nodes, [back.edge_count(etype) for etype in back.etypes]) == (graph.num_nodes, [4, 2])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("0 9 0 0", "line 1: expected a node from 0 to 6, got 9"),
        ("0 3 0 -1", "an edge type from 0 to 1, got -1"),
    ],
)
def test_an_edge_out_of_range_is_named_by_its_line(tmp_path: Path, line: str, expected: str) -> None:
    """None is left out silently."""
    graph = a_graph(tmp_path / "in")
    to_parmetis.to_text(graph, tmp_path / "txt", "g")
    path = tmp_path / "txt/g_edges.txt"
    path.write_text("\n".join([line, *path.read_text().splitlines()[1:]]) + "\n")

    with pytest.raises(DataError, match=expected):
        from_parmetis.from_text(tmp_path / "txt", "g", tmp_path / "out", graph.ntypes, graph.etypes, 1)


def in_small_pieces(patch: pytest.MonkeyPatch, rows: int) -> None:
    """Let graphs of a few edges go through several buckets, ranges and blocks."""
    for module, names in ((to_parmetis, ("BLOCK_ROWS", "BUCKET_ROWS", "RANGE")), (from_parmetis, ("RANGE",))):
        for name in names:
            patch.setattr(module, name, rows)


@QUIET
@given(toy=toys(), rows=st.integers(1, 5), by_degree=st.booleans())
def test_pieces_of_any_size_give_the_same_text_and_the_same_graph(
    tmp_path_factory: pytest.TempPathFactory, toy: Toy, rows: int, by_degree: bool
) -> None:
    """Copies, weights and edge IDs are found across buckets and ranges."""
    folder = tmp_path_factory.mktemp("g")
    graph = ChunkedGraph.load(toy.write(folder / "in"))
    whole = to_parmetis.to_text(graph, folder / "whole", "g", by_degree)

    with pytest.MonkeyPatch.context() as patch:
        in_small_pieces(patch, rows)
        done = to_parmetis.to_text(graph, folder / "txt", "g", by_degree)
        again = from_parmetis.from_text(folder / "txt", "g", folder / "out", graph.ntypes, graph.etypes, 2)

    assert done == whole
    names = sorted(path.name for path in (folder / "whole").iterdir())
    assert names == sorted(path.name for path in (folder / "txt").iterdir())
    for name in names:
        assert (folder / "txt" / name).read_bytes() == (folder / "whole" / name).read_bytes()
    for etype, pairs in toy.edges.items():
        assert edges_of(again, etype) == pairs.tolist()
    assert not list((folder / "out").glob(".*"))


def test_edges_of_eight_billion_nodes_are_told_apart(tmp_path: Path) -> None:
    """Source times nodes is beyond 64 bits there: of these three edges the third alone is a copy."""
    nodes = 1 << 33
    edges = np.array([[0, 5], [1 << 31, 5], [0, 5], [nodes - 1, nodes - 2], [nodes - 1, nodes - 1]])
    written = write.graph(tmp_path / "in", "g", {"a": nodes}, {"a:r:a": edges}, layout="numpy")

    with to_parmetis.first_pass(written, tmp_path, True) as found:
        again, weights = found.again.between(0, 5), found.weights.between(nodes - 3, nodes)
        low = found.weights.between(4, 7)

    assert found.written == to_parmetis.Written(nodes, edges=3, self_loops=1, duplicates=1)
    assert again.tolist() == [False, False, True, False, False]
    assert (low.tolist(), weights.tolist()) == ([1, 4, 1], [1, 2, 2])
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_text_of_eight_billion_nodes_is_read(tmp_path: Path) -> None:
    """Homogeneous IDs beyond 32 bits become type-wise ones; the edges come by their IDs."""
    half = 1 << 32
    text = tmp_path / "edges.txt"
    text.write_text(f"0 {half} 1 0\n{half - 1} {2 * half - 1} 0 0\n")
    types = from_parmetis.Types(["a:r:b"], IdMap.of(["a", "b"], [half, half]), is_listed=False)

    found = from_parmetis.Relations(tmp_path, types, from_parmetis.Lines.of([text], 4)).read()

    assert np.asarray(found["a:r:b"]).tolist() == [[half - 1, half - 1], [0, 0]]


@pytest.mark.parametrize("ids", [(0, 1, 1, 3), (0, 1, 2, 4), (0, 1, 2, -1), (1, 2, 3, 4), (0, 0, 0, 0)])
def test_edge_ids_that_are_not_each_once_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ids: tuple[int, ...]
) -> None:
    """Whether they share a bucket with what is missing or not."""
    in_small_pieces(monkeypatch, 2)
    text = tmp_path / "edges.txt"
    text.write_text("".join(f"0 1 {edge} 0\n" for edge in ids))
    types = from_parmetis.Types(["a:r:a"], IdMap.of(["a"], [2]), is_listed=False)

    with pytest.raises(
        DataError, match=r"edges.txt: line \d: expected edge IDs of a:r:a from 0 to 3, each once"
    ):
        from_parmetis.Relations(tmp_path, types, from_parmetis.Lines.of([text], 4)).read()


def peak_of(act: Callable[[], object]) -> int:
    """Bytes of numpy and Python at most while something runs."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways: eight times the nodes and edges, half of them copies, take the same within a quarter."""
    in_small_pieces(monkeypatch, 1 << 12)
    monkeypatch.setattr(from_parmetis, "BLOCK_ROWS", 1 << 12)
    ways: dict[int, list[int]] = {}
    for nodes in (1 << 14, 1 << 17):
        ends = np.random.default_rng(1).integers(0, nodes, (nodes, 2))
        folder = tmp_path / str(nodes)
        pairs = np.concatenate([ends, ends])
        graph = write.graph(folder / "in", "g", {"a": nodes}, {"a:r:a": pairs}, layout="numpy")
        there = partial(to_parmetis.to_text, graph, folder / "txt", "g", True)
        back = partial(from_parmetis.from_text, folder / "txt", "g", folder / "out", ["a"], ["a:r:a"], 8)
        peak_of(partial(to_parmetis.to_text, graph, folder / "once", "g", True))  # what is made only once
        ways[nodes] = [peak_of(there), peak_of(back)]

    small, large = ways.values()
    assert all(more < 1.25 * less + (1 << 20) for less, more in zip(small, large, strict=True)), ways


@pytest.mark.parametrize("rows", [1, 1 << 16])
def test_a_full_disk_names_the_folder_of_the_spill(tmp_path: Path, rows: int) -> None:
    """Be it while rows are added or when the file is closed."""
    folder = tmp_path / "pairs"

    def add() -> None:
        with Spill(folder, 1) as spill:
            (folder / "0").symlink_to("/dev/full")
            spill.add(np.zeros(rows, np.int64), np.zeros((rows, 1), np.int64))

    with pytest.raises(UnwritableError, match=f"{folder}: cannot be written: No space left"):
        add()
