"""`dglrun chunk --config`."""

import bz2
import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given

from dglrun.commands import chunk
from dglrun.formats.chunked import check, read
from dglrun.formats.chunked.metadata import ChunkedGraph
from tests.support import user_tables
from tests.support.commands import run_command
from tests.support.heterographs import QUIET, edges_of
from tests.support.needs import NEEDS_DUCKDB
from tests.support.user_tables import UserGraph, feature, user_graphs

pytestmark = NEEDS_DUCKDB


def config_of(folder: Path, *, user: Any = None, buys: Any = None, **more: Any) -> Path:
    """Users with a table, who buy items without one; relative files lie in `folder`."""
    nodes = {"user": {"files": "users.csv", "id": "id", **(user or {})}, "item": {}}
    edges = {"user:buys:item": {"files": "buys.csv", "src": "s", "dst": "d", **(buys or {})}}
    for table in (*nodes.values(), *edges.values()):
        if "files" in table:
            table["files"] = str(folder / str(table["files"]))
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({"name": "g", "nodes": nodes, "edges": edges, **more}, sort_keys=False))
    return path


def chunked(config: Path, *flags: str) -> int:
    """Run the command into `out` beside the config."""
    return run_command(
        chunk, "chunk", "--config", str(config), "--out-dir", str(config.parent / "out"), *flags
    )


def tables(folder: Path, users: str = "id,x\na,1\nb,2\n", buys: str = "s,d\nb,i\na,j\n") -> None:
    """Write users.csv and buys.csv."""
    (folder / "users.csv").write_bytes(users.encode())
    (folder / "buys.csv").write_bytes(buys.encode())


