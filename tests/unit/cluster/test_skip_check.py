"""A run with --strict-skips fails for each skip that is not on the list, and for what is stale on it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.expected_skips import EXPECTED, ExpectedSkip
from tests.support.skip_check import stale, unexpected

ROOT = Path(__file__).parents[3]

CONFTEST = """
import pytest
from tests.support.expected_skips import ExpectedSkip
from tests.support.skip_check import SkipCheck

EXPECTED = (ExpectedSkip("suite", (r"test_gpu",), "no GPU", lambda: True),)

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipCheck(config, EXPECTED))
"""
GPU = """
import pytest
def test_gpu():
    pytest.skip("no GPU")
def test_more():
    pass
"""
SURPRISE = """
import pytest
pytest.importorskip("dgl_operator_has_no_such_module")
"""


def an_entry(*tests: str, reason: str = "no GPU", when: bool = True) -> ExpectedSkip:
    return ExpectedSkip("suite", tests or ("test_gpu",), reason, lambda: when)


def run(folder: Path, *flags: str, **modules: str) -> "subprocess.CompletedProcess[str]":
    """Run pytest in a project of its own that has the check and the given test modules."""
    (folder / "suite").mkdir()
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "conftest.py").write_text(CONFTEST)
    for name, text in modules.items():
        (folder / "suite" / f"test_{name}.py").write_text(text)
    argv = (sys.executable, "-m", "pytest", "suite", "-p", "no:cacheprovider", *flags)
    env = os.environ | {"PYTHONPATH": str(ROOT), "DGL_OPERATOR_GATE_SKIPS": str(folder / "skips")}
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("flags", [(), ("-n", "2")], ids=["here", "workers"])
def test_an_expected_skip_passes_and_is_told(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """The gate prints what was left out at its end."""
    done = run(tmp_path, *flags, gpu=GPU)

    assert done.returncode == 0, done.stdout
    assert (tmp_path / "skips").read_text() == "suite/test_gpu.py::test_gpu: no GPU\n"


@pytest.mark.parametrize("flags", [(), ("-n", "2")], ids=["here", "workers"])
def test_another_skip_fails_the_run_and_is_named(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """A module that is skipped as a whole, too: none of its tests would be missed."""
    done = run(tmp_path, *flags, gpu=GPU, surprise=SURPRISE)

    assert done.returncode == 1
    assert "suite/test_surprise.py::: skipped, and tests/support/expected_skips.py" in done.stdout
    assert "dgl_operator_has_no_such_module" in done.stdout


@pytest.mark.parametrize("flags", [(), ("-n", "2")], ids=["here", "workers"])
def test_an_entry_without_its_test_fails_the_run(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """A renamed test would take its reason along unseen."""
    done = run(tmp_path, *flags, gpu=GPU.replace("test_gpu", "test_renamed").replace("skip(", "print("))

    assert done.returncode == 1
    assert "expected a test named 'test_gpu' to skip, got no such test" in done.stdout


@pytest.mark.parametrize(
    ("nodeid", "reason", "entry"),
    [
        ("suite/test_a.py::test_gpu", "no GPU", an_entry(when=False)),
        ("suite/test_a.py::test_gpu", "no disk", an_entry()),
        ("suite/test_a.py::test_gpu[2]", "no GPU", an_entry()),
        ("other/test_a.py::test_gpu", "no GPU", an_entry()),
    ],
    ids=["condition", "reason", "name", "suite"],
)
def test_a_skip_needs_its_name_its_reason_and_its_condition(
    nodeid: str, reason: str, entry: ExpectedSkip
) -> None:
    """All three: a listed test that skips for something else is as lost as any other."""
    assert len(unexpected({nodeid: reason}, [entry])) == 1


def test_an_entry_whose_tests_ran_is_stale() -> None:
    """Its condition holds and nothing was skipped: the list would grow old."""
    ran = ["suite/test_a.py::test_gpu"]

    (line,) = stale({}, ran, "suite", [an_entry()])

    assert line == "suite: expected skips for 'no GPU', got none: remove the entry"
    assert stale({}, ran, "suite", [an_entry(when=False)]) == []
    assert stale({ran[0]: "no GPU"}, ran, "suite", [an_entry()]) == []


def test_every_entry_is_of_a_suite_that_the_gate_runs_strictly() -> None:
    """A suite that is run without the flag would skip what it likes."""
    gate = (ROOT / ".ci/check").read_text() + (ROOT / ".ci/test").read_text()
    lines = [line for line in gate.splitlines() if "pytest" in line and "--collect-only" not in line]

    assert all("--strict-skips" in line for line in lines), lines
    assert all(any(entry.suite in line for line in lines) for entry in EXPECTED)
