"""The chunked graph format: both dialects, every format of file, rows from anywhere in any blocks."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from dglrun.arrays import Ints
from dglrun.errors import DataError
from dglrun.formats.chunked import check, csvfile, metadata, parquetfile, read, table, write
from dglrun.formats.chunked.metadata import ChunkedGraph, Dialect
from dglrun.formats.chunked.stored_rows import InOrder, StoredRows
from dglrun.formats.chunked.table import FileSpec
from tests.support.heterographs import QUIET, Toy, a_toy, toys


def described(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "metadata.json").read_text())
    return found


def rewritten(folder: Path, **changes: object) -> Path:
    """Change keys of the metadata; None takes one away."""
    raw = described(folder) | changes
    kept = {key: value for key, value in raw.items() if value is not None}
    (folder / "metadata.json").write_text(json.dumps(kept))
    return folder


def all_edges(spec: FileSpec, **options: Any) -> list[list[int]]:
    rows = sum(read.row_counts(spec))
    blocks = [np.stack(block, axis=1) for block in read.edge_blocks(spec, 0, rows, **options)]
    return np.concatenate(blocks).tolist() if blocks else []


@QUIET
@given(toy=toys(), chunks=st.integers(1, 5), fmt=st.sampled_from(table.FORMATS))
def test_any_graph_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, toy: Toy, chunks: int, fmt: str
) -> None:
    """Types without nodes or edges, more files than rows, and all formats included."""
    folder = toy.write(tmp_path_factory.mktemp("g"), chunks, fmt)

    graph = ChunkedGraph.load(folder)
    check.check_counts(graph)
    check.check_features(graph)
    check.check_ids(graph)

    assert (graph.ntypes, graph.num_nodes) == (tuple(toy.nodes), tuple(toy.nodes.values()))
    for etype, pairs in toy.edges.items():
        assert all_edges(graph.edges[etype], block_rows=7) == pairs.tolist()
    for ntype, features in toy.node_data.items():
        for name, values in features.items():
            blocks = list(read.feature_blocks(graph.node_data[ntype][name], 0, len(values), 4))
            found = np.concatenate(blocks) if blocks else values[:0]
            assert found.dtype == values.dtype
            assert (found == values).all()


@QUIET
@given(
    pairs=npst.arrays(np.int64, st.tuples(st.integers(1, 60), st.just(2)), elements=st.integers(0, 10**12)),
    files=st.integers(1, 4),
    layout=st.sampled_from(table.FORMATS),
    data=st.data(),
)
def test_any_range_of_rows_comes_back_in_bounded_blocks(
    tmp_path_factory: pytest.TempPathFactory, pairs: NDArray[np.int64], files: int, layout: str, data: Any
) -> None:
    """No block is empty or longer than asked, and rows keep their order."""
    folder = tmp_path_factory.mktemp("g")
    graph = write.graph(folder, "g", {"n": 10**12 + 1}, {"n:r:n": pairs}, layout=layout, files=files)
    start = data.draw(st.integers(0, len(pairs)))
    stop, rows = data.draw(st.integers(start, len(pairs))), data.draw(st.integers(1, 9))

    blocks = list(read.edge_blocks(graph.edges["n:r:n"], start, stop, rows))

    assert all(0 < len(src) == len(dst) <= rows for src, dst in blocks)
    found = [list(pair) for src, dst in blocks for pair in zip(src.tolist(), dst.tolist(), strict=True)]
    assert found == pairs[start:stop].tolist()


def test_rows_are_found_across_steps_of_the_index(tmp_path: Path) -> None:
    """A file of several index steps: any row is reached by its byte offset."""
    path = tmp_path / "big.csv"
    rows = 3 * csvfile.STEP // 11
    path.write_text("".join(f"{row} {row % 7}\n" for row in range(rows)))
    spec = FileSpec("csv", (path,))

    index = read.index_file(path, spec)
    found = {row: next(read.edge_blocks(spec, row, row + 1))[0].tolist() for row in range(0, rows, 9973)}

    assert (index.rows, len(index.before) > 2) == (rows, True)
    assert found == {row: [row] for row in found}


@pytest.mark.parametrize("text", ["", "0 1\n", "0 1", "0 1\n2 3", "0 1\r\n2 3\r\n"])
def test_a_last_line_counts_with_or_without_its_end(tmp_path: Path, text: str) -> None:
    """Empty files, missing last line ends and line ends of another system are legal."""
    path = tmp_path / "e.csv"
    path.write_bytes(text.encode())

    found = all_edges(FileSpec("csv", (path,)))

    assert found == [[int(word) for word in line.split()] for line in text.splitlines()]


@pytest.mark.parametrize("delimiter", [" ", ",", "\t", ";", "|"])
def test_the_metadata_names_the_delimiter(tmp_path: Path, delimiter: str) -> None:
    """DGL's dispatch splits at blanks whatever the metadata says; here it counts."""
    path = tmp_path / "e.csv"
    path.write_text(f"1{delimiter}2\n3{delimiter}4\n")

    assert all_edges(FileSpec("csv", (path,), delimiter)) == [[1, 2], [3, 4]]


