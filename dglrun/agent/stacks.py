"""The stacks of processes that hang, written by the processes themselves among their output.

`dglrun.agent.script_runner` lets a script and what it spawns answer STACKS_SIGNAL; other processes, which it
would end, are not asked.
"""

import contextlib
import os
from collections.abc import Iterable

from dglrun.agent import STACKS_SIGNAL, procfs
from dglrun.agent.process_group import Child

ANSWER_SECONDS = 5.0
"""How long a process is waited for that writes nothing."""
QUIET_SECONDS = 0.5
"""A process that has written, and then nothing more for so long, has written all."""


class StackRequest:
    """Asks processes for their stacks.

    Args:
        children: Who is asked, each with its descendants.
        now: The time (monotonic).
    """

    def __init__(self, children: Iterable[Child], now: float) -> None:
        self._asked, self._at = [child for child in children if not child.end], now
        entries = procfs.table()
        self._asked = [child for child in self._asked if _ask(child.pid, entries)]

    def is_answered(self, now: float) -> bool:
        """Whether all have written their stacks, or no longer will."""
        return now > self._at + ANSWER_SECONDS or all(
            child.end or self._at < child.wrote < now - QUIET_SECONDS for child in self._asked
        )


def _ask(pid: int, entries: dict[int, procfs.Entry]) -> bool:
    """Signal a process and its descendants, as far as they answer; whether any does."""
    family = [pid, *(entry.pid for entry in procfs.descendants(pid, entries))]
    answering = [each for each in family if procfs.catches(each, STACKS_SIGNAL)]
    for each in answering:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(each, STACKS_SIGNAL)
    return bool(answering)
