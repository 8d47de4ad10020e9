"""One worker's agent as the training's main thread knows it."""

import time
from typing import Any

from dglrun.workflow.steps import WorkerAgent

Record = dict[str, Any]

REFUSED_SECONDS = 10.0
"""A port that refuses connections for so long belongs to no agent any more.

A firewall that is loaded anew may refuse for some seconds.
"""


class WorkerConnection:
    """State of one worker; changed by the records that come from it.

    Args:
        index: The worker's.
        agent: What runs there.
    """

    def __init__(self, index: int, agent: WorkerAgent) -> None:
        self.index, self.agent = index, agent
        self.greeting: Record | None = None
        self.is_drained = False
        self.has_files: bool | None = None
        """Whether its output folder has files, once it has finished."""
        self.shared_with: frozenset[int] = frozenset()
        """Workers whose output folder is this one's, as far as it has seen."""
        self.lost: str | None = None
        self.broken_since: float | None = None
        self.start_attempts = self.start_failures = 0
        """How often a start was tried, and how often it failed on the worker itself."""
        self.start_trouble = ""
        """What the last start that failed has said."""
        self._refused_since: float | None = None

    @property
    def pod(self) -> str:
        """The worker pod."""
        return self.agent.host.name

    @property
    def has_finished(self) -> bool:
        """Whether its agent has ended everything there, and said so."""
        return self.has_files is not None

    @property
    def sends_output(self) -> bool:
        """Whether its agent is there to send its output folder: one of an older release cannot."""
        return self.has_finished and bool(self.greeting and self.greeting.get("sends_output"))

    @property
    def is_over(self) -> bool:
        """Whether nothing runs there any more."""
        return self.has_finished or self.lost is not None

    @property
    def is_missing(self) -> bool:
        """Whether it cannot be reached, and has not said that all has ended there."""
        return not self.has_finished and (self.lost is not None or self.broken_since is not None)

    @property
    def is_silent(self) -> bool:
        """Whether nothing more will come: all output has been printed, too."""
        return self.is_drained or self.lost is not None

    @property
    def skew(self) -> float:
        """Seconds to add to the worker's clock to get ours."""
        return float(self.greeting["skew"]) if self.greeting else 0.0

    def note(self, record: Record) -> None:
        """Take account of a record."""
        match record["kind"]:
            case "hello":
                self.greeting = {**record, "skew": record["received"] - record["time"]}
                self.broken_since = self._refused_since = None
            case "finished":
                self.has_files = record["has_files"]
                self.shared_with = frozenset(record.get("shared_with", ()))
            case "drained":
                self.is_drained = True
            case "broken":
                self._note_break(record["is_refused"])

    def why_lost(self, lease: float) -> str | None:
        """Why a broken connection is given up, None while it is not."""
        if self.broken_since is None or self.is_silent:
            return None
        now = time.monotonic()
        if self._refused_since is not None and now - self._refused_since >= REFUSED_SECONDS:
            return "no agent runs on this worker"
        if now - self.broken_since > lease:
            return f"could not be reached for {lease:.0f} s"
        return None

    def _note_break(self, is_refused: bool) -> None:
        now = time.monotonic()
        self.broken_since = self.broken_since or now
        self._refused_since = (self._refused_since or now) if is_refused else None