@pytest.mark.parametrize("dialect", Dialect)
def test_both_dialects_are_read_and_written(tmp_path: Path, dialect: Dialect) -> None:
    """The counts that a dialect leaves out are worked out from the other."""
    source = ChunkedGraph.load(a_toy().write(tmp_path / "in"))
    metadata.write(source, tmp_path / "in", "again.json", dialect)

    again = ChunkedGraph.load(tmp_path / "in", "again.json")

    keys = json.loads((tmp_path / "in" / "again.json").read_text()).keys()
    assert ("num_nodes_per_chunk" in keys, "num_nodes_per_type" in keys) == (
        dialect is not Dialect.PER_TYPE,
        dialect is not Dialect.PER_CHUNK,
    )
    assert again == source


def test_edge_counts_may_be_left_to_the_files(tmp_path: Path) -> None:
    """DGL's dispatch before 2.4 needed no edge counts, so such files exist."""
    folder = rewritten(a_toy().write(tmp_path), num_edges_per_type=None)

    assert ChunkedGraph.load(folder).num_edges == (90, 40, 0)


def test_paths_may_be_absolute_and_the_folder_may_move(tmp_path: Path) -> None:
    """Written paths are relative inside the folder, absolute outside."""
    elsewhere = tmp_path / "elsewhere.csv"
    elsewhere.write_text("0 0\n")
    graph = write.graph(tmp_path / "g", "g", {"n": 1}, {"n:r:n": np.zeros((1, 2), np.int64)})
    spec = described(tmp_path / "g")["edges"]["n:r:n"]
    spec["data"].append(str(elsewhere))
    rewritten(tmp_path / "g", edges={"n:r:n": spec}, num_edges_per_type=[2], num_edges_per_chunk=[[1, 1]])

    moved = (tmp_path / "g").rename(tmp_path / "moved")

    assert not Path(spec["data"][0]).is_absolute()
    assert all_edges(ChunkedGraph.load(moved).edges["n:r:n"]) == [[0, 0], [0, 0]]
    assert graph.num_edges == (1,)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"node_type": None}, "node_type: expected a list, got nothing"),
        ({"num_nodes_per_type": None}, "expected num_nodes_per_type or num_nodes_per_chunk, found neither"),
        ({"num_nodes_per_type": [30, 20]}, "expected 3 numbers, one for each type, got 2"),
        ({"num_nodes_per_type": [30, 20, -7]}, "num_nodes_per_type: expected counts, got -7"),
        ({"num_nodes_per_chunk": [[30], [19], [7]]}, "sums to [30, 19, 7] but num_nodes_per_type is"),
        ({"edges": {}}, "edges: expected exactly the types"),
        ({"node_data": {"x": {}}}, "node_data: 'x' is none of the types"),
        ({"graph_name": "a/b"}, "graph_name: DGL cannot load a name"),
        ({"node_type": ["n0", "_N", "n2"]}, "DGL takes '_N' for all nodes"),
        ({"node_type": ["n0", "n0", "n2"]}, "node_type: 'n0' is named twice"),
    ],
)
def test_metadata_that_cannot_be_is_refused_with_its_key(
    tmp_path: Path, changes: dict[str, Any], expected: str
) -> None:
    """One message with the file, the key, what was expected and what was found."""
    folder = rewritten(a_toy().write(tmp_path), **changes)
    if changes.get("node_type"):
        rewritten(folder, edge_type=["n0:r:n2"], edges={}, node_data={}, edge_data={}, num_edges_per_type=[0])
        spec = {"format": {"name": "csv", "delimiter": " "}, "data": []}
        rewritten(folder, edges={"n0:r:n2": spec})

    with pytest.raises(DataError) as caught:
        ChunkedGraph.load(folder)

    assert str(folder / "metadata.json") in str(caught.value)
    assert expected in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """Before anything is read, let alone written."""
    folder = a_toy().write(tmp_path)
    (folder / "n0-feat-0.npy").unlink()

    with pytest.raises(DataError, match=r"node_data/n0/feat/data: .*n0-feat-0\.npy does not exist"):
        ChunkedGraph.load(folder)


