"""A command on this pod: passed on, told truly, and ended with all that it has started."""

import sys
from pathlib import Path

import pytest

from dglrun.errors import RunError, Terminated
from dglrun.workflow import local_process
from dglrun.workflow.steps import Run
from tests.cluster.daemons import running
from tests.support.wait import wait_for

STUBBORN = 'sleep 600 & echo $! >"$0"; echo working; wait'
"""A shell: it has started its child and said so long before the deadline, on a busy machine too."""


def test_a_command_past_its_deadline_is_ended_with_its_children(tmp_path: Path) -> None:
    """124, with its last log lines; nothing of it stays, and it is not waited for."""
    child = tmp_path / "pid"
    step = Run(("sh", "-c", STUBBORN, str(child)), title="partitioning", seconds=4.0)

    with pytest.raises(RunError, match=r"partitioning had not ended after 4 s") as failure:
        local_process.run(step, lambda line: None)

    assert (failure.value.code, failure.value.words) == (124, "working")
    wait_for("the child's end", lambda: not running(int(child.read_text())))


def test_a_command_within_its_deadline_ends_as_it_does_without() -> None:
    """Its own code is told, whatever the deadline."""
    step = Run((sys.executable, "-c", "raise SystemExit(7)"), title="partitioning", seconds=60)

    with pytest.raises(RunError, match=r"partitioning ended with exit code 7"):
        local_process.run(step, lambda line: None)


FLAKY = 'n=$(cat "$0" 2>/dev/null || echo 0); echo $((n+1)) >"$0"; [ $n -ge 2 ] || { echo "$1" >&2; exit 1; }'
"""A shell in the place of kubectl: it fails twice with some words."""


@pytest.fixture
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_process, "REACH_PAUSE", 0.0)


@pytest.mark.usefixtures("_no_pause")
def test_a_check_on_another_pod_waits_until_the_pod_can_be_reached(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An API server that is away at that moment fails no job."""
    via = ("sh", "-c", FLAKY, str(tmp_path / "tries"), "error: a hole on the way")

    local_process.run(Run((), title="validating", via=via, pods=("job-worker-0",)), lambda line: None)

    assert (tmp_path / "tries").read_text() == "3\n"
    assert capsys.readouterr().out.count("job-worker-0 cannot be reached; it is tried again") == 2


@pytest.mark.usefixtures("_no_pause")
@pytest.mark.parametrize("ranks", [None, 2])
def test_a_check_that_fails_on_another_pod_is_not_repeated(tmp_path: Path, ranks: int | None) -> None:
    """It has had its say; and mpirun, which starts ranks, is never repeated here."""
    words = "error: a hole on the way" if ranks else "command terminated with exit code 1"
    via = ("sh", "-c", FLAKY, str(tmp_path / "tries"), words)

    with pytest.raises(RunError, match="validating ended with exit code 1"):
        local_process.run(
            Run((), title="validating", via=via, pods=("job-worker-0",), ranks=ranks), lambda line: None
        )

    assert (tmp_path / "tries").read_text() == "1\n"


@pytest.mark.parametrize("_", range(20))
def test_a_command_that_has_just_been_started_is_ended_too(raising: None, tmp_path: Path, _: int) -> None:
    """The signal comes as soon as there is a process: before it was known here, it lived on."""
    pid = tmp_path / "pid"

    with pytest.raises(Terminated):
        local_process.run(Run(("sh", "-c", f"echo $$ >{pid}; kill -TERM $PPID; exec sleep 600")), print)

    assert not running(int(pid.read_text()))
