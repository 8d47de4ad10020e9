"""Each way in which a partition can be wrong is found and named; a right one holds."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dglrun.arrays import Array
from dglrun.commands import verify as verify_command
from dglrun.dispatch.pipeline import dispatch
from dglrun.dispatch.source import Options
from dglrun.formats.dgl.arrays import ArraySpec, StoredArray
from dglrun.formats.dgl.folder import load_folder
from dglrun.formats.dgl.graphs import read_graph
from dglrun.formats.dgl.tensors import read_tensors, tensor_file
from dglrun.mpi import checksum
from dglrun.mpi.collectives import SingleRank
from dglrun.report.measure import measure
from dglrun.verify import serving
from dglrun.verify.part import PartChecks, _largest
from tests.support.commands import run_command
from tests.support.heterographs import Toy, a_toy, toys


def a_partition(
    folder: Path, toy: Toy | None = None, *, ids: bool = True, formats: str = "coo", sums: bool = False
) -> Path:
    """A dispatched toy: `folder/in` is its source, the result is the JSON's path."""
    source = (toy or a_toy(parts=2)).write(folder / "in", chunks=2)
    wanted = Options(
        source,
        source / "parts",
        folder / "out",
        save_orig_nids=ids,
        save_orig_eids=ids,
        formats=tuple(formats.split(",")),
        source_sums=sums,
    )
    dispatch(wanted, SingleRank(), lambda _: None)
    return folder / "out/toy.json"


def verify(json_path: Path, *more: str) -> int:
    return run_command(verify_command, "verify", str(json_path), *more)


def verify_against_source(json_path: Path) -> int:
    source = json_path.parents[1] / "in"
    return verify(json_path, "--in-dir", str(source), "--partitions-dir", str(source / "parts"))


def poke(stored: StoredArray, row: int, value: Any) -> None:
    """Overwrite one row of a stored array."""
    data = np.broadcast_to(np.asarray(value, stored.spec.dtype), (1, *stored.spec.shape[1:])).tobytes()
    with stored.path.open("r+b") as file:
        file.seek(stored.offset + row * stored.spec.row_bytes)
        file.write(data)


def swap(stored: StoredArray, one: int, two: int) -> None:
    rows = stored.rows(one, one + 1)[0], stored.rows(two, two + 1)[0]
    poke(stored, one, rows[1])
    poke(stored, two, rows[0])


def copy(stored: StoredArray, origin: int, target: int) -> None:
    poke(stored, target, stored.rows(origin, origin + 1)[0])


def graph(out: Path) -> Any:
    return read_graph(out / "part0/graph.dgl")


def other_source(out: Path) -> None:
    """Move the source of the first edge to another inner node of its type."""
    src = graph(out).formats["coo"]["src"]
    poke(src, 0, 0 if src.rows(0, 1)[0] else 1)


def leave_a_halo_node(out: Path) -> None:
    """Let the edges of the first halo node come from an inner node instead."""
    src = graph(out).formats["coo"]["src"]
    for row in np.flatnonzero(src.rows(0, len(src)) == inner(out)):
        poke(src, int(row), 0)


def rewrite_node_features(path: Path, change: Callable[[dict[str, Array]], None]) -> None:
    """Write a part's file of node features again with others in it."""
    data = {name: array.rows(0, len(array)) for name, array in read_tensors(path).items()}
    change(data)
    with tensor_file(path, [ArraySpec(name, rows.dtype, rows.shape) for name, rows in data.items()]) as file:
        for name, rows in data.items():
            file.put(name, 0, rows)


def change_json(out: Path, change: Callable[[dict[str, Any]], None]) -> None:
    described = json.loads((out / "toy.json").read_text())
    change(described)
    (out / "toy.json").write_text(json.dumps(described))


def inner(out: Path) -> int:
    return int(graph(out).node_fields["inner_node"].rows(0, graph(out).num_nodes).sum())


FAULTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "an inner ID": (lambda o: poke(graph(o).node_fields["_ID"], 3, 4), "part 0: nodes 0 on: inner IDs"),
    "an ID that does not exist": (
        lambda o: poke(graph(o).node_fields["_ID"], 3, 999),
        "part 0: node 3: its ID does not exist",
    ),
    "a node type": (lambda o: poke(graph(o).node_fields["_TYPE"], 0, 2), "node 0: its _TYPE"),
    "inner_node": (lambda o: poke(graph(o).node_fields["inner_node"], 0, 0), "node 0: inner_node is wrong"),
    "a halo node twice": (
        lambda o: poke(
            graph(o).node_fields["_ID"],
            inner(o),
            graph(o).node_fields["_ID"].rows(inner(o) + 1, inner(o) + 2)[0],
        ),
        "part 0: a halo node is there twice",
    ),
    "a halo node of its own": (
        lambda o: poke(graph(o).node_fields["_ID"], inner(o), 0),
        "part 0: a halo node is the part's own",
    ),
    "a halo node that nothing needs": (leave_a_halo_node, "is an end of no edge"),
    "an edge ID": (lambda o: poke(graph(o).edge_fields["_ID"], 5, 6), "part 0: edges 0 on: inner IDs"),
    "an edge type": (lambda o: poke(graph(o).edge_fields["_TYPE"], 5, 1), "edge 5: its _TYPE"),
    "inner_edge": (lambda o: poke(graph(o).edge_fields["inner_edge"], 5, 0), "edge 5: inner_edge is wrong"),
    "an end outside the part": (
        lambda o: poke(graph(o).formats["coo"]["src"], 7, 999),
        "edge 7: an end point is no node of the part",
    ),
    "a destination in the halo": (
        lambda o: poke(graph(o).formats["coo"]["dst"], 7, inner(o)),
        "edge 7: an inner edge ends at a halo node",
    ),
    "ends of another type": (
        lambda o: poke(graph(o).formats["coo"]["dst"], 7, 0),
        "edge 7: its ends are not of its relation's types",
    ),
    "another source of the same type": (other_source, "n0:r0:n1 edges: different: "),
    "two edges exchanged": (
        lambda o: swap(graph(o).formats["coo"]["dst"], 0, 5),
        "n0:r0:n1 edges: different: ",
    ),
    "a feature row": (
        lambda o: poke(read_tensors(o / "part1/node_feat.dgl")["n0/feat"], 2, 0.5),
        "node feature n0/feat: different: ",
    ),
    "two feature rows exchanged": (
        lambda o: swap(read_tensors(o / "part1/node_feat.dgl")["n1/half"], 0, 1),
        "node feature n1/half: different: ",
    ),
    "an edge feature row": (
        lambda o: poke(read_tensors(o / "part0/edge_feat.dgl")["n0:r0:n1/weight"], 0, 7),
        "edge feature n0:r0:n1/weight: different: ",
    ),
    "a node twice": (
        lambda o: poke(
            read_tensors(o / "part0/orig_nids.dgl")["n0"],
            0,
            read_tensors(o / "part1/orig_nids.dgl")["n0"].rows(0, 1)[0],
        ),
        "n0 nodes: missing: ",
    ),
    "an original ID that does not exist": (
        lambda o: poke(read_tensors(o / "part0/orig_nids.dgl")["n0"], 0, -5),
        "n0 nodes: missing: ",
    ),
    "an edge twice": (
        lambda o: poke(
            read_tensors(o / "part0/orig_eids.dgl")["n0:r0:n1"],
            0,
            read_tensors(o / "part0/orig_eids.dgl")["n0:r0:n1"].rows(1, 2)[0],
        ),
        "n0:r0:n1 edges: missing: ",
    ),
    "another owner": (
        lambda o: (o.parent / "in/parts/n2.txt").write_text("1\n" * 7),
        "n2 nodes: different: ",
    ),
    "a gap between ranges": (
        lambda o: change_json(o, lambda j: j["node_map"]["n1"].__setitem__(0, [0, 5])),
        "node_map: n1 in part 0: expected a range from",
    ),
    "a total": (lambda o: change_json(o, lambda j: j.update(num_edges=3)), "num_edges is 3, the ranges hold"),
    "a file cut short": (
        lambda o: (o / "part0/graph.dgl").write_bytes((o / "part0/graph.dgl").read_bytes()[:5000]),
        "part0/graph.dgl",
    ),
    "a missing file": (lambda o: (o / "part1/edge_feat.dgl").unlink(), "part1/edge_feat.dgl does not exist"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: str) -> None:
    """One wrong value anywhere makes verify fail with 65 and say what and where."""
    json_path = a_partition(tmp_path)
    spoil, message = FAULTS[fault]
    assert verify_against_source(json_path) == 0

    spoil(json_path.parent)

    assert verify_against_source(json_path) == 65
    assert message in capsys.readouterr().err