def test_a_wrong_count_is_told_by_file(tmp_path: Path) -> None:
    """The files' rows are compared with the metadata."""
    folder = a_toy().write(tmp_path, chunks=2)
    path = folder / "n0-r0-n1-1.csv"
    path.write_text(path.read_text() + "0 0\n")

    with pytest.raises(DataError, match=r"edges of n0:r0:n1: the metadata says 90 rows, the files have 91"):
        check.check_counts(ChunkedGraph.load(folder))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("1 x", "expected 2 integers with ' ' between them, got '1 x'"),
        ("1", "expected 2 integers"),
        ("1 2 3", "expected 2 integers"),
        ("", "expected 2 integers"),
        ("1.5 2", "expected 2 integers"),
        ("NA 2", "expected 2 integers"),
        ('"1" 2', "expected 2 integers"),
        ("99999999999999999999 0", "expected 2 integers"),
        ("30 0", "expected a source ID from 0 to 29, got 30"),
        ("0 -1", "expected a destination ID from 0 to 19, got -1"),
    ],
)
def test_a_bad_line_is_named_by_file_and_line(tmp_path: Path, line: str, expected: str) -> None:
    """Also in a second file and a later block."""
    folder = a_toy().write(tmp_path, chunks=2)
    path = folder / "n0-r0-n1-1.csv"
    lines = path.read_text().splitlines()
    lines[40] = line
    path.write_text("\n".join(lines) + "\n")

    with pytest.raises(DataError) as caught:
        check.check_ids(ChunkedGraph.load(folder), block_rows=16)

    assert f"{path}: line 41: {expected}" in str(caught.value)


def test_a_bad_row_of_numpy_or_parquet_is_named_by_row(tmp_path: Path) -> None:
    """These files have no lines; rows count from 0."""
    np.save(tmp_path / "e.npy", [[0, 0], [1, 5]])
    pq.write_table(pa.table({"s": [0, 1], "d": [0, None]}), tmp_path / "e.parquet")

    with pytest.raises(DataError, match=r"e\.npy: row 1: expected a destination ID from 0 to 4, got 5"):
        all_edges(FileSpec("numpy", (tmp_path / "e.npy",)), limits=(5, 5))
    with pytest.raises(DataError, match=r"e\.parquet: row 1 has no value"):
        all_edges(FileSpec("parquet", (tmp_path / "e.parquet",)))


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    """Text under the name of numpy or parquet, a numpy file cut short."""
    (tmp_path / "e").write_text("0 0\n" * 20)
    np.save(tmp_path / "short.npy", np.zeros((9, 2), np.int64))
    (tmp_path / "short.npy").write_bytes((tmp_path / "short.npy").read_bytes()[:-1])

    for layout in ("numpy", "parquet"):
        with pytest.raises(DataError, match="is not a"):
            read.row_counts(FileSpec(layout, (tmp_path / "e",)))
    with pytest.raises(DataError, match="is cut short"):
        read.row_counts(FileSpec("numpy", (tmp_path / "short.npy",)))