@QUIET
@given(graph=user_graphs())
def test_a_graph_of_tables_equals_that_of_plain_python(
    graph: UserGraph, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Any IDs, csv and Parquet, several files, nodes without rows, missing values, reverse relations."""
    folder = tmp_path_factory.mktemp("tables")

    code = chunked(graph.write(folder), "--files", "2")

    assert code == 0
    check.check_counts(ChunkedGraph.load(folder / "out"))
    assert user_tables.held(folder / "out") == graph.expected()


@pytest.mark.parametrize("edge_format", ["csv", "numpy", "parquet"])
@pytest.mark.parametrize("feature_format", ["numpy", "parquet"])
def test_formats_of_the_chunked_graph_are_chosen_by_flags(
    tmp_path: Path, edge_format: str, feature_format: str
) -> None:
    """The same flags as without --config."""
    tables(tmp_path)
    config = config_of(tmp_path, user={"features": {"x": {"columns": ["x"]}}})

    code = chunked(config, "--edge-format", edge_format, "--feature-format", feature_format)

    graph = ChunkedGraph.load(tmp_path / "out")
    assert code == 0
    assert graph.edges["user:buys:item"].format == edge_format
    assert graph.node_data["user"]["x"].format == feature_format
    assert edges_of(graph, "user:buys:item") == [[1, 0], [0, 1]]
    assert feature(graph, "user", "x") == [[1.0], [2.0]]


@pytest.mark.parametrize(
    ("users", "csv"),
    [
        ("\ufeffid,x\r\na,1\r\nb,2\r\n", {}),
        ("id;x\n'a';1\n'b';2", {"delimiter": ";", "quote": "'"}),
        ("a\t1\nb\t2\n", {"delimiter": "\t", "header": False, "columns": ["id", "x"]}),
        ("NAME,X\na,1\nb,2\n", {"columns": ["id", "x"]}),
        ('"id","x","note"\n"a","1","with ""quotes"", and\na line"\n"b","2",\n', {}),
        ('id,x,note\na,1,"a \\" quote, escaped"\nb,2,c\n', {"escape": "\\"}),
        ('id,x,note\na,1,5" disk\nb,2,7"\n', {"quote": None}),
    ],
)
def test_csv_of_many_kinds_is_read(tmp_path: Path, users: str, csv: dict[str, object]) -> None:
    """A byte order mark, Windows' line ends, quotes, escapes, no header, other names."""
    tables(tmp_path, users)

    code = chunked(config_of(tmp_path, user={"csv": csv, "features": {"x": {"column": "x"}}}))

    graph = ChunkedGraph.load(tmp_path / "out")
    assert code == 0
    assert feature(graph, "user", "x") == [1.0, 2.0]
    assert edges_of(graph, "user:buys:item") == [[1, 0], [0, 1]]


def test_other_encodings_and_compressed_files_are_read(tmp_path: Path) -> None:
    """Latin-1 in a gzip file, and an empty part as Spark writes one."""
    tables(tmp_path)
    (tmp_path / "u").mkdir()
    (tmp_path / "u" / "a.csv.gz").write_bytes(gzip.compress("id\nü\na\nb\n".encode("latin-1")))
    (tmp_path / "u" / "b.csv").touch()

    code = chunked(config_of(tmp_path, user={"files": "u", "csv": {"encoding": "latin-1"}}))

    assert code == 0
    assert pq.read_table(tmp_path / "out/mapping/user.parquet")["id"].to_pylist() == ["ü", "a", "b"]


@pytest.mark.parametrize("kind", ["csv", "tsv", "txt"])
@pytest.mark.parametrize(("ending", "compress"), [("gz", gzip.compress), ("bz2", bz2.compress)])
def test_a_folder_has_compressed_files_of_any_ending(
    tmp_path: Path, kind: str, ending: str, compress: Callable[[bytes], bytes]
) -> None:
    """Beside plain ones; of several streams one after another, as pigz and pbzip2 write; without any row."""
    tables(tmp_path)
    (tmp_path / "u").mkdir()
    (tmp_path / "u" / f"a.{kind}.{ending}").write_bytes(compress(b"id\nb\n") + compress(b"a\n"))
    (tmp_path / "u" / f"b.{kind}.{ending}").write_bytes(compress(b""))
    (tmp_path / "u" / "c.csv").write_text("id\nc\n")

    code = chunked(config_of(tmp_path, user={"files": "u"}))

    assert code == 0
    assert pq.read_table(tmp_path / "out/mapping/user.parquet")["id"].to_pylist() == ["b", "a", "c"]


def test_folders_in_a_folder_are_read_by_path_and_give_no_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark's `day=1`: sorted, whatever else lies in it; `day` is no column unless the files have one."""
    tables(tmp_path)
    for name, ids in {"day=2/part-0": ["d"], "day=1/part-1": ["b", "c"], "day=1/part-0": ["a"]}.items():
        path = tmp_path / "u" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": ids, "x": range(len(ids))}), path)
        (path.parent / "_SUCCESS").touch()
    (tmp_path / "u" / "_temporary").mkdir()
    (tmp_path / "u" / "_temporary" / "part-0.parquet").write_text("half")

    assert chunked(config_of(tmp_path, user={"files": "u", **X})) == 0
    assert pq.read_table(tmp_path / "out/mapping/user.parquet")["id"].to_pylist() == ["a", "b", "c", "d"]
    assert feature(ChunkedGraph.load(tmp_path / "out"), "user", "x") == [0, 0, 1, 0]

    assert chunked(config_of(tmp_path, user={"files": "u", "features": {"d": {"column": "day"}}})) == 65
    told = f"{tmp_path}/u/day=1/part-0.parquet: column 'day': expected one of ['id', 'x']"
    assert told in capsys.readouterr().err


def test_a_list_of_files_is_read_in_its_order(tmp_path: Path) -> None:
    """Files, globs and folders; only within a glob or folder they are sorted."""
    for name, ids in {"z": "a", "m-2": "d", "m-1": "c", "b": "b", "u/k": "e"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.csv").write_text(f"id\n{ids}\n")
    (tmp_path / "buys.csv").write_text("s,d\nb,i\na,j\n")
    files = [str(tmp_path / name) for name in ("z.csv", "u", "m-*.csv", "b.csv")]
    user = {"files": files, "id": "id"}
    buys = {"files": str(tmp_path / "buys.csv"), "src": "s", "dst": "d"}
    config = tmp_path / "config.yaml"
    nodes, edges = {"user": user, "item": None}, {"user:buys:item": buys}
    config.write_text(yaml.safe_dump({"name": "g", "nodes": nodes, "edges": edges}))

    assert chunked(config) == 0

    assert pq.read_table(tmp_path / "out/mapping/user.parquet")["id"].to_pylist() == ["a", "e", "c", "d", "b"]
    assert edges_of(ChunkedGraph.load(tmp_path / "out"), "user:buys:item") == [[4, 0], [0, 1]]


def test_integer_ids_are_compared_as_numbers(tmp_path: Path) -> None:
    """007 is 7; IDs are sparse, negative, and larger than 32 bits."""
    tables(tmp_path, f"id\n007\n-3\n{2**62}\n", f"s,d\n7,{2**40}\n{2**62},-1\n-3,-1\n")

    code = chunked(config_of(tmp_path, user={"ids": "integer"}))

    assert code == 0
    assert edges_of(ChunkedGraph.load(tmp_path / "out"), "user:buys:item") == [[0, 1], [2, 0], [1, 0]]
    assert pq.read_table(tmp_path / "out/mapping/user.parquet")["id"].to_pylist() == [7, -3, 2**62]


def test_parquet_columns_of_vectors_and_dictionaries_are_read(tmp_path: Path) -> None:
    """Lists with nulls, lists of fixed size, pandas' categories, decimals, booleans, integers as IDs."""
    tables(tmp_path, buys="s,d\n2,i\n")
    vectors = [[1.0, 2.0], None, [3.0, None]]
    columns = {
        "id": pa.array([1, 2, 3], pa.int32()),
        "v": pa.array(vectors, pa.list_(pa.float32())),
        "f": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.float64(), 2)),
        "l": pa.array([[1], [2], [3]], pa.large_list(pa.int16())),
        "c": pa.array(["q", "p", "q"]).dictionary_encode(),
        "m": pa.array(["1.50", "2.25", None]).cast(pa.float64()).cast(pa.decimal128(5, 2)),
        "b": pa.array([True, False, True]),
    }
    pq.write_table(pa.table(columns), tmp_path / "users.parquet", row_group_size=2)
    features = {
        "v": {"column": "v", "missing": 9},
        "f": {"column": "f"},
        "l": {"column": "l", "dtype": "int8"},
        "c": {"category": "c", "dtype": "uint8"},
        "m": {"columns": ["m", "b"], "dtype": "float16", "missing": 0},
        "b": {"column": "b", "dtype": "bool"},
    }

    code = chunked(config_of(tmp_path, user={"files": "users.parquet", "features": features}))

    graph = ChunkedGraph.load(tmp_path / "out")
    assert code == 0
    assert feature(graph, "user", "v") == [[1, 2], [9, 9], [3, 9]]
    assert feature(graph, "user", "f") == [[1, 2], [3, 4], [5, 6]]
    assert feature(graph, "user", "l") == [[1], [2], [3]]
    assert feature(graph, "user", "c") == [1, 0, 1]
    assert feature(graph, "user", "m") == [[1.5, 1], [2.25, 0], [0, 1]]
    assert feature(graph, "user", "b") == [True, False, True]
    path = tmp_path / "out" / user_tables.described(tmp_path / "out")["categories"]["user"]["c"]
    assert pq.read_table(path).to_pydict() == {"category": ["p", "q"], "number": [0, 1]}


