"""`dglrun ids`, and the whole line from csv with string IDs to predictions under them."""

import csv
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from dglrun.commands import chunk, dispatch, ids, partition, verify
from dglrun.formats.dgl.folder import load_folder
from tests.support.commands import run_command
from tests.support.dglrun_pods import ROOT
from tests.support.needs import NEEDS_DUCKDB, NEEDS_MPI


@pytest.fixture
def mapping(tmp_path: Path) -> Path:
    """Nodes 0 to 2 are b, ü and a."""
    path = tmp_path / "user.parquet"
    pq.write_table(pa.table({"id": ["b", "ü", "a"], "node": [0, 1, 2]}), path)
    return path


def run(mapping: Path, values: Path, out: Path, *flags: str) -> int:
    """Run the command."""
    named = ("--mapping", str(mapping), "--values", str(values), "--out", str(out))
    return run_command(ids, "ids", *named, *flags)


def test_a_row_for_each_node_gets_its_id(tmp_path: Path, mapping: Path) -> None:
    """Arrays of one and of two dimensions."""
    np.save(tmp_path / "one.npy", np.array([5, 6, 7], np.int32))
    np.save(tmp_path / "two.npy", np.array([[1, 2], [3, 4], [5, 6]], np.float16))

    assert run(mapping, tmp_path / "one.npy", tmp_path / "one.parquet") == 0
    assert run(mapping, tmp_path / "two.npy", tmp_path / "two.parquet") == 0

    one, two = pq.read_table(tmp_path / "one.parquet"), pq.read_table(tmp_path / "two.parquet")
    assert one.to_pydict() == {"id": ["b", "ü", "a"], "value": [5, 6, 7]}
    assert two.to_pydict() == {"id": ["b", "ü", "a"], "value_0": [1, 3, 5], "value_1": [2, 4, 6]}


def test_some_nodes_get_their_ids_in_the_order_of_the_nodes(tmp_path: Path, mapping: Path) -> None:
    """Parquet names its nodes: in any order, some several times, others not at all."""
    values = {"class": ["x", "y", "z"], "node": [2, 0, 2], "score": [0.5, 0.25, 1.0]}
    pq.write_table(pa.table(values), tmp_path / "v.parquet")

    assert run(mapping, tmp_path / "v.parquet", tmp_path / "out.csv") == 0

    found = pacsv.read_csv(tmp_path / "out.csv").to_pydict()
    assert found == {"id": ["b", "a", "a"], "class": ["y", "x", "z"], "score": [0.25, 0.5, 1.0]}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.zeros(2), "v.npy: expected a row for each of 3 nodes, got 2"),
        (np.zeros(4), "v.npy: node: row 4: expected 0 to 2, got 3"),
        (np.zeros((3, 1, 1)), "v.npy: expected numbers of shape (nodes,) or (nodes, k)"),
        ({"node": [3]}, "v.parquet: node: row 1: expected 0 to 2, got 3"),
        ({"node": [-1]}, "v.parquet: node: row 1: expected 0 to 2, got -1"),
        ({"node": ["a"]}, "v.parquet: expected one integer column `node`"),
        ({"nid": [1]}, "v.parquet: expected one integer column `node`, got ['nid']"),
        ({"node": [0], "id": [1]}, "v.parquet: expected no column `id`"),
        ({"node": pa.array([0, None])}, "v.parquet: expected a node in each row, got none in 1"),
        (None, "v.npy: does not exist"),
    ],
)
def test_values_that_do_not_fit_are_refused(
    tmp_path: Path, mapping: Path, capsys: pytest.CaptureFixture[str], values: object, expected: str
) -> None:
    """Exit code 65, one line, nothing is written."""
    path = tmp_path / ("v.parquet" if isinstance(values, dict) else "v.npy")
    if isinstance(values, dict):
        pq.write_table(pa.table(values), path)
    elif isinstance(values, np.ndarray):
        np.save(path, values)

    assert run(mapping, path, tmp_path / "out.parquet") == 65

    assert expected in capsys.readouterr().err
    assert not (tmp_path / "out.parquet").exists()


