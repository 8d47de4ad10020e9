"""A chunked graph that lies behind Arrow's file systems is read as one in a folder is."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from dglrun.arrays import Array
from dglrun.errors import DataError
from dglrun.formats import store
from dglrun.formats.chunked import check, input_file, read, write
from dglrun.formats.chunked.input_file import File
from dglrun.formats.chunked.metadata import FILENAME, ChunkedGraph
from dglrun.formats.chunked.table import FileSpec
from dglrun.formats.store import Place, StoreError, StoreFailure, bytes_read

ROWS = 5000
EDGES = np.random.default_rng(1).integers(0, ROWS, (3 * ROWS, 2))
FEATURE = np.random.default_rng(2).standard_normal((ROWS, 5)).astype(np.float32)


@pytest.fixture(params=["csv", "numpy", "parquet"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A chunked graph in three files for each table."""
    features = {"n": {"x": FEATURE, "label": np.arange(ROWS)}}
    kind = "numpy" if request.param == "csv" else request.param
    write.graph(
        tmp_path / "graph",
        "g",
        {"n": ROWS},
        {"n:e:n": EDGES},
        features,
        layout=request.param,
        feature_layout=kind,
        files=3,
    )
    return tmp_path / "graph"


def stored(folder: Path, name: str) -> Place:
    """The folder's files on Arrow's file system in memory."""
    place = store.place(f"mock:///{name}")
    place.remove_tree()
    for path in folder.rglob("*"):
        if path.is_file():
            (place / path.relative_to(folder)).upload(path)
    return place


def rows(graph: ChunkedGraph, start: int, stop: int) -> Array:
    """Edges from one row to another."""
    found = list(read.edge_blocks(graph.edges["n:e:n"], start, stop, 700))
    return np.concatenate([np.stack(pair, axis=1) for pair in found])


def test_all_tables_are_the_same(folder: Path, tmp_path: Path) -> None:
    """Counts, edges and features from any row on, whatever the format."""
    place = stored(folder, tmp_path.name)
    remote, local = ChunkedGraph.load(place), ChunkedGraph.load(folder)

    check.check_counts(remote)
    check.check_features(remote)
    check.check_ids(remote)

    assert (remote.num_nodes, remote.num_edges) == (local.num_nodes, local.num_edges)
    for start, stop in ((0, 3 * ROWS), (4999, 5002), (14_990, 15_000)):
        assert np.array_equal(rows(remote, start, stop), rows(local, start, stop))
    for name, wanted in {"x": FEATURE, "label": np.arange(ROWS)}.items():
        spec = remote.node_data["n"][name]
        found = list(read.feature_blocks(spec, 10, 4000, 900))
        assert np.array_equal(np.concatenate(found), wanted[10:4000].reshape(np.concatenate(found).shape))
        assert all(block.flags.writeable for block in found) or spec.format == "parquet"


@pytest.mark.parametrize("layout", ["numpy"])
def test_a_share_of_the_rows_is_a_share_of_the_bytes(layout: str, tmp_path: Path) -> None:
    """A third of the rows costs a third of the file, within 5 %."""
    folder = tmp_path / "graph"
    write.graph(folder, "g", {"n": ROWS}, {"n:e:n": np.tile(EDGES, (20, 1))}, layout=layout, files=2)
    place = stored(folder, tmp_path.name)
    graph = ChunkedGraph.load(place)
    whole = sum(stat.size for name, stat in place.files().items() if name != FILENAME)
    third = graph.num_edges[0] // 3
    before = bytes_read()

    rows(graph, third, 2 * third)

    assert bytes_read() - before == pytest.approx(whole / 3, rel=0.05)


