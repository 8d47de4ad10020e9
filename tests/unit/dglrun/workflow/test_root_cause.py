"""Which failure is told when several come together, and how it is told."""

from pathlib import Path

import pytest

from dglrun.agent.exit_status import ProcessFailure
from dglrun.cli.workflow import MESSAGE_BYTES, workflow
from dglrun.workflow.root_cause import WorkerFailure, error_of, root_cause

RESET = (
    "Traceback\nRuntimeError: [gloo/transport/tcp/pair.cc] Read error [10.0.0.2]: Connection reset by peer"
)


def failure(
    pod: str, time: float, code: int = 1, words: str = "ValueError: x", who: str = "trainer 0"
) -> WorkerFailure:
    """A failure on a worker."""
    return WorkerFailure(pod, ProcessFailure(who, code, f"ended with exit code {code}", words, 1, time), time)


def test_the_first_failure_is_the_culprit() -> None:
    """Later ones are its consequences, whatever they say."""
    first, later = failure("a", 10.0), failure("b", 12.0, 137)

    assert root_cause([later, first]) == first


@pytest.mark.parametrize(("code", "words"), [(137, ""), (1, "ValueError: bad batch"), (7, "sys.exit(7)")])
def test_a_lost_peer_is_a_consequence_even_when_told_first(code: int, words: str) -> None:
    """Clocks of nodes differ: within a second the one that speaks of a lost peer did not begin it."""
    consequence, cause = failure("a", 10.0, 1, RESET), failure("b", 10.4, code, words)

    assert root_cause([consequence, cause]) == cause


def test_a_lost_peer_alone_is_told() -> None:
    """Nothing better is known."""
    alone = failure("a", 10.0, 1, RESET)

    assert root_cause([alone]) == alone
    assert root_cause([alone, failure("b", 12.0)]) == alone


def test_the_agents_own_end_is_blamed_last() -> None:
    """A worker that could not be reached any more was ended by what ended the others."""
    lost, cause = failure("a", 10.0, 75, "", "agent"), failure("b", 10.2)

    assert root_cause([lost, cause]) == cause


def test_the_message_names_the_others_briefly() -> None:
    """Worker, rank, code of the root cause first; some of the rest after it."""
    failures = [failure(f"w{n}", 10.0 + n, n + 1) for n in range(12)]

    error = error_of(failures)

    assert error.code == 1
    assert str(error).startswith("w0: trainer 0 (rank 1) ended with exit code 1 [then w1: ")
    assert "w4" not in str(error)


def test_a_termination_message_keeps_its_head_and_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """4 KiB at most: the first line says what failed, the end is nearest to the cause."""
    log = tmp_path / "log"
    log.touch()
    script = tmp_path / "x.py"
    script.write_text("for n in range(20): print('é' * 500, n)\nraise RuntimeError('the cause')\n")
    monkeypatch.setenv("DGL_OPERATOR_PHASE_ENV", "Launcher_Workload")

    code = workflow(["--train-entry-point", str(script), "--workspace", str(tmp_path)], log=log)

    message = log.read_bytes()
    assert code == 1
    assert len(message) <= MESSAGE_BYTES
    assert message.decode().startswith("dglrun: " + str(script))
    assert message.decode().endswith("RuntimeError: the cause\n")
    assert capfd.readouterr().err.endswith("RuntimeError: the cause\n")


def test_a_file_name_that_is_no_utf8_is_told_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the failure's own exit code, and its bytes as escapes."""
    log, script = tmp_path / "log", tmp_path / "x.py"
    log.touch()
    script.write_text("raise SystemExit(3)\n")
    strange = tmp_path / "\udcff"
    strange.mkdir()
    script = script.rename(strange / "x.py")
    monkeypatch.setenv("DGL_OPERATOR_PHASE_ENV", "Launcher_Workload")

    code = workflow(["--train-entry-point", str(script), "--workspace", str(tmp_path)], log=log)

    assert code == 3
    assert "\\udcff/x.py" in log.read_text()