@pytest.mark.parametrize("layout", ["parquet", "csv"])
def test_rows_with_ids_get_the_numbers_of_their_nodes(
    tmp_path: Path, mapping: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    """In the order of the rows, of any kind of column, an ID several times; the mapping in several blocks."""
    monkeypatch.setattr(ids, "_MAPPING_ROWS", 2)
    table = pa.table({"x": [1, 2, 3, 4], "id": pa.array(["a", "ü", "b", "a"]).dictionary_encode()})
    if layout == "csv":
        pacsv.write_csv(table.cast(pa.schema({"x": pa.int64(), "id": pa.string()})), tmp_path / "v.csv")
    else:
        pq.write_table(table, tmp_path / "v.parquet")

    assert run(mapping, tmp_path / f"v.{layout}", tmp_path / "out.parquet", "--inverse") == 0

    assert pq.read_table(tmp_path / "out.parquet").to_pydict() == {"x": [1, 2, 3, 4], "node": [2, 1, 0, 2]}


def test_integer_ids_are_found_by_their_numbers(tmp_path: Path) -> None:
    """As in the tables that the mapping is of: 007 is 7."""
    numbers = pa.table({"id": [7, -3, 2**62], "node": [0, 1, 2]})
    pq.write_table(numbers, tmp_path / "user.parquet")
    (tmp_path / "v.csv").write_text(f"id,x\n{2**62},p\n007,q\n-3,r\n")

    assert run(tmp_path / "user.parquet", tmp_path / "v.csv", tmp_path / "out.csv", "--inverse") == 0

    assert (tmp_path / "out.csv").read_text() == '"node","x"\n2,"p"\n0,"q"\n1,"r"\n'


@pytest.mark.parametrize("rows", [[], [["00701", "true", "NA", "1.10"], ["9", "", "null", " x"]]])
def test_csv_to_csv_leaves_the_other_columns_as_they_are(
    tmp_path: Path, mapping: Path, rows: list[list[str]]
) -> None:
    """A postcode keeps its zeros: nothing is read as a number but the IDs."""
    lines = [["id", "zip", "flag", "note", "price"], *(["a", *row] for row in rows)]
    (tmp_path / "v.csv").write_text("".join(f"{','.join(line)}\n" for line in lines))

    assert run(mapping, tmp_path / "v.csv", tmp_path / "out.csv", "--inverse") == 0

    with (tmp_path / "out.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [["node", *lines[0][1:]], *(["2", *row] for row in rows)]


@pytest.mark.parametrize(("key", "more"), [("id", ("--inverse",)), ("node", ())])
def test_what_csv_cannot_hold_is_refused(
    tmp_path: Path, mapping: Path, capsys: pytest.CaptureFixture[str], key: str, more: tuple[str, ...]
) -> None:
    """By the column and its type; Parquet holds it."""
    values = {"id": ["a"], "node": [2]}
    pq.write_table(pa.table({key: values[key], "x": [[1, 2]]}), tmp_path / "v.parquet")

    assert run(mapping, tmp_path / "v.parquet", tmp_path / "out.csv", *more) == 65
    assert run(mapping, tmp_path / "v.parquet", tmp_path / "out.parquet", *more) == 0

    told = "out.csv: column 'x': csv cannot hold list<element: int64>: expected a name that ends in .parquet"
    err = capsys.readouterr().err
    assert told in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("layout", ["parquet", "csv"])
def test_values_with_ids_go_back_to_the_nodes_that_they_came_from(
    tmp_path: Path, mapping: Path, layout: str
) -> None:
    """What the command writes is what its inverse reads."""
    values = pa.table({"node": [0, 1, 1, 2], "x": [0.5, 1.5, 2.5, -1.0], "word": ["p", "", "q\nr", '"s"']})
    pq.write_table(values, tmp_path / "v.parquet")

    assert run(mapping, tmp_path / "v.parquet", tmp_path / f"named.{layout}") == 0
    assert run(mapping, tmp_path / f"named.{layout}", tmp_path / "back.parquet", "--inverse") == 0

    assert pq.read_table(tmp_path / "back.parquet").to_pydict() == values.to_pydict()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"id": ["a", "z"]}, "v.parquet: row 2: expected an ID of the mapping, got 'z'"),
        ({"id": pa.array(["a", None])}, "v.parquet: expected an ID in each row, got none in 1"),
        ({"id": [1.0]}, "v.parquet: expected texts or integers as IDs, got double"),
        ({"id": [[1]]}, "v.parquet: cannot be read: Unsupported cast"),
        ({"node": [1]}, "v.parquet: expected one column `id` and no `node`, got ['node']"),
        ({"id": ["a"], "node": [1]}, "expected one column `id` and no `node`, got ['id', 'node']"),
        ("id,x\na,1\nb\n", "v.csv: cannot be read: CSV parse error"),
        ("key\na\n", "v.csv: expected one column `id` and no `node`, got ['key']"),
        ("", "v.csv: cannot be read: Empty CSV file"),
        (None, "v.csv: does not exist"),
    ],
)
def test_ids_that_do_not_fit_are_refused(
    tmp_path: Path, mapping: Path, capsys: pytest.CaptureFixture[str], values: object, expected: str
) -> None:
    """Exit code 65, one line, nothing is written; an ID that is none is named with its row, from 1."""
    path = tmp_path / ("v.parquet" if isinstance(values, dict) else "v.csv")
    if isinstance(values, dict):
        pq.write_table(pa.table(values), path)
    elif isinstance(values, str):
        path.write_text(values)

    assert run(mapping, path, tmp_path / "out.parquet", "--inverse") == 65

    err = capsys.readouterr().err
    assert expected in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out.parquet").exists()


