"""The benchmark of dispatch: what it times, and that both sides start alike."""

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import dispatch_bench, dispatch_targets
from tests.benchmarks.dispatch_bench import Run
from tests.benchmarks.dispatch_data import Size
from tests.support import compiled
from tests.support.compiled import compile_modules

SIZE = Size(10, 20, 0, 1, 1, "csv")

SCRIPT = """
import importlib.util, os, sys
from pathlib import Path

there = [each for each in Path(__file__).parent.glob("*.py") if each.name != Path(__file__).name]
missing = [each.name for each in there if not Path(importlib.util.cache_from_source(str(each))).exists()]
sys.exit(f"not compiled: {missing}" if missing or sys.dont_write_bytecode else 0)
"""


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def passes(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def _nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Neither before a test nor, for others, by it; and this process is told to leave no bytecode."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    compile_modules.cache_clear()
    yield
    compile_modules.cache_clear()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    for module in (dispatch_bench, dispatch_targets):
        monkeypatch.setattr(module, "time", Namespace(monotonic=lambda: found.now))
    return found


def test_to_compile_our_modules_is_no_part_of_a_run(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """The image has them compiled."""
    compiles: list[bool] = []

    def run(words: Sequence[str], **settings: Any) -> None:
        compiles.append("compileall" in words)
        clock.passes(100.0 if compiles[-1] else 2.0)
        assert settings["env"]["PYTHONDONTWRITEBYTECODE"] == ""

    for module in (compiled, dispatch_bench):
        monkeypatch.setattr(module, "subprocess", Namespace(run=run, DEVNULL=None))

    seconds = [dispatch_bench.by_mpirun(SIZE, Path("noted"), "a.module") for _ in range(2)]

    assert (seconds, compiles) == ([2.0, 2.0], [True, False, False])


def test_the_cheapest_of_several_runs_of_each_kind_counts() -> None:
    """Runs of one kind follow one another: the first of them may wait for memory that the others have."""
    costs = {"few": [3.0, 2.0, 5.0], "many": [7.0, 9.0, 8.0]}
    runs: list[str] = []

    def run(kind: str) -> float:
        runs.append(kind)
        return costs[kind][runs.count(kind) - 1]

    found = dispatch_bench.cheapest(costs, run, float, 3)

    assert runs == ["few"] * 3 + ["many"] * 3
    assert found == {"few": 2.0, "many": 7.0}


def test_beside_a_copy_counts_what_the_dispatch_says_and_the_way_to_the_disk(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """What comes before the ranks, such as to compile, is not theirs."""

    def dispatch(*_: object) -> float:
        clock.passes(102.0)
        return 2.0

    def finish(program: str, size: Size, source: Path, json_path: Path, wall: float) -> Run:
        return Run(program, size, 1.0, 1.0, wall, 1.0, 1.0)

    def copying(_: object, to: Path) -> float:
        to.mkdir()
        return 1.0

    monkeypatch.setattr(dispatch_targets, "generate", lambda _, folder: folder)
    monkeypatch.setattr(dispatch_targets, "by_dglrun", dispatch)
    monkeypatch.setattr(dispatch_targets, "to_disk", lambda _: clock.passes(1.0))
    monkeypatch.setattr(dispatch_targets, "finish", finish)
    monkeypatch.setattr(dispatch_targets, "copying", copying)
    monkeypatch.setattr(dispatch_targets, "os", Namespace(sync=lambda: None))

    *_, ours = dispatch_targets.beside_copy(SIZE, None)

    assert "3.00 of the wall of `cp`" in ours


def test_the_peer_finds_its_tools_compiled_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever this process is told of bytecode, each of its ranks would else compile them anew."""
    tools = tmp_path / "tools/distpartitioning"
    tools.mkdir(parents=True)
    (tools / "data_shuffle.py").write_text("")
    (tools / "data_proc_pipeline.py").write_text(SCRIPT)
    measured = Run("DGL", SIZE, 1.0, 1.0, 1.0, 1.0, 1.0)
    monkeypatch.setattr(dispatch_bench, "finish", lambda *_: measured)
    args = Namespace(dgl_tools=tools.parent, dgl_python=Path(sys.executable))

    assert dispatch_bench.theirs(SIZE, tmp_path, tmp_path, args) is measured
