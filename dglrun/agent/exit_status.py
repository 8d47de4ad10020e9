"""How a process ended, in the shell's words and in the launcher's records."""

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ExitStatus:
    """The end of one process.

    Attributes:
        code: Exit code as a shell gives it: 128 + n when signal n ended it.
    """

    code: int

    @classmethod
    def of_status(cls, status: int) -> "ExitStatus":
        """From a wait status."""
        code = os.waitstatus_to_exitcode(status)
        return cls(code if code >= 0 else 128 - code)

    @property
    def is_good(self) -> bool:
        """Whether it ended with 0."""
        return self.code == 0

    def __str__(self) -> str:
        if self.code <= 128:
            return f"exit code {self.code}"
        try:
            return f"exit code {self.code} ({signal.Signals(self.code - 128).name})"
        except ValueError:
            return f"exit code {self.code}"


@dataclass(frozen=True)
class ProcessFailure:
    """Why a worker's run ended badly.

    Attributes:
        who: `trainer 0`, `server 1`, `sampler of trainer 0` or `agent`.
        code: Exit code of the process.
        what: One line on what happened.
        words: A traceback, or the last lines of its output.
        rank: Rank of the trainer, None where there is none.
        time: When it was seen, in seconds since 1970 on the worker's clock.
    """

    who: str
    code: int
    what: str
    words: str = ""
    rank: int | None = None
    time: float = 0.0

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> "ProcessFailure":
        """From the record that carried it; agents of earlier images call themselves `supervisor`."""
        who = "agent" if raw["who"] == "supervisor" else raw["who"]
        return cls(who, raw["code"], raw["what"], raw["words"], raw["rank"], raw["time"])
