"""DGL assigns the nodes as its partition_graph lets it: the same graph, weights and random numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dglrun.arrays import Array
from dglrun.errors import BackendFailedError
from dglrun.formats.chunked.dgl_order import in_dgls_order
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.dgl.folder import load_folder
from dglrun.partitioning import by_dgl
from tests.support.heterographs import Toy

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

RELATIONS = {
    "homogeneous": ("a:x:a",),
    "one node type": ("a:y:a", "a:x:a"),
    "several": ("b:x:a", "a:y:b", "a!:z:a", "a:z:a"),
}


def a_source(folder: Path, relations: tuple[str, ...], masked: bool) -> ChunkedGraph:
    """Types in another order than DGL's, one of them with a mask."""
    rng = np.random.default_rng(1)
    nodes = {name: 60 for name in ("b", "a", "a!") if any(name in each.split(":") for each in relations)}
    edges = {each: rng.integers(0, 60, (200, 2)) for each in relations}
    data: dict[str, dict[str, Array]] = {"a": {"train_mask": np.arange(60) % 3 == 0}} if masked else {}
    toy = Toy(nodes, edges, {name: np.zeros(60, np.int64) for name in nodes}, 1, data)
    return ChunkedGraph.load(toy.write(folder / "in", chunks=2))


def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What METIS is asked for from now on."""
    found: list[dict[str, Any]] = []

    def record(graph: Any, k: int, **more: Any) -> Any:
        columns = [column.tolist() for column in graph.adj_tensors("csc")]  # of which DGL makes METIS's graph
        balance = more.pop("balance_ntypes")
        classes = None if balance is None else np.unique(balance.numpy(), return_inverse=True)[1].tolist()
        named = {"balance_edges": more.get("balance_edges", False), "objtype": more.get("objtype", "cut")}
        found.append(
            {"k": k, "csc": columns, "degrees": graph.in_degrees().tolist(), "classes": classes, **named}
        )
        return torch.arange(graph.num_nodes()) % k

    monkeypatch.setattr(dgl, "metis_partition_assignment", record)
    monkeypatch.setattr(dgl.distributed.partition, "metis_partition_assignment", record)
    return found


@pytest.mark.parametrize("balance", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("kind", RELATIONS)
def test_metis_is_asked_what_partition_graph_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, balance: tuple[bool, bool]
) -> None:
    """Edges in the same numbers, classes to balance, and whether edges are."""
    source, calls = a_source(tmp_path, RELATIONS[kind], balance[0]), asked(monkeypatch)

    ours = by_dgl.assign(in_dgls_order(source), "metis", 2, *balance, seed=1)

    graph = dgl_partition_graph.load(source)
    masks = dgl_partition_graph.train_masks(["a"], graph) if balance[0] else None
    dgl.distributed.partition_graph(
        graph, "toy", 2, str(tmp_path), balance_ntypes=masks, balance_edges=balance[1]
    )
    assert calls[0] == calls[1]
    assert list(ours) == graph.ntypes
    assert np.concatenate(list(ours.values())).tolist() == (np.arange(graph.num_nodes()) % 2).tolist()


def test_random_parts_are_those_of_partition_graph(tmp_path: Path) -> None:
    """Of the same seed."""
    source = a_source(tmp_path, RELATIONS["several"], masked=False)
    flags = ("--in-dir", tmp_path / "in", "--out-dir", tmp_path / "ours", "--num-parts", 3, "--seed", 7)

    assert dgl_api.main([*map(str, flags), "--method", "random"]) == 0

    dgl.seed(7)
    np.random.seed(7)
    graph = dgl_partition_graph.load(source)
    dgl.distributed.partition_graph(graph, "toy", 3, str(tmp_path / "theirs"), part_method="random")
    ours, theirs = (load_folder(tmp_path / name / "toy.json") for name in ("ours", "theirs"))
    assert (ours.nodes.counts == theirs.nodes.counts).all()
    assert (ours.edges.counts == theirs.edges.counts).all()


def test_a_metis_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DGL then returns None."""
    source = in_dgls_order(a_source(tmp_path, RELATIONS["several"], masked=False))
    monkeypatch.setattr(dgl, "metis_partition_assignment", lambda *_, **__: None)

    with pytest.raises(BackendFailedError, match="METIS, as DGL calls it, did not assign the nodes"):
        by_dgl.assign(source, "metis", 2, False, False, seed=1)


def test_one_part_needs_no_dgl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """partition_graph runs no METIS for it either."""
    source = in_dgls_order(a_source(tmp_path, RELATIONS["several"], masked=False))
    monkeypatch.setattr(dgl, "metis_partition_assignment", None)

    found = by_dgl.assign(source, "metis", 1, False, False, seed=1)

    assert {name: parts.tolist() for name, parts in found.items()} == {
        name: [0] * 60 for name in ("a", "a!", "b")
    }
