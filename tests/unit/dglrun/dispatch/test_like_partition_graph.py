"""What we write for DGL's partition_graph is what it writes itself, for the same assignment, as DGL loads it.

Equal is all but the order of nodes and edges inside a (part, type), which DGL leaves to unstable sorts, and
that of a part's halo: so rows are compared by original ID, and IDs have to count through the part.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dglrun.arrays import Array
from dglrun.commands import verify
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.dgl.folder import PartitionFolder, load_folder
from dglrun.partitioning import by_dgl
from tests.support.commands import run_command
from tests.support.heterographs import QUIET, WITH_NODES, Toy

torch = pytest.importorskip("torch")
dgl = pytest.importorskip("dgl")
# Ours: where they cannot be imported, that is a failure.
from dglrun.commands import dgl_api, dgl_partition_graph  # noqa: E402

pytestmark = [
    pytest.mark.dgl,
    # DGL leaves /proc/self/status open.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

DTYPES = ("<f4", "<f8", "<f2", "<i8", "<i4", "<i2", "<i1", "u1", "?")


@st.composite
def whole_toys(draw: st.DrawFn) -> Toy:
    """Heterographs whose parts have nodes and edges of every type: others partition_graph cannot write."""
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    parts = draw(st.integers(1, 4))
    names = draw(st.lists(st.sampled_from(("a", "a!", "b", "é", "_")), min_size=1, max_size=4, unique=True))
    nodes = {name: parts + draw(st.integers(0, 9)) for name in names}
    assignment = {
        name: rng.permutation(np.append(np.arange(parts), rng.integers(0, parts, count - parts)))
        for name, count in nodes.items()
    }
    pairs = st.tuples(st.sampled_from(names), st.sampled_from("xyz!"), st.sampled_from(names))
    edges: dict[str, Array] = {}
    for src, relation, dst in draw(st.lists(pairs, min_size=1, max_size=4, unique=True)):
        first = [np.flatnonzero(assignment[dst] == part)[0] for part in range(parts)]
        count = draw(st.integers(0, 60))
        targets = np.append(first, rng.integers(0, nodes[dst], count))
        sources = rng.integers(0, nodes[src], len(targets))
        edges[f"{src}:{relation}:{dst}"] = np.stack([sources, rng.permutation(targets)], axis=1)
    kinds = st.lists(st.sampled_from(DTYPES), max_size=2, unique=True)
    node_data = {name: _features(rng, draw(kinds), count) for name, count in nodes.items()}
    edge_data = {name: _features(rng, draw(kinds), len(ends)) for name, ends in edges.items()}
    return Toy(nodes, edges, assignment, parts, node_data, edge_data)


def _features(rng: np.random.Generator, dtypes: Sequence[str], rows: int) -> dict[str, Array]:
    shapes = ((rows,), (rows, 3))
    return {f"f{at}": rng.integers(0, 100, shapes[at]).astype(dtype) for at, dtype in enumerate(dtypes)}


def by_us(source: Path, toy: Toy, out: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Partition by the toy's assignment; the JSON."""
    with monkeypatch.context() as patch:
        patch.setattr(by_dgl, "assign", lambda *_: toy.assignment)
        flags = ("--in-dir", source, "--out-dir", out, "--num-parts", toy.parts, "--method", "random")
        assert dgl_api.main(list(map(str, flags))) == 0
    return out / "toy.json"