def test_parquet_features_follow_dgls_rules(tmp_path: Path) -> None:
    """`shape` in the schema, a list column as vectors, columns side by side."""
    values = np.arange(12, dtype=np.float32).reshape(6, 2)
    write.feature_file(tmp_path / "shape.parquet", "parquet", values.reshape(6, 2, 1))
    write.feature_file(tmp_path / "flat.parquet", "parquet", values[:, 0])
    pq.write_table(pa.table({"v": list(values)}), tmp_path / "list.parquet")
    pq.write_table(pa.table({"a": values[:, 0], "b": values[:, 1]}), tmp_path / "columns.parquet")

    found = {}
    for name in ("shape", "flat", "list", "columns"):
        spec = FileSpec("parquet", (tmp_path / f"{name}.parquet",))
        found[name] = np.concatenate(list(read.feature_blocks(spec, 0, 6, 4)))

    assert {name: array.shape for name, array in found.items()} == {
        "shape": (6, 2, 1), "flat": (6,), "list": (6, 2), "columns": (6, 2),
    }  # fmt: skip
    for name in ("shape", "list", "columns"):
        assert (found[name].reshape(6, 2) == values).all()


def test_csv_features_take_their_type_from_the_first_line_or_the_metadata(tmp_path: Path) -> None:
    """Our extension: DGL refuses csv features."""
    (tmp_path / "ints.csv").write_text("1\n2\n")
    (tmp_path / "floats.csv").write_text("1.5,2\n3,4\n")

    infos = [
        read.feature_info(FileSpec("csv", (tmp_path / "ints.csv",))),
        read.feature_info(FileSpec("csv", (tmp_path / "floats.csv",), ",")),
        read.feature_info(FileSpec("csv", (tmp_path / "ints.csv",), dtype="float64")),
    ]
    rows = np.concatenate(list(read.feature_blocks(FileSpec("csv", (tmp_path / "floats.csv",), ","), 0, 2)))

    assert [(info.dtype.name, info.tail) for info in infos] == [
        ("int64", ()), ("float32", (2,)), ("float64", ()),
    ]  # fmt: skip
    assert rows.tolist() == [[1.5, 2.0], [3.0, 4.0]]


def test_files_of_one_feature_must_agree(tmp_path: Path) -> None:
    """Dtype and shape, told with both files."""
    np.save(tmp_path / "a.npy", np.zeros((2, 3), np.float32))
    np.save(tmp_path / "b.npy", np.zeros((2, 4), np.float32))

    with pytest.raises(DataError, match=r"b\.npy: rows are float32\[4\], but float32\[3\] in .*a\.npy"):
        read.feature_info(FileSpec("numpy", (tmp_path / "a.npy", tmp_path / "b.npy")))


def test_big_endian_and_fortran_arrays_come_back_native(tmp_path: Path) -> None:
    """Files of other machines and of transposed arrays."""
    values = np.arange(12, dtype=">f4").reshape(3, 4)
    np.save(tmp_path / "big.npy", values)
    np.save(tmp_path / "fortran.npy", np.asfortranarray(values.astype("f4")))

    for name in ("big.npy", "fortran.npy"):
        (block,) = read.feature_blocks(FileSpec("numpy", (tmp_path / name,)), 0, 3)
        assert block.dtype == np.dtype("=f4")
        assert block.flags.c_contiguous
        assert (block == values).all()


def test_an_empty_parquet_file_of_lists_says_nothing_of_their_length(tmp_path: Path) -> None:
    """As Spark writes for a partition without rows."""
    kind = pa.list_(pa.float32())
    for name, rows in (("a", [[1.0, 2.0], [3.0, 4.0]]), ("b", [])):
        pq.write_table(pa.table({"x": pa.array(rows, kind)}), tmp_path / f"{name}.parquet")
    spec = FileSpec("parquet", (tmp_path / "b.parquet", tmp_path / "a.parquet"))

    assert read.feature_info(spec).tail == (2,)
    assert np.concatenate(list(read.feature_blocks(spec, 0, 2))).tolist() == [[1.0, 2.0], [3.0, 4.0]]


VECTORS = (pa.list_(pa.float32()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 2))


@pytest.mark.parametrize("kind", VECTORS, ids=str)
def test_vectors_are_read_from_any_row_on(tmp_path: Path, kind: pa.DataType) -> None:
    """Of each kind of list that Arrow has; blocks begin and end within a batch."""
    values = np.arange(14, dtype=np.float32).reshape(7, 2)
    pq.write_table(pa.table({"x": pa.array(values.tolist(), kind)}), tmp_path / "x.parquet", row_group_size=4)
    spec = FileSpec("parquet", (tmp_path / "x.parquet",))

    for start, stop in ((0, 7), (1, 3), (3, 6), (5, 7)):
        assert (np.concatenate(list(read.feature_blocks(spec, start, stop, 2))) == values[start:stop]).all()