OTHER_FORMS: dict[str, tuple[str, Callable[[Array], Array], str]] = {
    "another column of zeros": (
        "n0/feat",
        lambda rows: np.hstack([rows, np.zeros((len(rows), 1), np.float32)]),
        "node feature n0/feat: rows of float32[4] in part 0, expected float32[3]",
    ),
    "narrower integers": (
        "n0/label",
        lambda rows: rows.astype(np.int32),
        "node feature n0/label: rows of int32[] in part 0, expected int64[]",
    ),
    "the same bits as floats": (
        "n1/label",
        lambda rows: rows.view(np.float64),
        "node feature n1/label: rows of float64[] in part 0, expected int64[]",
    ),
    "the same bytes in one dimension": (
        "n1/half",
        lambda rows: rows.reshape(len(rows), 4),
        "node feature n1/half: rows of float16[4] in part 0, expected float16[2, 2]",
    ),
}


@pytest.mark.parametrize("form", OTHER_FORMS)
def test_a_feature_of_another_dtype_or_shape_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    """The bytes are the source's, filled up with zeros at most; DGL would give training other rows."""
    json_path = a_partition(tmp_path)
    name, other, message = OTHER_FORMS[form]

    rewrite_node_features(
        json_path.parent / "part0/node_feat.dgl", lambda data: data.update({name: other(data[name])})
    )

    assert verify_against_source(json_path) == 65
    assert message in capsys.readouterr().err


def test_a_feature_that_the_source_lacks_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing of it could be compared."""
    json_path = a_partition(tmp_path)

    rewrite_node_features(
        json_path.parent / "part1/node_feat.dgl", lambda data: data.update({"n2/made_up": data["n2/feat"]})
    )

    assert verify_against_source(json_path) == 65
    message = "node feature n2/made_up is in part 1, the source has none of that name"
    assert message in capsys.readouterr().err


def test_rows_that_differ_in_zeros_at_the_end_have_other_hashes() -> None:
    """A hash knows how many bytes it is of."""
    keys, rows = np.arange(5), np.arange(5, dtype=np.int32)

    assert (checksum.hash_rows(keys, rows) != checksum.hash_rows(keys, rows.astype(np.int64))).all()


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_a_second_format_with_other_edges_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    """DGL samples from csc where it is stored, whatever coo holds."""
    json_path = a_partition(tmp_path, formats="coo,csr,csc")
    assert verify_against_source(json_path) == 0
    indices = read_graph(json_path.parent / "part1/graph.dgl").formats[form]["indices"]
    rows = indices.rows(0, len(indices))
    first = int(np.flatnonzero(rows != rows[0])[0])

    swap(indices, 0, first)

    assert verify_against_source(json_path) == 65
    assert f"part 1: format {form} has other edges than format coo" in capsys.readouterr().err


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(toy=toys(), ids=st.booleans(), formats=st.sampled_from(["coo", "csc", "coo,csr,csc"]))
def test_every_dispatched_partition_holds(toy: Toy, ids: bool, formats: str) -> None:
    """With and without original IDs, in every format."""
    with tempfile.TemporaryDirectory() as folder:
        json_path = a_partition(Path(folder), toy, ids=ids, formats=formats)

        assert verify_against_source(json_path) == 0


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(toy=toys(), formats=st.sampled_from(["coo", "csc", "coo,csr,csc"]))
def test_the_checks_of_a_part_count_its_cut_edges_as_the_report_does(toy: Toy, formats: str) -> None:
    """So nobody reads the edges once more to count them."""
    with tempfile.TemporaryDirectory() as folder:
        found = load_folder(a_partition(Path(folder), toy, formats=formats))
        checks = [PartChecks(found, part) for part in range(found.parts)]

        assert not [text for each in checks for text in each.problems()]
        assert [each.cut.tolist() for each in checks] == measure(found).cut.tolist()


@pytest.mark.parametrize("dtype", [np.dtype(np.int32), np.dtype(np.int64)])
def test_numbers_outside_are_noticed(dtype: np.dtype[Any]) -> None:
    """Also the lowest that the dtype has."""
    within: Array = np.array([0, 6, 3], dtype)
    assert _largest(within) == 6
    assert _largest(within[:0]) == -1
    for wrong in (-1, np.iinfo(dtype).min, np.iinfo(dtype).max):
        assert _largest(np.array([0, wrong, 3], dtype)) >= np.iinfo(dtype).max


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_changed_feature_byte_is_noticed(data: st.DataObject) -> None:
    """Without original IDs too: the rows are matched by the assignment."""
    with tempfile.TemporaryDirectory() as folder:
        json_path = a_partition(Path(folder), ids=data.draw(st.booleans()))
        tensors = read_tensors(json_path.parent / "part1/node_feat.dgl")
        stored = tensors[data.draw(st.sampled_from(sorted(tensors)))]
        at = stored.offset + data.draw(st.integers(0, stored.spec.nbytes - 1))
        content = bytearray(stored.path.read_bytes())
        content[at] ^= 1 << data.draw(st.integers(0, 7))
        stored.path.write_bytes(content)

        assert verify_against_source(json_path) == 65


def test_unsorted_in_edges_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Distributed sampling takes far too many edges from a CSC that is not sorted by type."""
    toy = Toy(
        {"a": 1}, {"a:r:a": np.zeros((2, 2), int), "a:s:a": np.zeros((2, 2), int)}, {"a": np.zeros(1, int)}, 1
    )
    json_path = a_partition(tmp_path, toy, formats="csc")

    swap(graph(json_path.parent).formats["csc"]["eids"], 1, 2)

    assert verify(json_path) == 65
    assert "csc: in-edges of a node are not sorted by type" in capsys.readouterr().err


