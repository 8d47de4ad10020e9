"""What a command of a benchmark has used, as the benchmarks read it."""

import json
import sys
from pathlib import Path

import pytest

from tests.benchmarks import chunk_bench, dgl_api_bench, rusage
from tests.support.commands import run_program
from tests.support.measured import TABLES
from tests.support.needs import NEEDS_DUCKDB


def test_the_ranks_of_a_command_are_added_up(tmp_path: Path) -> None:
    """Their CPU time, and the memory of the largest alone."""
    works = "import sys; held = b'x' * (int(sys.argv[1]) << 20); sum(range(1000000))"
    for rank, mib in (("0", "64"), ("1", "1")):
        argv = (*rusage.noting(tmp_path / "both"), sys.executable, "-c", works, mib)
        assert run_program(argv, {"RANK": rank}).returncode == 0
    first, second = (json.loads((tmp_path / f"both.{rank}").read_text()) for rank in (0, 1))

    found = rusage.used(tmp_path / "both")

    assert found.user == pytest.approx(first["user"] + second["user"])
    assert found.cpu == pytest.approx(found.user + first["system"] + second["system"])
    assert min(first["user"], second["user"]) > 0
    assert found.rss == first["rss_mib"] > 64 > second["rss_mib"]


@NEEDS_DUCKDB
def test_chunk_gives_a_row_of_its_table() -> None:
    """Of few edges: the figures mean nothing, but they are there."""
    cells = chunk_bench.measure(chunk_bench.Case("csv", 50, 200, has_table=True))

    assert len(cells) == len(TABLES["chunk"].columns)
    assert cells[:3] == ["csv", "50", "200"]
    assert float(cells[3].split(" / ")[1]) > 0


def test_a_stage_of_several_commands_is_measured_as_one(tmp_path: Path) -> None:
    """As `dglrun partition` and `dglrun dispatch` beside partition_graph."""
    found = dgl_api_bench.run([("platform",), ("platform",)], tmp_path)

    assert found.cpu > 0
    assert found.peak > 1