def as_pandas_writes(frame: Any, index: list[Any]) -> Any:
    """The table with the metadata that pandas' to_parquet adds, as pandas documents them.

    Args:
        frame: The columns, those of the index last.
        index: Names of the columns of the index, or the description of a range.
    """
    kinds = {"int64": "int64", "double": "float64", "string": "unicode"}
    columns = [
        {
            "name": None if each.name.startswith("__index_level_") else each.name,
            "field_name": each.name,
            "pandas_type": kinds[str(each.type)],
            "numpy_type": "object" if str(each.type) == "string" else kinds[str(each.type)],
            "metadata": None,
        }
        for each in frame.schema
    ]
    names = {"name": None, "field_name": None, "pandas_type": "unicode", "numpy_type": "object"}
    described = {
        "index_columns": index,
        "column_indexes": [{**names, "metadata": {"encoding": "UTF-8"}}],
        "columns": columns,
        "attributes": {},
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "pandas_version": "2.2.3",
    }
    return frame.replace_schema_metadata({b"pandas": json.dumps(described).encode()})


@pytest.mark.parametrize(
    ("index", "named"),
    [
        ("__index_level_0__", "id"),
        ("__index_level_0__", "__index_level_0__"),
        ("key", "key"),
        (None, "id"),
    ],
    ids=["an index beside the IDs", "IDs in an index without a name", "in one with a name", "a range"],
)
def test_parquet_of_pandas_is_read_with_its_index_as_a_column(
    tmp_path: Path, index: str | None, named: str
) -> None:
    """An index without a name is `__index_level_0__`; one that counts the rows is no column."""
    tables(tmp_path)
    ids, others = (["b", "a", "c"], ["p", "q", "r"]) if named == "id" else (["p", "q", "r"], ["b", "a", "c"])
    columns: dict[str, Any] = {"x": pa.array([3.5, None, 1.5]), "id": ids}
    span = {"kind": "range", "name": None, "start": 0, "stop": 3, "step": 1}
    frame = pa.table(columns | ({index: others} if index else {}))
    pq.write_table(as_pandas_writes(frame, [index or span]), tmp_path / "users.parquet")
    features = {"x": {"column": "x", "missing": 0}}

    code = chunked(config_of(tmp_path, user={"files": "users.parquet", "id": named, "features": features}))

    graph = ChunkedGraph.load(tmp_path / "out")
    assert code == 0
    assert pq.read_table(tmp_path / "out/mapping/user.parquet")["id"].to_pylist() == ["b", "a", "c"]
    assert feature(graph, "user", "x") == [3.5, 0, 1.5]
    assert edges_of(graph, "user:buys:item") == [[0, 0], [1, 1]]