def test_columns_in_fortrans_order_are_read(tmp_path: Path) -> None:
    """Rows of an array that is stored column after column, of two and of three dimensions."""
    for name, array in {"a": FEATURE, "b": FEATURE[:4998].reshape(2499, 5, 2)}.items():
        np.save(tmp_path / f"{name}.npy", np.asfortranarray(array))
        place = store.place(f"mock:///fortran-{name}")
        (place / "x.npy").upload(tmp_path / f"{name}.npy")
        spec = FileSpec("numpy", (place / "x.npy",))

        found = np.concatenate(list(read.feature_blocks(spec, 7, 1000, 300)))

        assert np.array_equal(found, array[7:1000])


@pytest.mark.parametrize(("offset", "count"), [(0, 101), (8, 100), (900, 1)])
def test_an_object_that_is_too_short_is_no_values(tmp_path: Path, offset: int, count: int) -> None:
    """What has never been read would be taken for values."""
    place = store.place(f"mock:///{tmp_path.name}-short/x")
    place.write_bytes(bytes(800))
    dtype = np.dtype(np.int64)

    assert np.array_equal(input_file.values(place, dtype, 100, 0), np.zeros(100, dtype))
    with pytest.raises(StoreError, match="got 800 bytes in all") as caught:
        input_file.values(place, dtype, count, offset)
    assert caught.value.failure is StoreFailure.CHANGED


@pytest.mark.parametrize("size", [0, 799, 808])
def test_an_object_of_another_size_than_before_is_refused(tmp_path: Path, size: int) -> None:
    """Rows have been counted by the earlier size; it would be read in the middle of a row."""
    place = store.place(f"mock:///{tmp_path.name}-changed/x")
    place.write_bytes(bytes(800))
    assert input_file.stat(place).size == 800
    place.write_bytes(bytes(size))

    with pytest.raises(StoreError, match=f"800 bytes before, now {size}"):
        input_file.values(place, np.dtype(np.int8), 1, 0)
    with pytest.raises(StoreError, match=f"800 bytes before, now {size}"):
        input_file.open_binary(place)


def test_metadata_may_name_places(tmp_path: Path) -> None:
    """A file of the metadata may be a URI; one that leads out of the bucket is refused."""
    place = store.place("mock:///elsewhere/x.npy")
    folder = input_file.named("mock:///graph")

    assert input_file.beside(folder, "mock:///elsewhere/x.npy") == place
    with pytest.raises(DataError, match="expected a name"):
        input_file.beside(folder, "/etc/passwd")


def test_a_missing_object_is_named(folder: Path, tmp_path: Path) -> None:
    """Metadata that are missing, or name an object that is, are told by their place."""
    place = stored(folder, f"{tmp_path.name}-missing")
    with pytest.raises(DataError, match=r"mock:///none/metadata\.json: expected an object, found none"):
        ChunkedGraph.load(store.place("mock:///none"))
    gone = next(name for name in place.files() if name.startswith("edges/"))
    (place / gone).remove_tree()

    with pytest.raises(DataError, match=f"{gone} does not exist or is not a file"):
        ChunkedGraph.load(place)


def test_an_object_that_is_no_table_is_told(folder: Path, tmp_path: Path) -> None:
    """A file that is cut short is refused as one in a folder is."""
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    for path in copy.glob("edges/*"):
        path.write_bytes(path.read_bytes()[:-9] + b"x\n")

    place = stored(copy, f"{tmp_path.name}-cut")

    with pytest.raises(DataError) as remote:
        read_all(place)
    with pytest.raises(DataError) as local:
        read_all(copy)

    assert str(remote.value).replace(str(place), "") == str(local.value).replace(str(copy), "")


def read_all(where: File) -> None:
    """Read a graph's metadata and its edges."""
    graph = ChunkedGraph.load(where)
    check.check_counts(graph)
    check.check_ids(graph)


def test_a_folder_of_this_machine_is_a_path() -> None:
    """What is no URI, and file:// too, is read as ever."""
    assert input_file.named("graph") == Path("graph")
    assert input_file.named("file:///data/graph") == Path("/data/graph")
