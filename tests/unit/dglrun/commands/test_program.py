"""How a command ends."""

import errno
import importlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dglrun.commands import elapsed, program
from dglrun.errors import DataError, Terminated, UnwritableError
from tests.support.dglrun_pods import ROOT
from tests.support.heterographs import a_toy
from tests.support.terminal import in_a_terminal
from tests.support.wait import read_until, wait_for


def ended_by(error: Exception, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code and the words of a command that raises."""

    def work() -> int:
        raise error

    return program.run("dglrun it", work), capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (DataError("x.csv: line 3"), 65, "dglrun it: x.csv: line 3\n"),
        (UnwritableError("out: cannot be written"), 74, "dglrun it: out: cannot be written\n"),
        (FileNotFoundError(errno.ENOENT, "No such file", "/a/b"), 74, "dglrun it: /a/b: No such file\n"),
        (OSError("of a library"), 74, "dglrun it: of a library\n"),
    ],
)
def test_an_expected_error_is_one_line(
    capsys: pytest.CaptureFixture[str], error: Exception, code: int, said: str
) -> None:
    """With the code of its kind."""
    assert ended_by(error, capsys) == (code, said)


def test_a_bug_keeps_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """And is told as one."""
    code, said = ended_by(KeyError("x"), capsys)

    assert code == 70
    assert "Traceback" in said
    assert said.endswith("dglrun it: a bug in dglrun: KeyError: 'x'\n")


def test_a_full_disk_is_told_with_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    """A write that fails knows no file."""

    def work() -> int:
        with program.naming(Path("/out")), Path("/dev/full").open("wb", buffering=0) as full:
            return full.write(b"0")

    code = program.run("dglrun it", work)

    assert (code, capsys.readouterr().err) == (74, "dglrun it: /out: No space left on device\n")


WAITING = """
import signal, sys
from dglrun.commands import program
def work():
    try:
        print("begun", flush=True)
        signal.pause()
    finally:
        print("cleaned", flush=True)
sys.exit(program.run("dglrun it", work))
"""


@pytest.mark.parametrize(
    ("number", "said"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "ended by SIGTERM")]
)
def test_a_signal_is_one_line(number: signal.Signals, said: str) -> None:
    """130 or 143, after the clean-up."""
    argv = (sys.executable, "-c", WAITING)
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as started:
        read_until(started, "begun")
        started.send_signal(number)
        ended = started.communicate(timeout=120)

    assert started.returncode == 128 + number
    assert ended == ("cleaned\n", f"dglrun it: {said}\n")


CLEARING = """
import signal
try:
    signal.raise_signal(signal.{name})
    len([])  # the handler has run
except BaseException:
    pass
"""
"""A module whose start clears what comes, as those of Cython and numpy do in C."""

IMPORTING = """
import signal, sys
from dglrun.commands import program
def work():
    import clearing
    signal.pause()
sys.exit(program.run("dglrun it", work))
"""


@pytest.mark.parametrize(("name", "said"), [("SIGINT", "interrupted"), ("SIGTERM", "ended by SIGTERM")])
def test_a_signal_during_an_import_ends_the_command_after_it(tmp_path: Path, name: str, said: str) -> None:
    """Nothing loses it, and no import that it broke is told as a bug."""
    (tmp_path / "clearing.py").write_text(CLEARING.format(name=name))
    known = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    argv = (sys.executable, "-c", IMPORTING)

    ended = subprocess.run(argv, capture_output=True, text=True, env=known, timeout=120, check=False)

    assert (ended.returncode, ended.stderr) == (128 + signal.Signals[name], f"dglrun it: {said}\n")


def test_a_signal_during_the_last_import_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the work ends before the import is asked for again; the timer does not outlive it."""
    (tmp_path / "clearing.py").write_text(CLEARING.format(name="SIGTERM"))
    monkeypatch.syspath_prepend(tmp_path)
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)]

    with pytest.raises(Terminated) as ended, program.raising_terminated():
        importlib.import_module("clearing")

    assert ended.value.number == signal.SIGTERM
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM)] == before


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    """`dglrun partition --dry-run | head -0`: quiet, as other programs are."""
    source = a_toy(parts=2).write(tmp_path / "in")
    flags = ("--in-dir", str(source), "--out-dir", str(tmp_path / "out"), "--num-parts", "2", "--dry-run")
    argv = (sys.executable, "-u", "-m", "dglrun", "partition", *flags)
    reader, writer = os.pipe()
    os.close(reader)  # before the start: who leaves later may have been told all

    try:
        ended = subprocess.run(
            argv, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=ROOT, timeout=120, check=False
        )
    finally:
        os.close(writer)

    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, "")


def test_work_without_output_shows_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    """Line by line in a log, until the work ends."""
    said = ""

    def has_two_lines() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return said.count("\n") >= 2

    with elapsed.showing("dglrun it: METIS", 0.01):
        wait_for("two lines", has_two_lines)

    assert re.match(r"(dglrun it: METIS: \d+ s\n){2}", said)


def test_a_terminal_gets_one_line_that_is_rewritten() -> None:
    """And a new line at the end, for what follows."""
    wait = "while elapsed.threading.active_count() < 2 or not shown(): pass"
    code = f"""
import sys
from dglrun.commands import elapsed
count = 0
write = sys.stderr.write
def counted(text):
    global count
    count += text.startswith("\\r")
    return write(text)
sys.stderr.write = counted
def shown():
    return count >= 2
with elapsed.showing("METIS", 0.01):
    {wait}
print("next")
"""

    ended, shown = in_a_terminal("-c", code)

    assert ended == 0
    assert re.match(r"(\rMETIS: \d+ s){2}", shown)
    assert shown.endswith(" s\r\nnext\r\n")


def test_a_second_signal_does_not_disturb_the_end() -> None:
    """Ctrl-C twice is one line, after the clean-up."""
    code = WAITING.replace('print("cleaned", flush=True)', "signal.raise_signal(signal.SIGINT)")
    with subprocess.Popen(
        (sys.executable, "-c", code), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as started:
        read_until(started, "begun")
        started.send_signal(signal.SIGINT)
        _, said = started.communicate(timeout=120)

    assert (started.returncode, said) == (130, "dglrun it: interrupted\n")