@QUIET
@given(kind=st.sampled_from(VECTORS), rows=st.integers(0, 9), data=st.data())
def test_vectors_of_a_slice_are_those_of_its_rows(kind: pa.DataType, rows: int, data: Any) -> None:
    """Whole, sliced and sliced twice, without rows too: Arrow keeps the values of all rows beside a slice."""
    values = np.arange(rows * 2, dtype=np.float32).reshape(rows, 2)
    column = pa.array(values.tolist(), kind)
    for _ in range(data.draw(st.integers(0, 2))):
        start = data.draw(st.integers(0, len(column)))
        length = data.draw(st.integers(0, len(column) - start))
        column, values = column.slice(start, length), values[start : start + length]

    found = parquetfile.matrix(Path("x.parquet"), 0, [column], np.dtype(np.float32), (2,))

    assert found.shape == values.shape
    assert (found == values).all()


@pytest.mark.parametrize("kind", VECTORS, ids=str)
def test_an_empty_value_counts_in_the_rows_that_are_read_alone(tmp_path: Path, kind: pa.DataType) -> None:
    """A vector without a value is refused, and no other for its sake."""
    rows = pa.array([[1.0, 2.0], [3.0, None], [5.0, 6.0]], kind)
    pq.write_table(pa.table({"x": rows}), tmp_path / "x.parquet")
    spec = FileSpec("parquet", (tmp_path / "x.parquet",))

    assert np.concatenate(list(read.feature_blocks(spec, 2, 3))).tolist() == [[5.0, 6.0]]
    with pytest.raises(DataError, match=r"rows from 1 on: a vector holds an empty value"):
        list(read.feature_blocks(spec, 1, 3))


def test_a_vector_of_another_length_is_named_by_its_row(tmp_path: Path) -> None:
    """Whatever row the reading begins at."""
    rows = [[1.0, 2.0], [3.0, 4.0], [5.0], [6.0, 7.0, 8.0]]
    pq.write_table(pa.table({"x": pa.array(rows, pa.list_(pa.float32()))}), tmp_path / "x.parquet")

    with pytest.raises(DataError, match=r"x\.parquet: row 2: expected 2 values, got 1"):
        list(read.feature_blocks(FileSpec("parquet", (tmp_path / "x.parquet",)), 1, 4))


def test_a_damaged_parquet_page_is_named_by_its_file(tmp_path: Path) -> None:
    """The footer may be whole."""
    path = tmp_path / "e.parquet"
    rows = np.arange(50_000)
    pq.write_table(pa.table({"s": rows, "d": rows[::-1]}), path, compression="snappy")
    data = bytearray(path.read_bytes())
    data[5000:9000] = bytes(4000)
    path.write_bytes(data)

    with pytest.raises(DataError, match=r"e\.parquet"):
        list(read.edge_blocks(FileSpec("parquet", (path,)), 0, len(rows), limits=(50_000, 50_000)))


@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5), data=st.data())
def test_rows_in_order_are_those_of_the_blocks_wherever_one_begins(
    sizes: list[int], data: st.DataObject
) -> None:
    """Stretches that follow one another do not begin anew; others do."""
    rows, begun = np.arange(sum(sizes)), list[int]()
    bounds = np.cumsum(sizes)[:-1]

    def blocks(start: int) -> Iterator[Ints]:
        begun.append(start)
        return (block[block >= start] for block in np.split(rows, bounds) if block[-1] >= start)

    stored = StoredRows(InOrder(blocks), 0, len(rows), (), rows.dtype)
    ends = sorted({0, *data.draw(st.lists(st.integers(0, len(rows)))), len(rows)})
    stretches = data.draw(st.permutations(list(pairwise(ends))))

    for start, stop in stretches:
        assert np.asarray(stored[start:stop]).tolist() == list(range(start, stop))

    before = [-1, *(stop for _, stop in stretches)]
    assert begun == [start for (start, _), last in zip(stretches, before, strict=False) if start != last]
