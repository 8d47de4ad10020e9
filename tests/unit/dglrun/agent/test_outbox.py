"""What an agent has to tell, over connections that break at any moment."""

import json
import sys
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dglrun.agent.outbox import Outbox

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("line"), st.sampled_from(["trainer 0", "server 0"])),
        st.tuples(st.just("control"), st.just("")),
        st.tuples(st.just("send"), st.just("")),
        st.tuples(st.just("print"), st.just("")),
        st.tuples(st.just("break"), st.just("")),
    ),
    max_size=120,
)


class Launcher:
    """Reads one record at a time; prints what it has when told to."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.controls: list[int] = []
        self.lines: list[str] = []
        self._printed = 0
        self.dropped = 0

    def read(self) -> bool:
        """Take what the outbox sends; whether there was anything."""
        block = self._outbox.take()
        if block:
            self._note(json.loads(block))
        return bool(block)

    def print_all(self) -> None:
        """Print all lines that have come."""
        self._printed = len(self.lines)
        self._outbox.acknowledge(len(self.controls), self._printed)

    def reconnect(self) -> None:
        """Begin with a new connection."""
        self._outbox.resume(len(self.controls), len(self.lines), self._printed)

    def _note(self, record: dict[str, Any]) -> None:
        if record["kind"] == "line":
            assert record["line"] == len(self.lines) + 1
            self.lines.append(record["text"])
            self.dropped += record["dropped"]
        else:
            assert record["control"] == len(self.controls) + 1
            self.controls.append(record["number"])


@given(EVENTS, st.integers(1, 400))
def test_each_record_and_line_comes_once_and_in_order(events: list[tuple[str, str]], window: int) -> None:
    """Whatever breaks when, and however small the window is."""
    outbox = Outbox(window=window)
    launcher = Launcher(outbox)
    controls, lines = 0, 0
    for what, who in events:
        match what:
            case "line":
                lines += 1
                outbox.line(who, str(lines))
            case "control":
                controls += 1
                outbox.record({"kind": "ended", "number": controls})
            case "send":
                launcher.read()
            case "print":
                launcher.print_all()
            case "break":
                launcher.reconnect()
    launcher.print_all()
    while launcher.read():
        launcher.print_all()

    assert launcher.controls == list(range(1, controls + 1))
    assert launcher.lines == [str(number) for number in range(1, lines + 1)]
    assert launcher.dropped == 0
    assert outbox.is_printed
    assert outbox.is_acknowledged


def test_control_does_not_wait_behind_output() -> None:
    """A million lines wait, nothing is printed: how a process ended is told at once."""
    outbox = Outbox(window=10)
    for number in range(1000):
        outbox.line("trainer 0", str(number))
    outbox.take()

    outbox.record({"kind": "ended"})

    assert json.loads(outbox.take())["kind"] == "ended"
    assert outbox.take() == b""


def test_a_launcher_that_does_not_print_gets_a_window_and_no_more() -> None:
    """What it has not printed waits here, not in its memory."""
    outbox = Outbox(window=1000)
    for number in range(1000):
        outbox.line("trainer 0", str(number))
    sent = b""
    while block := outbox.take():
        sent += block

    assert 1000 <= len(sent) < 1200


def test_the_oldest_lines_of_a_process_go_and_are_counted() -> None:
    """One that floods costs its own lines, not those of the others."""
    line = sys.getsizeof(f"{0:010}") + 100
    outbox = Outbox(limit=10 * line, window=1 << 20)
    outbox.line("server 0", "the server's only line")
    for number in range(1000):
        outbox.line("trainer 0", f"{number:010}")
    records = []
    while block := outbox.take():
        records.append(json.loads(block))

    assert [record["text"] for record in records[:2]] == ["the server's only line", f"{990:010}"]
    assert len(records) == 11
    assert sum(record["dropped"] for record in records) == 990


def test_empty_lines_are_bounded_too() -> None:
    """Each costs memory, though it has no letters."""
    outbox = Outbox(limit=10_000, window=1 << 20)
    for _ in range(1000):
        outbox.line("trainer 0", "")
    records = []
    while block := outbox.take():
        records.append(json.loads(block))

    assert len(records) < 100
    assert len(records) + sum(record["dropped"] for record in records) == 1000