def test_a_source_without_any_ids_to_compare_by_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message says what is needed."""
    json_path = a_partition(tmp_path, ids=False)

    assert verify(json_path, "--in-dir", str(tmp_path / "in")) == 65
    assert "needs them or --partitions-dir" in capsys.readouterr().err


def test_a_part_that_the_server_cannot_load_is_refused_for_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Legal in files: a warning, and a refusal with type, part and remedy on demand."""
    apart = {"n0": np.arange(30) % 2, "n1": np.arange(20) % 2, "n2": np.zeros(7, int)}
    toy = a_toy(edges=(90, 40), parts=2)
    json_path = a_partition(tmp_path, Toy(toy.nodes, toy.edges, apart, 2, toy.node_data, toy.edge_data))
    message = "part 1 has no node of type n2, which has features: DGL's server cannot load it; partition"

    assert verify(json_path) == 0
    assert f"warning: {message}" in capsys.readouterr().err
    for refusing in ("--for-training", "--serving-only"):
        assert verify(json_path, refusing) == 65
        assert f"refused: {message}" in capsys.readouterr().err
    assert len(list(serving.problems(load_folder(json_path)))) == 1


def test_one_changed_hash_among_a_million_is_named() -> None:
    """Two tables that differ in one row differ in their sums; equal ones do not, in any order."""
    keys = np.arange(1 << 20)
    one, two = checksum.hash_columns(keys), checksum.hash_columns(keys)
    two[-1] ^= np.uint64(1)
    mixed = np.random.default_rng(0).permutation(len(keys))
    alone = SingleRank()

    same = checksum.compare(alone, lambda: [(keys, one)], lambda: [(keys[mixed], one[mixed])], len(keys))
    found = checksum.compare(alone, lambda: [(keys, one)], lambda: [(keys, two)], len(keys))

    assert same is None
    assert str(found) == f"different: {len(keys) - 1}"


API_MADE = """
import sys, warnings
warnings.simplefilter("ignore")
import dgl, torch
torch.manual_seed(0)
ends = lambda n, m, k: (torch.randint(n, (k,)), torch.randint(m, (k,)))
relations = {("u", "f", "u"): (60, 60, 300), ("u", "b", "i"): (60, 40, 200), ("i", "c", "u"): (40, 60, 99)}
g = dgl.heterograph({relation: ends(*sizes) for relation, sizes in relations.items()})
for t in g.ntypes:
    g.nodes[t].data["feat"] = torch.rand(g.num_nodes(t), 4)
out, method, formats = sys.argv[1:]
dgl.distributed.partition_graph(g, "toy", 3, out, part_method=method, graph_formats=formats.split(","))
"""


@pytest.mark.dgl
@pytest.mark.parametrize(("method", "formats"), [("random", "coo"), ("metis", "coo,csc"), ("random", "csc")])
def test_what_dgls_api_writes_holds(tmp_path: Path, method: str, formats: str) -> None:
    """Folders of partition_graph, with their halo edges, obey the same rules; DGL's loader agrees."""
    argv = (sys.executable, "-c", API_MADE, str(tmp_path), method, formats)
    subprocess.run(argv, check=True, timeout=120, capture_output=True)

    assert verify(tmp_path / "toy.json", "--dgl") == 0


@pytest.mark.dgl
def test_dgls_loader_is_asked_and_heard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It agrees with a dispatched partition, and its refusal is a refusal."""
    json_path = a_partition(tmp_path)
    assert verify(json_path, "--dgl") == 0

    (tmp_path / "out/part1/graph.dgl").write_bytes(b"nonsense" * 600)

    assert verify(json_path, "--dgl") == 65
    assert "part1/graph.dgl: expected a DGL graph file" in capsys.readouterr().err
