"""DGL assigns the nodes as its partition_graph lets it: the same graph, weights and random numbers."""

import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dglrun.arrays import Array
from dglrun.errors import BackendFailedError, BackendMissingError
from dglrun.formats.chunked.dgl_order import in_dgls_order
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.dgl.folder import load_folder
from dglrun.partitioning import by_dgl, dgl_library
from dglrun.partitioning.dgl_library import DglLibrary, Held
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


def asked_by_dgl(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What DGL's partition_graph asks of its C library from now on."""
    symmetric = dgl.partition._CAPI_DGLMakeSymmetric_Hetero
    metis = dgl.partition._CAPI_DGLMetisPartition_Hetero
    found: dict[str, Any] = {}

    def recording_graph(graph: Any) -> Any:
        found["csc"] = csc(dgl.DGLGraph(gidx=graph))
        return symmetric(graph)

    def recording_parts(graph: Any, k: int, weights: Any, *how: Any) -> Any:
        found.update(k=k, weights=weights.asnumpy().tolist(), how=how)
        return metis(graph, k, weights, *how)

    monkeypatch.setattr(dgl.partition, "_CAPI_DGLMakeSymmetric_Hetero", recording_graph)
    monkeypatch.setattr(dgl.partition, "_CAPI_DGLMetisPartition_Hetero", recording_parts)
    return found


def asked_by_us(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The same of what we ask, and what METIS answers."""
    really = DglLibrary.call
    found: dict[str, Any] = {}

    def recording(library: DglLibrary, name: str, *args: Any) -> Held:
        answer = really(library, name, *args)
        if name.endswith("CreateUnitGraphFromCOO"):
            ends = tuple(torch.from_numpy(held.values().copy()) for held in args[3:5])
            found["csc"] = csc(dgl.graph(ends, num_nodes=args[1]))  # of this DGL makes METIS's graph
        if name.endswith("MetisPartition_Hetero"):
            _, k, weights, *how = args
            found.update(k=k, weights=weights.values().tolist(), how=tuple(how))
            found["parts"] = answer.values().tolist()
        return answer

    monkeypatch.setattr(DglLibrary, "call", recording)
    return found


def csc(graph: Any) -> list[Any]:
    """Columns of a graph's CSC, without the numbers of the edges."""
    return [column.tolist() for column in graph.adj_tensors("csc")[:2]]


@pytest.mark.parametrize("balance", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("kind", RELATIONS)
def test_metis_is_asked_what_partition_graph_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, balance: tuple[bool, bool]
) -> None:
    """Edges in the same order, weights by class and in-degree, and how.

    The rest is METIS, which with several weights does not give the same answer twice.
    """
    source = a_source(tmp_path, RELATIONS[kind], balance[0])
    ours, theirs = asked_by_us(monkeypatch), asked_by_dgl(monkeypatch)

    found = by_dgl.assign(in_dgls_order(source), "metis", 2, *balance, seed=1)

    graph = dgl_partition_graph.load(source)
    masks = dgl_partition_graph.train_masks(["a"], graph) if balance[0] else None
    dgl.distributed.partition_graph(
        graph, "toy", 2, str(tmp_path), balance_ntypes=masks, balance_edges=balance[1]
    )
    parts = ours.pop("parts")
    assert ours == theirs
    assert list(found) == graph.ntypes
    assert np.concatenate(list(found.values())).tolist() == parts


def test_torch_and_dgl_are_not_imported(tmp_path: Path) -> None:
    """They would take a second and 230 MiB."""
    a_source(tmp_path, RELATIONS["several"], masked=False)
    program = (
        "import sys\n"
        "from dglrun.commands import dgl_api\n"
        "code = dgl_api.main(sys.argv[1:])\n"
        "sys.exit(code or ', '.join({'dgl', 'torch'} & set(sys.modules)) or None)"
    )
    flags = ("--in-dir", tmp_path / "in", "--out-dir", tmp_path / "out", "--num-parts", 2)

    ended = subprocess.run(
        (sys.executable, "-c", program, *map(str, flags), "--method", "metis"),
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr


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
    """DGL then gives an array without values."""
    source = in_dgls_order(a_source(tmp_path, RELATIONS["several"], masked=False))
    really = DglLibrary.call

    def failing(library: DglLibrary, name: str, *args: Any) -> Held:
        return library.array(0) if "Metis" in name else really(library, name, *args)

    monkeypatch.setattr(DglLibrary, "call", failing)

    with pytest.raises(BackendFailedError, match="METIS, as DGL calls it, did not assign the nodes"):
        by_dgl.assign(source, "metis", 2, False, False, seed=1)


def test_a_call_that_fails_says_what_dgl_says() -> None:
    """An array where a graph is expected."""
    library = dgl_library.load()

    with pytest.raises(BackendFailedError, match=r"DGL's partition\._CAPI_DGLMakeSymmetric_Hetero: "):
        library.call("partition._CAPI_DGLMakeSymmetric_Hetero", library.array(1))


def test_a_function_that_this_dgl_has_not() -> None:
    """Of a later DGL perhaps."""
    with pytest.raises(BackendMissingError, match=r"libdgl.so: no function partition\._CAPI_Gone"):
        dgl_library.load().call("partition._CAPI_Gone")


def test_values_outlive_the_array_that_they_are_of() -> None:
    """They keep it, as numpy's views do."""
    library = dgl_library.load()
    values = library.array(1 << 16).values()
    values[:] = 7
    others = [library.array(1 << 16).values() for _ in range(4)]

    for other in others:
        other[:] = 1

    assert (values == 7).all()


@pytest.mark.parametrize("lacking", ["dgl", "its library"])
def test_without_dgl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lacking: str) -> None:
    """It is named."""
    (tmp_path / "_ffi").mkdir()
    (tmp_path / "_ffi/libinfo.py").write_text("def find_lib_path(): raise RuntimeError('no such file')\n")
    spec = None if lacking == "dgl" else ModuleSpec("dgl", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(dgl_library, "find_spec", lambda _: spec)

    with pytest.raises(BackendMissingError, match="dgl"):
        dgl_library.load()


def test_a_library_that_needs_torchs_is_loaded_after_dgl(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one for CUDA, whose libraries come with torch."""
    imported: list[str] = []

    class Linked(DglLibrary):
        def __init__(self, path: Path) -> None:
            if not imported:
                raise OSError("libcusparse.so.12: cannot open shared object file")
            super().__init__(path)

    monkeypatch.setattr(dgl_library, "DglLibrary", Linked)
    monkeypatch.setattr(dgl_library, "import_module", imported.append)

    assert len(dgl_library.load().array(3).values()) == 3
    assert imported == ["dgl"]


def test_one_part_needs_no_dgl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """partition_graph runs no METIS for it either."""
    source = in_dgls_order(a_source(tmp_path, RELATIONS["several"], masked=False))
    monkeypatch.setattr(dgl_library, "load", None)

    found = by_dgl.assign(source, "metis", 1, False, False, seed=1)

    assert {name: parts.tolist() for name, parts in found.items()} == {
        name: [0] * 60 for name in ("a", "a!", "b")
    }
