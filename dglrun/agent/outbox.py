"""What an agent has to tell its launcher, kept until the launcher has it.

Two flows. Control records (a process has ended, failed, all is over) are few; none is ever dropped, and none
waits behind output. Output goes out only as far as the launcher's window allows, so that a launcher that
cannot print, or has gone, costs memory here up to a limit for each process and nothing else: then the oldest
lines go and are counted. A broken connection is taken up again where it broke, in both flows.
"""

import json
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LIMIT = 64 << 20
"""Bytes of memory for the output of each process that waits."""
_OVERHEAD = 100
"""Bytes of a line that waits, beside its text: a pair, a number, places in two containers."""
WINDOW = 1 << 18
"""Bytes of output on their way to the launcher's log, which it has not said to have printed."""


@dataclass(frozen=True)
class _Sent:
    """A record on its way.

    Attributes:
        number: Its own number; each flow counts from 1.
        text: The record as it is sent.
    """

    number: int
    text: bytes


class Outbox:
    """Both flows of one run.

    Args:
        limit: Bytes of memory for the output of each process that waits.
        window: Bytes of output on their way; one line more, whatever its length.
    """

    def __init__(self, limit: int = LIMIT, window: int = WINDOW) -> None:
        self._control: deque[_Sent] = deque()
        self._control_next = 0
        """Index in `_control` of the first that this connection has not sent."""
        self._controls = 0
        self._waiting = _Waiting(limit)
        self._window = window
        self._flying: deque[_Sent] = deque()
        self._flying_next = 0
        self._flying_bytes = 0
        self._lines = 0

    def record(self, record: Mapping[str, Any]) -> None:
        """Add a control record."""
        self._controls += 1
        text = json.dumps({**record, "control": self._controls}).encode() + b"\n"
        self._control.append(_Sent(self._controls, text))

    def line(self, who: str, text: str) -> None:
        """Add a line of output of a process."""
        self._waiting.add(who, text)

    def resume(self, control: int, received: int, printed: int) -> None:
        """Begin with a new connection, on which everything behind these numbers is sent (again).

        Args:
            control: Number of the last control record that the launcher has.
            received: Number of the last line that it has.
            printed: Number of the last line that it has printed.
        """
        self.acknowledge(control, printed)
        self._control_next = 0
        self._flying_next = sum(sent.number <= received for sent in self._flying)

    def acknowledge(self, control: int, printed: int) -> None:
        """Forget what the launcher has, and widen its window by what it has printed."""
        while self._control and self._control[0].number <= control:
            self._control.popleft()
            self._control_next = max(0, self._control_next - 1)
        while self._flying and self._flying[0].number <= printed:
            self._flying_bytes -= len(self._flying.popleft().text)
            self._flying_next = max(0, self._flying_next - 1)

    def take(self) -> bytes:
        """The next bytes to send on this connection, control first; none if nothing may be sent."""
        if self._control_next < len(self._control):
            self._control_next += 1
            return self._control[self._control_next - 1].text
        if self._flying_next == len(self._flying):
            self._launch()
        if self._flying_next < len(self._flying):
            self._flying_next += 1
            return self._flying[self._flying_next - 1].text
        return b""

    @property
    def is_acknowledged(self) -> bool:
        """Whether the launcher has all control records."""
        return not self._control

    @property
    def is_printed(self) -> bool:
        """Whether the launcher has printed all lines."""
        return not self._flying and not self._waiting

    def _launch(self) -> None:
        """Move one waiting line into the window if there is room."""
        if self._flying_bytes >= self._window or not self._waiting:
            return
        self._lines += 1
        text = json.dumps({**self._waiting.pop(), "line": self._lines}).encode() + b"\n"
        self._flying.append(_Sent(self._lines, text))
        self._flying_bytes += len(text)


class _Waiting:
    """Lines that have not been sent yet, in order, within a limit for each process."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lines: dict[str, deque[tuple[int, str]]] = {}
        self._bytes: dict[str, int] = {}
        self._dropped: dict[str, int] = {}
        self._count = 0

    def __bool__(self) -> bool:
        return any(self._lines.values())

    def add(self, who: str, text: str) -> None:
        self._count += 1
        lines = self._lines.setdefault(who, deque())
        lines.append((self._count, text))
        self._bytes[who] = self._bytes.get(who, 0) + sys.getsizeof(text) + _OVERHEAD
        while self._bytes[who] > self._limit and len(lines) > 1:
            self._bytes[who] -= sys.getsizeof(lines.popleft()[1]) + _OVERHEAD
            self._dropped[who] = self._dropped.get(who, 0) + 1

    def pop(self) -> dict[str, Any]:
        """The oldest line of all, and how many of its process's were dropped just before it."""
        who = min((name for name, lines in self._lines.items() if lines), key=lambda n: self._lines[n][0][0])
        _, text = self._lines[who].popleft()
        self._bytes[who] -= sys.getsizeof(text) + _OVERHEAD
        return {"kind": "line", "who": who, "text": text, "dropped": self._dropped.pop(who, 0)}