def by_partition_graph(source: Path, toy: Toy, out: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let DGL do the same, and keep the original IDs beside it."""
    graph = dgl_partition_graph.load(ChunkedGraph.load(source))
    assigned = torch.from_numpy(np.concatenate([toy.assignment[ntype] for ntype in graph.ntypes]))
    with monkeypatch.context() as patch:
        patch.setattr(dgl.distributed.partition, "random_choice", lambda *_: assigned)
        mapping = dgl.distributed.partition_graph(
            graph, toy.name, toy.parts, str(out), part_method="random", return_mapping=True
        )
    for kind, found in zip("ne", mapping, strict=True):
        dgl_partition_graph.save_mapping(load_folder(out / "toy.json"), kind, found)
    return out / "toy.json"


def described(path: Path) -> dict[str, Any]:
    """The JSON without what DGL does not write."""
    found = json.loads(path.read_text())
    found.pop("part_backend", None)
    return dict(found)


def loaded(path: Path, part: int) -> dict[str, Any]:
    """A part as DGL loads it: its nodes and edges in the order of their types and original IDs."""
    graph, node_feats, edge_feats, book, name, ntypes, etypes = dgl.distributed.load_partition(
        str(path), part
    )
    folder = load_folder(path)
    node_rows = originals(folder, "node")[graph.ndata["_ID"].numpy()]
    edge_rows = originals(folder, "edge")[graph.edata["_ID"].numpy()]
    nodes, edges = (np.lexsort(rows.T[::-1]) for rows in (node_rows, edge_rows))
    src, dst = (node_rows[end.numpy()] for end in graph.edges())
    return {
        "graph": (name, ntypes, etypes),
        "book": [book.metadata(), *([book.partid2nids(part, t).numpy() for t in ntypes])],
        "inner IDs": (inner_ids(graph.ndata, "node"), inner_ids(graph.edata, "edge")),
        "nodes": node_rows[nodes],
        "node data": fields(graph.ndata, nodes),
        "edges": np.column_stack([edge_rows, src, dst])[edges],
        "edge data": fields(graph.edata, edges),
        "node_feats": by_original(node_feats, folder.original_ids(part, "node")),
        "edge_feats": by_original(edge_feats, folder.original_ids(part, "edge")),
    }


def originals(folder: PartitionFolder, kind: str) -> Array:
    """Type and original ID by shuffle-global ID: int64, shape (nodes or edges, 2)."""
    table = [np.empty((0, 2), np.int64)]
    for part in range(folder.parts):
        stored = folder.original_ids(part, kind)
        assert stored is not None
        for at, name in enumerate(folder.ntypes if kind == "node" else folder.etypes):
            rows = stored[name].rows(0, len(stored[name]))
            table.append(np.column_stack([np.full(len(rows), at), rows]))
    return np.concatenate(table)


def inner_ids(data: Any, kind: str) -> Array:
    """IDs of the part's own nodes or edges, which have to come first."""
    inner = data[f"inner_{kind}"].numpy().astype(bool)
    assert inner[: inner.sum()].all()
    found: Array = data["_ID"].numpy()[inner]
    return found


def fields(data: Any, order: Array) -> dict[str, tuple[str, Array | None]]:
    """The dtype and values of each field; of the IDs the dtype."""
    return {
        key: (str(values.dtype), None if key == "_ID" else values.numpy()[order])
        for key, values in data.items()
    }


def by_original(features: Any, ids: Any) -> dict[str, tuple[str, Array]]:
    """The dtype and rows of each feature, in the order of the original IDs of its type."""
    order = {name: np.argsort(stored.rows(0, len(stored))) for name, stored in ids.items()}
    return {
        key: (str(values.dtype), values.numpy()[order[key.split("/")[0]]]) for key, values in features.items()
    }


def same(ours: Any, theirs: Any) -> None:
    """Compare through dicts, tuples and arrays."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key, value in theirs.items():
            same(ours[key], value)
    elif isinstance(theirs, list | tuple):
        assert len(ours) == len(theirs)
        for mine, value in zip(ours, theirs, strict=True):
            same(mine, value)
    elif hasattr(theirs, "shape"):
        np.testing.assert_array_equal(ours, theirs)
    else:
        assert ours == theirs


@settings(parent=QUIET, max_examples=30)
@given(toy=whole_toys())
def test_dgl_loads_the_same(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, toy: Toy
) -> None:
    """Ranges, types, fields, nodes, edges, halo, features and original IDs of every part."""
    folder = tmp_path_factory.mktemp("like")
    source = toy.write(folder / "in", chunks=2)

    ours = by_us(source, toy, folder / "ours", monkeypatch)

    theirs = by_partition_graph(source, toy, folder / "theirs", monkeypatch)
    assert described(ours) == described(theirs)
    for part in range(toy.parts):
        same(loaded(ours, part), loaded(theirs, part))


@settings(parent=QUIET, max_examples=30)
@given(toy=WITH_NODES)
def test_parts_without_nodes_or_edges_of_a_type_hold(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, toy: Toy
) -> None:
    """Which partition_graph cannot write: DGL's loader agrees, and every edge that leaves a part is in it."""
    folder = tmp_path_factory.mktemp("like")
    source = toy.write(folder / "in")
    toy = replace(toy, parts=min(toy.parts, sum(toy.nodes.values())))
    toy.assignment.update({name: parts % toy.parts for name, parts in toy.assignment.items()})

    ours = by_us(source, toy, folder / "ours", monkeypatch)

    assert run_command(verify, "verify", str(ours), "--in-dir", str(source)) == 0
    names = load_folder(ours).etypes
    for part in range(toy.parts):
        found = loaded(ours, part)
        is_halo = found["edge data"]["inner_edge"][1] == 0
        halo = found["edges"][is_halo][:, :2]
        assert halo.tolist() == expected_halo(toy, names, part)


def expected_halo(toy: Toy, etypes: Sequence[str], part: int) -> list[list[int]]:
    """Type and original ID of the edges from a node of the part to one of another."""
    return [
        [at, edge]
        for at, name in enumerate(etypes)
        for edge, (src, dst) in enumerate(toy.edges[name])
        if toy.assignment[name.split(":")[0]][src] == part != toy.assignment[name.split(":")[2]][dst]
    ]