@pytest.mark.parametrize("layout", ["csv", "parquet"])
def test_edges_have_matrices_categories_and_masks_by_column(tmp_path: Path, layout: str) -> None:
    """In the order of the rows, over several files; the reverse relation has all but the masks."""
    tables(tmp_path)
    rows = {
        "s": ["a", "b", "a", "b", "a"],
        "d": ["i", "j", "j", "i", "i"],
        "w": ["1", "2", "", "4", "5"],
        "n": ["-1", "-2", "-3", "-4", "-5"],
        "how": ["web", "app", "", "web", "shop"],
        "split": ["train", "dev", "", "test", "train"],
    }
    (tmp_path / "e").mkdir()
    for number, part in enumerate((slice(0, 2), slice(2, 5))):
        table = pa.table({name: each[part] for name, each in rows.items()})
        if layout == "csv":
            pacsv.write_csv(table, tmp_path / "e" / f"{number}.csv")
        else:
            pq.write_table(table, tmp_path / "e" / f"{number}.parquet")
    features = {
        "m": {"columns": ["w", "n"], "dtype": "float64", "missing": 0.5},
        "how": {"category": "how", "dtype": "int8", "missing": -1},
    }
    buys = {
        "files": "e",
        "features": features,
        "masks": {"column": "split", "val": "dev"},
        "reverse": True,
    }

    assert chunked(config_of(tmp_path, buys=buys), "--files", "2") == 0

    graph, out = ChunkedGraph.load(tmp_path / "out"), tmp_path / "out"
    assert edges_of(graph, "user:buys:item") == [[0, 0], [1, 1], [0, 1], [1, 0], [0, 0]]
    assert feature(graph, "user:buys:item", "m") == [[1, -1], [2, -2], [0.5, -3], [4, -4], [5, -5]]
    assert feature(graph, "user:buys:item", "how") == [2, 0, -1, 2, 1]
    found = {split: feature(graph, "user:buys:item", f"{split}_mask") for split in ("train", "val", "test")}
    assert found == {
        "train": [True, False, False, False, True],
        "val": [False, True, False, False, False],
        "test": [False, False, False, True, False],
    }
    assert sorted(graph.edge_data["item:rev_buys:user"]) == ["how", "m"]
    assert feature(graph, "item:rev_buys:user", "how") == [2, 0, -1, 2, 1]
    path = out / user_tables.described(out)["categories"]["user:buys:item"]["how"]
    assert pq.read_table(path).to_pydict() == {"category": ["app", "shop", "web"], "number": [0, 1, 2]}


