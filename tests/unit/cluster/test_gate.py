"""The gate's scripts: what they run in which order, where the time went, and what was left out."""

import os
import shutil
import subprocess
from itertools import count
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.cluster.daemons import running
from tests.support.wait import wait_for

ROOT = Path(__file__).parents[3]

PROGRAM = """#!/bin/sh
# Stands for python and pytest: notes its arguments, and fails or waits where the test says so.
name=$(basename "$0")
case "$*" in *"cluster env"*) exit 0 ;; esac
echo "$name $*" >>"$CALLS"
case "$name $*" in
*"$HANGS"*) echo $$ >"$CALLS.pid" && exec sleep 600 ;;
*"$FAILS"*) [ "$HANGS" = "no call" ] || until [ -s "$CALLS.pid" ]; do sleep 0.05; done; exit 3 ;;
*"pytest tests/cluster"*) echo "tests/cluster/a.py::test_a: KUBECONFIG" >>"$DGL_OPERATOR_GATE_SKIPS" ;;
esac
"""
FUZZ = "python -m tests.fuzz --number 500"
OTHERS = ("ruff", "shellcheck", "actionlint", "mypy", "lint-imports")


def gate(
    folder: Path, *argv: str, fails: str = "no call", hangs: str = "no call", **env: str
) -> tuple["subprocess.CompletedProcess[str]", list[str]]:
    """Run .ci/test with stand-ins for all programs; returns how it ended and what it called."""
    shutil.copytree(ROOT / ".ci", folder / ".ci")
    (folder / ".venv/bin").mkdir(parents=True)
    for name in ("python", "pytest", *OTHERS):
        program = folder / ".venv/bin" / name
        program.write_text(PROGRAM)
        program.chmod(0o755)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("DGL_", "KUBECONFIG"))}
    calls = folder / "calls"
    found = subprocess.run(
        [folder / ".ci/test", *argv],
        env=kept | {"CALLS": str(calls), "FAILS": fails, "HANGS": hangs} | env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return found, calls.read_text().splitlines() if calls.exists() else []


def test_the_whole_gate_takes_every_step_in_its_order(tmp_path: Path) -> None:
    """Images are built beside the checks, and are there before a cluster is."""
    done, calls = gate(tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    wanted = [
        "python -m tests.cluster build-tools kubectl helm actionlint",
        "pytest tests/unit -q -n 2 --dist worksteal --strict-skips",
        "pytest tests/cluster -m cluster --strict-skips",
        "python -m tests.cluster up",
        "python -m tests.cluster load",
        "pytest tests/integration -m integration --strict-skips",
        "pytest tests/e2e -m e2e and not long --strict-skips",
        FUZZ,
    ]
    assert [call for call in calls if call in wanted] == wanted
    assert calls.index("python -m tests.cluster images") < calls.index(wanted[2])


def test_the_gate_ends_with_where_the_time_went_and_what_was_left_out(tmp_path: Path) -> None:
    """A cluster that is not taken down and up is said at the end, where nobody overlooks it."""
    done, calls = gate(tmp_path, KUBECONFIG="/somebody/elses")

    end = done.stdout[done.stdout.index("== where the time went") :].splitlines()
    names = [line.split(" s  ")[1] for line in end if " s  " in line]
    assert names[-6:] == ["up", "load", "integration", "e2e", "fuzz", "in all"]
    assert {"clients", "tools", "format", "unit", "check", "cluster", "up"} <= set(names)
    assert end[-2:] == [
        "== LEFT OUT: 1 tests, for the reasons in tests/support/expected_skips.py",
        "tests/cluster/a.py::test_a: KUBECONFIG",
    ]
    assert "python -m tests.cluster images" not in calls


def test_a_failed_step_ends_the_gate_and_is_marked(tmp_path: Path) -> None:
    """After the table; what was built beside it ends with it."""
    done, calls = gate(tmp_path, fails="pytest tests/unit", hangs="tests.cluster images")

    assert done.returncode != 0
    assert "unit  FAILED\n" in done.stdout
    assert "check  FAILED\n" in done.stdout
    assert "check: failed: unit" in done.stderr
    assert not [call for call in calls if call.startswith("pytest tests/cluster")]
    images = int((tmp_path / "calls.pid").read_text())
    wait_for("the build of the images has ended", lambda: not running(images))


def test_failed_images_fail_the_gate(tmp_path: Path) -> None:
    """Though nobody waited for them at first."""
    done, calls = gate(tmp_path, fails="tests.cluster images")

    assert done.returncode != 0
    assert "what was left of them  FAILED\n" in done.stdout
    assert "python -m tests.cluster up" not in calls


@pytest.mark.parametrize(("what", "left"), [("integration", "e2e"), ("e2e", "integration")])
def test_one_suite_runs_alone(tmp_path: Path, what: str, left: str) -> None:
    """`make integration` and `make e2e`."""
    _, calls = gate(tmp_path, what)

    assert [call for call in calls if call.startswith("pytest")] == [
        f"pytest tests/{what} -m {what} --strict-skips"
    ]
    assert not [call for call in calls if left in call]
    assert [call for call in calls if "tests.fuzz" in call] == ([FUZZ] if what == "integration" else [])


def test_the_whole_gate_refuses_to_keep_an_operator_beside_that_of_the_fuzz(tmp_path: Path) -> None:
    """Before anything is done: the fuzz comes at the end."""
    done, calls = gate(tmp_path, DGL_OPERATOR_KEEP="1")

    assert (done.returncode, calls) == (2, [])
    assert "DGL_OPERATOR_KEEP=1: expected with `make e2e` alone" in done.stderr


def test_every_run_draws_examples_of_its_own_and_prints_what_failed() -> None:
    """The same hundred examples would find nothing after their first run."""
    used = settings()

    assert not used.derandomize
    assert used.deadline is None
    assert used.print_blob


def test_what_chance_and_a_busy_machine_do_to_examples_is_no_failure() -> None:
    """Where assume() refuses two of three, fifty refused ones come before ten others now and then."""
    times = count()

    @given(st.integers())
    def holds_seldom(_: int) -> None:
        assume(next(times) > 60)

    holds_seldom()
