"""The workers' output on a stdout that may break."""

import errno
import io
import sys
import threading

import pytest

from dglrun.workflow.output_printer import Chunk, OutputPrinter


class Full(io.StringIO):
    """A stdout on a disk that is full."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_stdout_that_breaks_is_told_once_and_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agents hear that all has been printed, so that the run comes to its end."""
    monkeypatch.setattr(sys, "stdout", Full())
    errors: list[Exception] = []
    printed = [threading.Event(), threading.Event()]
    printer = OutputPrinter(errors.append)

    for event in printed:
        printer.put(Chunk(0, (("trainer 0", "step"),), event.set))
    printer.close(60)

    assert all(event.is_set() for event in printed)
    assert [type(error) for error in errors] == [OSError]


def test_lines_of_ours_stand_where_they_were_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Between what came before and after."""
    seen: list[tuple[int, str, str]] = []
    printer = OutputPrinter(lambda error: pytest.fail(str(error)))
    printer.observe(lambda *line: seen.append(line))

    printer.put(Chunk(1, (("trainer 0", "step 1"), ("server 0", "up")), lambda: None))
    printer.say("dglrun: a note")
    printer.put(Chunk(1, (("trainer 0", "step 2"),), lambda: None))
    printer.close(60)

    assert capsys.readouterr().out == (
        "[worker-1 trainer 0] step 1\n[worker-1 server 0] up\ndglrun: a note\n[worker-1 trainer 0] step 2\n"
    )
    assert seen == [(1, "trainer 0", "step 1"), (1, "server 0", "up"), (1, "trainer 0", "step 2")]