def test_masks_by_ratio_are_exact_disjoint_and_seeded(tmp_path: Path) -> None:
    """Nodes and edges; the same seed gives the same masks, another one others."""
    tables(tmp_path, "id\n" + "".join(f"{at}\n" for at in range(1000)), "s,d\n" + "1,1\n" * 10)
    ratios = {"train": 0.7, "val": 0.2, "test": 0.1}
    found = []
    for seed in (1, 1, 2):
        config = config_of(tmp_path, user={"masks": ratios}, buys={"masks": {"train": 0.55}}, seed=seed)
        assert chunked(config) == 0
        graph = ChunkedGraph.load(tmp_path / "out")
        found.append(np.array([feature(graph, "user", f"{name}_mask") for name in ratios]))

    assert found[0].sum(axis=1).tolist() == [700, 200, 100]
    assert (found[0].sum(axis=0) == 1).all()
    assert (found[0] == found[1]).all()
    assert (found[0] != found[2]).any()
    assert sum(feature(graph, "user:buys:item", "train_mask")) in (5, 6)
    assert not any(feature(graph, "user:buys:item", "test_mask"))


def test_a_reverse_relation_has_the_features_without_the_masks(tmp_path: Path) -> None:
    """The features' files are shared: nothing is written twice."""
    tables(tmp_path, buys="s,d,w\nb,i,3\na,j,4\n")
    wanted = {"features": {"w": {"column": "w"}}, "masks": {"train": 0.5}, "reverse": True}

    assert chunked(config_of(tmp_path, buys=wanted)) == 0

    graph = ChunkedGraph.load(tmp_path / "out")
    assert edges_of(graph, "item:rev_buys:user") == [[0, 1], [1, 0]]
    assert list(graph.edge_data["item:rev_buys:user"]) == ["w"]
    assert graph.edge_data["item:rev_buys:user"]["w"] == graph.edge_data["user:buys:item"]["w"]


def test_a_second_run_replaces_the_first_with_its_mappings(tmp_path: Path) -> None:
    """Files of an earlier run that the new one does not write are gone, those of the user stay."""
    tables(tmp_path)
    assert chunked(config_of(tmp_path, user={"features": {"c": {"category": "x"}}})) == 0
    (tmp_path / "out" / "notes.txt").touch()

    assert chunked(config_of(tmp_path)) == 0

    names = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*")}
    assert names == {
        *("edges", "edges/0-buys-0.parquet", "mapping", "mapping/item.parquet", "mapping/user.parquet"),
        *("metadata.json", "tables.json", "notes.txt"),
    }


def test_tables_without_rows_are_a_graph_without_nodes(tmp_path: Path) -> None:
    """Features keep their dtype and width."""
    tables(tmp_path, "id,x\n", "s,d\n")
    features = {"m": {"columns": ["x", "id"]}, "c": {"category": "x"}}

    assert chunked(config_of(tmp_path, user={"features": features, "masks": {"train": 0.5}})) == 0

    graph = ChunkedGraph.load(tmp_path / "out")
    assert (graph.num_nodes, graph.num_edges) == ((0, 0), (0,))
    assert read.feature_info(graph.node_data["user"]["m"]) == (np.dtype("float32"), (2,))
    assert read.feature_info(graph.node_data["user"]["c"]) == (np.dtype("int64"), ())


