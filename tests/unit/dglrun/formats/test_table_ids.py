"""Joins of IDs by DuckDB, beyond what `dglrun chunk --config` shows of them."""

import os
import signal
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dglrun.commands import program
from dglrun.errors import BackendFailedError, Terminated
from dglrun.formats.tables.ids import Joins
from tests.support.needs import NEEDS_DUCKDB

pytestmark = NEEDS_DUCKDB


def test_ids_beyond_the_memory_are_told_apart_in_groups(tmp_path: Path) -> None:
    """What is not in the mapping comes once, sorted, however many groups there are."""
    rng = np.random.default_rng(0)
    ends = rng.integers(-(2**40), 2**40, 2_500_000)
    pq.write_table(pa.table({"src": ends, "dst": ends[::-1] // 3}), tmp_path / "ends")
    known = np.concatenate([ends[:1000], [7]])
    pq.write_table(pa.table({"id": known}), tmp_path / "known")
    columns = [(tmp_path / "ends", "src"), (tmp_path / "ends", "dst")]

    with closing(Joins(tmp_path, 256)) as joins:
        joins.unlisted(columns, tmp_path / "known", tmp_path / "out")

    expected = np.setdiff1d(np.concatenate([ends, ends // 3]), known)
    assert np.array_equal(pq.read_table(tmp_path / "out")["id"].to_numpy(), expected)


def test_edges_keep_their_order_through_the_join(tmp_path: Path) -> None:
    """Over many row groups, all threads, and what DuckDB puts on disk; the first unknown end is found."""
    rng = np.random.default_rng(1)
    known = rng.permutation(2 * np.arange(700_000))
    ends = rng.integers(0, 700_000, (2, 3_000_000))
    ids = known[ends]
    ids[1, 2_345_678:] += 1
    texts = [pa.array(row).cast(pa.string()) for row in ids]
    pq.write_table(pa.table(texts, names=["src", "dst"]), tmp_path / "edges", row_group_size=100_000)
    mapping = {"id": pa.array(known).cast(pa.string()), "node": np.arange(len(known))}
    pq.write_table(pa.table(mapping), tmp_path / "known", row_group_size=100_000)

    with closing(Joins(tmp_path, 256)) as joins:
        joins.numbers(*(tmp_path / name for name in ("edges", "known", "known", "out")))
        found = joins.first_without_node(tmp_path / "edges", tmp_path / "out")

    ends[1, 2_345_678:] = -1
    table = pq.read_table(tmp_path / "out")
    assert np.array_equal([table["src"].to_numpy(), table["dst"].to_numpy()], ends)
    assert found == (2_345_678, "dst", str(ids[1, 2_345_678]))


def test_a_signal_ends_a_query(tmp_path: Path) -> None:
    """DuckDB would run for hours: the exception of the signal is what the command sees."""
    endless = "SELECT count(*) FROM range(10000000) AS a, range(10000000) AS b WHERE a.range < b.range"

    def run(joins: Joins) -> None:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
        joins._run(endless)

    with pytest.raises(Terminated), program.raising_terminated(), closing(Joins(tmp_path, 256)) as joins:
        run(joins)


def test_too_little_memory_names_the_key(tmp_path: Path) -> None:
    """What to change stands in the one line."""
    with (
        closing(Joins(tmp_path, 256)) as joins,
        pytest.raises(BackendFailedError, match="memory_mib: 256 is too little"),
    ):
        joins._run("SELECT list(range) FROM range(1000000000)")


def test_a_full_disk_is_an_error_of_the_file_system(tmp_path: Path) -> None:
    """With the folder that is full."""
    with closing(Joins(tmp_path, 256)) as joins:
        joins._run("SET max_temp_directory_size = '1MB'")
        with pytest.raises(OSError, match="No space left on device"):
            joins._run("CREATE TABLE t AS SELECT hash(range) AS a, hash(a) AS b FROM range(100000000)")
