"""Notices the death of samplers: children of the trainers, which DGL waits for without limit.

A sampler is a process that Python's `spawn` method started. Its parent does not ask for its exit status
before the end, so it stays as a zombie, whose status the kernel shows.
"""

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass

from dglrun.agent import procfs
from dglrun.agent.exit_status import ExitStatus

_PATIENT = 128 + signal.SIGTERM
"""A pool that is closed ends its workers by SIGTERM and asks for their status at once."""


@dataclass(frozen=True)
class SamplerDeath:
    """A spawned child that ended badly while its trainer lived.

    Attributes:
        trainer: Process id of the trainer.
        pid: Its own process id.
        end: How it ended.
    """

    trainer: int
    pid: int
    end: ExitStatus


class SamplerMonitor:
    """What was seen of the spawned children so far."""

    def __init__(self) -> None:
        self._known: set[tuple[int, int]] = set()
        self._suspect: set[tuple[int, int]] = set()

    def look(self, trainers: frozenset[int], entries: Mapping[int, procfs.Entry]) -> list[SamplerDeath]:
        """The deaths that this look at the processes shows.

        Args:
            trainers: Process ids of the trainers that live.
            entries: All processes, from `procfs.table`.
        """
        deaths = []
        for entry in entries.values():
            if entry.parent in trainers and (end := self._end_of(entry)):
                deaths.append(SamplerDeath(entry.parent, entry.pid, end))
        return deaths

    def _end_of(self, entry: procfs.Entry) -> ExitStatus | None:
        key = (entry.pid, entry.started)
        if not entry.is_zombie:
            if key not in self._known and procfs.is_spawned(entry.pid):
                self._known.add(key)
            return None
        if key not in self._known or (os.WIFEXITED(entry.status) and os.WEXITSTATUS(entry.status) == 0):
            return None
        end = ExitStatus.of_status(entry.status)
        if end.code == _PATIENT and key not in self._suspect:
            self._suspect.add(key)
            return None
        return end