def test_without_duckdb_the_package_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 69; a dry run does without it."""
    tables(tmp_path)
    monkeypatch.setitem(sys.modules, "duckdb", None)

    codes = chunked(config_of(tmp_path)), chunked(config_of(tmp_path), "--dry-run")

    assert codes == (69, 0)
    assert "install it (pip install 'dgl-operator[tables]')" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_whose_name_is_a_pattern_is_written(tmp_path: Path) -> None:
    """DuckDB takes paths for patterns, and a quote ends its texts."""
    folder = tmp_path / "a[1]*'?"
    folder.mkdir()
    tables(folder)

    assert chunked(config_of(folder)) == 0

    assert edges_of(ChunkedGraph.load(folder / "out"), "user:buys:item") == [[1, 0], [0, 1]]


def test_a_dry_run_prints_the_plan_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is read, mapped and written."""
    tables(tmp_path)
    features = {"x": {"columns": ["x"], "missing": 0}, "c": {"category": "x"}}
    config = config_of(
        tmp_path,
        user={"features": features, "unlisted": "add"},
        buys={"masks": {"train": 0.5}, "reverse": True},
    )

    assert chunked(config, "--dry-run") == 0

    assert capsys.readouterr().out.replace(str(tmp_path), "DIR").splitlines() == [
        "graph g",
        "nodes user: csv: DIR/users.csv",
        "  string IDs of 'id' in the order of the rows; IDs in edges only: added behind them, sorted",
        "  x: matrix of 'x', float32, 0 where there is none",
        "  c: category of 'x', int64",
        "nodes item: the string IDs that edges name, sorted",
        "edges user:buys:item: csv: DIR/buys.csv",
        "  from 's' to 'd'",
        "  train_mask, val_mask, test_mask: by ratio 0.5, 0, 0",
        "  and item:rev_buys:user, with the same features, without masks",
        "memory: 2048 MiB for joins, beyond that on disk in --out-dir",
        "written: edges as parquet, features as numpy, 1 file per table",
        "  mapping/user.parquet, mapping/item.parquet",
    ]
    assert not (tmp_path / "out").exists()


X = {"features": {"x": {"column": "x"}}}
INTEGER = {"user": {"ids": "integer"}}
AB = ["a", "b"]
FLOAT = "expected a number of float32, "