@NEEDS_DUCKDB
def test_the_page_finds_a_node_by_its_id(tmp_path: Path) -> None:
    """The very lines of Python of docs/howto/tables.md."""
    (lines,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/howto/tables.md").read_text(), re.S | re.M)
    (tmp_path / "chunks/mapping").mkdir(parents=True)
    known = pa.table({"id": ["bob@example.org", "ann@example.org"], "node": [0, 1]})
    pq.write_table(known, tmp_path / "chunks/mapping/user.parquet")

    argv = (sys.executable, "-c", f"{lines}print(found)")
    ended = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (ended.stdout, ended.stderr) == ("[(1,)]\n", "")


def test_contradicting_flags_are_refused(
    tmp_path: Path, mapping: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2."""
    np.save(tmp_path / "v.npy", np.zeros(3))

    assert run(mapping, tmp_path / "v.npy", tmp_path / "out.txt") == 2
    assert run(mapping, tmp_path / "v.npy", tmp_path / "out.csv", "--ntype", "user") == 2

    err = capsys.readouterr().err
    assert "--out: expected a name that ends in .parquet or .csv" in err
    assert "--ntype: expected --partition with it" in err


CONFIG = """
name: shop
nodes:
  user:
    files: "{0}/users.csv"
    id: id
    features: {{age: {{column: age}}}}
    masks: {{train: 0.8, test: 0.2}}
  item:
edges:
  user:buys:item: {{files: "{0}/buys.csv", src: s, dst: d, reverse: true}}
"""


@NEEDS_DUCKDB
@NEEDS_MPI
def test_csv_with_string_ids_goes_through_a_partition_and_its_values_come_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Chunk, partition, dispatch, verify; numbers of the partition get the IDs of the csv, and these them."""
    rng = np.random.default_rng(0)
    ages = {f"user {at}": int(rng.integers(1, 99)) for at in rng.permutation(60)}
    (tmp_path / "users.csv").write_text("id,age\n" + "".join(f"{key},{age}\n" for key, age in ages.items()))
    buys = [f"user {rng.integers(60)},i{rng.integers(20)}\n" for _ in range(300)]
    (tmp_path / "buys.csv").write_text("s,d\n" + "".join(buys))
    (tmp_path / "config.yaml").write_text(CONFIG.format(tmp_path))
    chunks, parts, out = (str(tmp_path / name) for name in ("chunks", "parts", "out"))

    assert run_command(chunk, "chunk", "--config", str(tmp_path / "config.yaml"), "--out-dir", chunks) == 0
    random = ("--num-parts", "3", "--backend", "random")
    assert run_command(partition, "partition", "--in-dir", chunks, "--out-dir", parts, *random) == 0
    where = ("--in-dir", chunks, "--partitions-dir", parts)
    assert run_command(dispatch, "dispatch", *where, "--out-dir", out, "--save-orig-nids") == 0
    assert run_command(verify, "verify", f"{out}/shop.json", *where) == 0

    folder = load_folder(Path(out) / "shop.json")
    stored = [folder.features(part, "node")["user/age"] for part in range(3)]
    np.save(tmp_path / "values.npy", np.concatenate([each.rows(0, len(each)) for each in stored]))
    mapping, got = Path(chunks) / "mapping" / "user.parquet", tmp_path / "got.parquet"
    assert run(mapping, tmp_path / "values.npy", got, "--partition", f"{out}/shop.json") == 0
    found = pq.read_table(got).to_pydict()
    assert dict(zip(found["id"], found["value"], strict=True)) == ages

    there = tmp_path / "there.csv"
    assert run(mapping, got, there, "--inverse", "--partition", f"{out}/shop.json") == 0
    back = pacsv.read_csv(there).to_pydict()
    assert back["value"] == found["value"]
    assert np.load(tmp_path / "values.npy")[back["node"]].tolist() == found["value"]
    assert sorted(back["node"]) == list(range(60))
    numbers = pq.read_table(mapping).slice(1)
    pq.write_table(numbers, tmp_path / "user.parquet")
    short = ("--inverse", "--partition", f"{out}/shop.json")
    pq.write_table(numbers.select(["id"]), tmp_path / "ids.parquet")
    assert run(tmp_path / "user.parquet", tmp_path / "ids.parquet", there, *short) == 65
    assert "shop.json: user: expected 59 nodes, got 60" in capsys.readouterr().err
