"""Who works with an operator of another release, and who says that they do not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dglrun.cli.workflow import workflow
from dglrun.contract import env, exitcodes, version
from dglrun.contract.version import CURRENT, INIT_CONTAINER, JOB_IMAGE, OLDEST, Reader
from dglrun.pod_waiter import program

TOO_NEW = {env.CONTRACT_VERSION: str(CURRENT + 2)}


def of(number: int) -> dict[str, str]:
    """The environment that an operator of this number gives."""
    return {env.CONTRACT_VERSION: str(number)}


@pytest.mark.parametrize("reader", [JOB_IMAGE, INIT_CONTAINER], ids=lambda reader: reader.image)
@pytest.mark.parametrize("environment", [{}, of(version.UNNAMED), of(OLDEST), of(CURRENT)], ids=str)
def test_operators_of_the_same_and_of_the_last_number_are_served(
    reader: Reader, environment: dict[str, str]
) -> None:
    """One that gives no number has number 1."""
    assert version.refusal(environment, reader) is None


def test_the_number_before_is_served() -> None:
    """A release serves what the one before it says."""
    assert OLDEST <= CURRENT - 1


def test_a_job_image_one_older_than_the_operator_runs() -> None:
    """The operator serves it; nobody has to build an image anew at the hour of an upgrade."""
    assert version.refusal(of(CURRENT + 1), JOB_IMAGE) is None


@pytest.mark.parametrize(
    ("reader", "number", "remedy"),
    [
        (JOB_IMAGE, CURRENT + 2, "build the job image anew"),
        (INIT_CONTAINER, CURRENT + 1, "use the images watcher-loop and kubectl-download"),
        (JOB_IMAGE, OLDEST - 1, "update the operator"),
        (INIT_CONTAINER, OLDEST - 1, "update the operator"),
    ],
)
def test_other_operators_are_refused_by_both_numbers_and_with_a_remedy(
    reader: Reader, number: int, remedy: str
) -> None:
    """In one line."""
    said = version.refusal(of(number), reader)

    assert said is not None
    assert f"contract version {number}, {reader.image} serves {OLDEST} to {reader.newest}: {remedy}" in said
    assert "\n" not in said


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "9" * 5000, "\u0663"])
def test_a_number_that_is_none_is_refused(text: str) -> None:
    """With the variable's name, and cut."""
    said = version.refusal({env.CONTRACT_VERSION: text}, JOB_IMAGE)

    assert said is not None
    assert said.startswith(f"{env.CONTRACT_VERSION}: expected a whole number, got ")
    assert len(said) < 200


def test_dglrun_refuses_before_it_reads_anything_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What else such an operator says may mean something new; the kubelet gets the message, too."""
    log = tmp_path / "termination-log"
    log.touch()
    monkeypatch.setenv(env.CONTRACT_VERSION, str(CURRENT + 2))
    monkeypatch.setenv(env.PARTITION_MODE, "a mode of tomorrow")

    code = workflow(["-g", "g"], log=log)

    said = capsys.readouterr().err
    assert code == exitcodes.CONTRACT
    assert said.startswith(f"dglrun: the operator has contract version {CURRENT + 2}, the job image serves")
    assert said.count("\n") == 1
    assert log.read_text() == said


def test_watcher_loop_refuses_before_it_reads_anything_else(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its own variables may be missing then."""
    code = program.main(of(CURRENT + 1), tmp_path / "none")

    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (exitcodes.CONTRACT, 1)
    assert f"contract version {CURRENT + 1}" in said


@pytest.mark.parametrize("started", [("dglrun.agent",), ("dglrun", "supervise")], ids=" ".join)
def test_the_agent_of_a_worker_refuses_to_start(started: tuple[str, ...]) -> None:
    """A worker may have another image than the launcher, which then names the worker with these words.

    Launchers of earlier images start it by the second command.
    """
    done = subprocess.run(
        [sys.executable, "-m", *started],
        env={**os.environ, **TOO_NEW},
        input="",
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == exitcodes.CONTRACT
    assert json.loads(done.stdout)["kind"] == "refused"
    assert f"contract version {CURRENT + 2}" in json.loads(done.stdout)["what"]