@pytest.mark.parametrize(
    ("users", "buys", "more", "expected"),
    [
        ("id\na\n", "s,d\na,i\nz,i\n", {}, "buys.csv: row 2: column 's': expected a node of user"),
        (
            "id\na\nb\na\nb\n", "s,d\na,i\n", {},
            "users.csv: row 3: node 'a' of user is there already: {0}/users.csv: row 1",
        ),
        ("id\na\n\"\"\n", "s,d\na,i\n", {}, "users.csv: row 2: column 'id': expected an ID, got no value"),
        ("id\na\n", "s,d\na,i\na,\n", {}, "buys.csv: row 2: column 'd': expected an ID, got no value"),
        ("name\na\n", "s,d\na,i\n", {}, "users.csv: column 'id': expected one of ['name']"),
        ("id,id\na,b\n", "s,d\na,i\n", {}, "users.csv: column 'id': is there several times"),
        ("id,x\na,1\nb,one\n", "s,d\na,i\n", {"user": X}, "row 2: column 'x': " + FLOAT + "got 'one'"),
        ("id,x\na,1\nb,\n", "s,d\na,i\n", {"user": X}, "row 2: column 'x': " + FLOAT + "got no value"),
        ("id,x\na,1\nb,1e39\n", "s,d\na,i\n", {"user": X}, "row 2: column 'x': " + FLOAT + "got 1e+39"),
        (
            "id,x\na,300\n", "s,d\na,i\n", {"user": {"features": {"x": {"column": "x", "dtype": "uint8"}}}},
            "row 1: column 'x': expected a number of uint8, got '300'",
        ),
        (
            "id,x\na,\n", "s,d\na,i\n", {"user": {"features": {"x": {"category": "x"}}}},
            "row 1: column 'x': expected a category, got no value",
        ),
        (
            "id,x\na,0\nb,dev\n", "s,d\na,i\n", {"user": {"masks": {"column": "x", "train": "0"}}},
            "row 2: column 'x': expected one of 0, val, test, got 'dev'",
        ),
        ("id\n7\nx\n", "s,d\n7,i\n", INTEGER, "row 2: column 'id': expected an integer of 64 bits, got 'x'"),
        (
            f"id\n{2**63}\n", "s,d\n7,i\n", INTEGER,
            f"row 1: column 'id': expected an integer of 64 bits, got '{2**63}'",
        ),
        (
            "id,x\na,1\n", "s,d\nb,i\n", {"user": {**X, "unlisted": "add"}},
            "user: feature x: 1 nodes occur in edges only: expected `missing`",
        ),
        ("id,x\na,1\nb\n", "s,d\na,i\n", {}, "users.csv: cannot be read: line 3: expected 2 fields, got 1"),
        ("id\na\n", "s,d\na,i\n", {"user": {"files": "none.csv"}}, "none.csv: does not exist"),
        ("id\na\n", "s,d\na,i\n", {"user": {"files": "*.csv"}}, "buys.csv: column 'id': expected one of"),
        ("id\na\n", "s,d\na,i\n", {"user": {"files": "config.yaml"}}, "expected a name that ends in .csv"),
        ("id\na\n", "s,d\na,i\n", {"user": {"csv": {"encoding": "x"}}}, "users.csv: cannot be read: unknown"),
        ("id\na\n", "s,d\na,i\n", {"user": {"format": "parquet"}}, "users.csv: is not a parquet file"),
        ("id\na\n", "s,d\na,i\n", {"user": {"features": {"a/b": {"column": "x"}}}}, "DGL cannot load a name"),
    ],
)  # fmt: skip
def test_bad_tables_stop_with_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    users: str,
    buys: str,
    more: dict[str, Any],
    expected: str,
) -> None:
    """File, row and column, expected and got; exit code 65; nothing is left."""
    tables(tmp_path, users, buys)

    code = chunked(config_of(tmp_path, **more))

    err = capsys.readouterr().err
    assert code == 65
    assert expected.format(tmp_path) in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"id": pa.array(["a", None])}, "row 2: column 'id': expected an ID, got no value"),
        ({"id": [1.0, 2.0]}, "column 'id': expected a text or an integer, got a column of type double"),
        ({"id": AB, "x": [[1.0], [1.0, 2.0]]}, "row 2: column 'x': expected vectors of 1 values, got 2"),
        ({"id": AB, "x": [[1.0], [None]]}, "row 2: column 'x': " + FLOAT + "got no value"),
        ({"id": AB, "x": pa.array([[1.0], None])}, "row 2: column 'x': expected a vector, got no value"),
        ({"id": AB, "x": [{"k": 1}, {"k": 2}]}, "column 'x': " + FLOAT + "got a column of type struct"),
        ({"id": AB, "x": pa.array([1, 2], pa.timestamp("s"))}, FLOAT + "got a column of type timestamp"),
    ],
)  # fmt: skip
def test_bad_parquet_stops_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], columns: dict[str, Any], expected: str
) -> None:
    """Nulls, kinds of columns that are no numbers, vectors of several lengths."""
    tables(tmp_path, buys="s,d\na,i\n")
    pq.write_table(pa.table(columns), tmp_path / "users.parquet")

    code = chunked(config_of(tmp_path, user={"files": "users.parquet", **(X if "x" in columns else {})}))

    err = capsys.readouterr().err
    assert code == 65
    assert f"{tmp_path}/users.parquet: " in err
    assert expected in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: [", "is no YAML"),
        ("[1]", "Input should be"),
        ("name: g\nname: h\n", "'name' is given twice"),
        ("name: g\nnodes: {}\nedges: {}\n", "edges: expected at least one edge type"),
        ("name: 7\nnodes: {}\nedges: {}\n", "name: Input should be a valid string, got '7'"),
    ],
)
def test_a_file_that_is_no_config_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, expected: str
) -> None:
    """One line with the file and what is wrong."""
    (tmp_path / "config.yaml").write_text(text)

    code = chunked(tmp_path / "config.yaml")

    err = capsys.readouterr().err
    assert code == 65
    assert f"{tmp_path}/config.yaml: " in err
    assert expected in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("nodes", "etype", "edges", "expected"),
    [
        ({"a": None}, "a:b", {}, "expected source:relation:destination, got 'a:b'"),
        ({"a": None}, "a:r:b", {}, "'b' is none of the nodes ['a']"),
        ({"a": None, "b": None}, "a:r:a", {}, "b: has neither files nor edges"),
        ({"a": None}, "a:r:a", {"dst": None}, "edges/a:r:a/dst: Input should be a valid string"),
        ({"a": None}, "a:r:a", {"files": []}, "edges/a:r:a: expected files"),
        ({"a": {"files": "x"}}, "a:r:a", {}, "nodes/a: files and id must be used together"),
        ({"a": {"masks": {"train": 0.5}}}, "a:r:a", {}, "nodes/a: features and masks need files"),
        ({"a": {"seed": 1}}, "a:r:a", {}, "nodes/a/seed: Extra inputs"),
        ({"a": None}, "a:r:a", {"masks": {"train": 0.9, "val": 0.2}}, "with a sum above 0 and up to 1"),
        ({"a": None}, "a:r:a", {"masks": {"train": "yes"}}, "are ratios unless a column is named"),
        ({"a": None}, "a:r:a", {"masks": {"column": "m", "train": 0.9}}, "train, val and test are words"),
        (
            {"a": None}, "a:r:a", {"masks": {"train": 1}, "features": {"val_mask": {"column": "c"}}},
            "feature val_mask and masks: expected one of the two",
        ),
        ({"a": None}, "a:r:a", {"features": {"f": {}}}, "expected exactly one of column, columns and"),
        (
            {"a": None}, "a:r:a", {"features": {"f": {"column": "c", "dtype": "uint8", "missing": -1}}},
            "missing: uint8 does not hold -1",
        ),
        (
            {"a": None}, "a:r:a", {"features": {"f": {"category": "c", "dtype": "float32"}}},
            "a category is an integer, got dtype float32",
        ),
        ({"a": None}, "a:r:a", {"csv": {"header": False}}, "header: false needs the names in `columns`"),
        ({"a": None}, "a:r:a", {"csv": {"delimiter": "--"}}, "a:r:a/csv/delimiter: String should have"),
    ],
)  # fmt: skip
def test_a_bad_config_is_refused_by_its_key(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    nodes: dict[str, Any],
    etype: str,
    edges: dict[str, Any],
    expected: str,
) -> None:
    """One line with the file, the key and what is expected."""
    relation = {"files": "x", "src": "s", "dst": "d", **edges}
    config = {"name": "g", "nodes": nodes, "edges": {etype: relation}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))

    code = chunked(tmp_path / "config.yaml")

    err = capsys.readouterr().err
    assert code == 65
    assert f"{tmp_path}/config.yaml: " in err
    assert expected in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--name", "g"), "--name: expected it in the file of --config"),
        (("--edges", "n:r:n=e.npy"), "--edges: expected it in the file of --config"),
        (("--edge-layout", "rows"), "--edge-layout: is for numpy edges"),
    ],
)
def test_flags_that_stand_in_the_config_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], expected: str
) -> None:
    """A flag without effect would mislead."""
    tables(tmp_path)

    assert chunked(config_of(tmp_path), *flags) == 2

    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "expected"),
    [((), "--name: expected a graph name"), (("--name", "g", "--dry-run"), "--dry-run")],
)
def test_flags_without_a_config_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], expected: str
) -> None:
    """The forms without --config need a name, and have no plan."""
    assert run_command(chunk, "chunk", "--out-dir", str(tmp_path / "out"), *flags) == 2

    assert expected in capsys.readouterr().err
