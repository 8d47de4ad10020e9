"""Which of several failures began it: a rank that dies takes its peers along, and they say so later."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dglrun.agent.exit_status import ProcessFailure
from dglrun.contract import exitcodes
from dglrun.errors import RunError

TOGETHER_SECONDS = 1.0
"""Failures this close may be told in the wrong order by clocks of different nodes."""

SHOWN = 3
"""Later failures that the message names."""

_CONSEQUENCE = re.compile(
    r"connection (reset|closed|refused|was lost)|closed by peer|broken pipe|socket timeout|timed out|"
    r"ncclremoteerror|remote process|EOFError|peer.*(exited|closed)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class WorkerFailure:
    """A failure and where it happened.

    Attributes:
        pod: The worker pod.
        process: What its agent has reported.
        time: On the launcher's clock, in seconds since 1970.
    """

    pod: str
    process: ProcessFailure
    time: float

    def __str__(self) -> str:
        rank = "" if self.process.rank is None else f" (rank {self.process.rank})"
        return f"{self.pod}: {self.process.who}{rank} {self.process.what}"


def root_cause(failures: Sequence[WorkerFailure]) -> WorkerFailure:
    """The failure that began it: the first one, but a consequence only when nothing else is as near."""
    first = min(failures, key=lambda failure: failure.time)
    near = [failure for failure in failures if failure.time - first.time <= TOGETHER_SECONDS]
    return min(near, key=lambda failure: (_is_consequence(failure.process), failure.time))


def error_of(failures: Sequence[WorkerFailure]) -> RunError:
    """The failure of the run, with the exit code and the last log lines of its root cause."""
    cause = root_cause(failures)
    others = [str(other) for other in failures if other is not cause]
    message = str(cause) + (f" [then {'; '.join(others[:SHOWN])}]" if others else "")
    return RunError(message, cause.process.code or exitcodes.SOFTWARE, cause.process.words)


def _is_consequence(failure: ProcessFailure) -> int:
    """0: began by itself; 1: speaks of a lost peer; 2: the agent's own end."""
    if failure.who == "agent":
        return 2
    killed = failure.code > 128
    last = failure.words.strip().rpartition("\n")[2]
    return int(not killed and bool(_CONSEQUENCE.search(last)))
