"""Which of several failures began it: a rank that dies takes its peers along, and they say so later."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dglrun.agent.exit_status import Failure
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
class Blamed:
    """A failure and where it happened.

    Attributes:
        pod: The worker pod.
        failure: What its supervisor has told.
        time: On the launcher's clock, in seconds since 1970.
    """

    pod: str
    failure: Failure
    time: float

    def __str__(self) -> str:
        rank = "" if self.failure.rank is None else f" (rank {self.failure.rank})"
        return f"{self.pod}: {self.failure.who}{rank} {self.failure.what}"


def culprit(failures: Sequence[Blamed]) -> Blamed:
    """The failure that began it: the first one, but a consequence only when nothing else is as near."""
    first = min(failures, key=lambda blamed: blamed.time)
    near = [blamed for blamed in failures if blamed.time - first.time <= TOGETHER_SECONDS]
    return min(near, key=lambda blamed: (_is_consequence(blamed.failure), blamed.time))


def error_of(failures: Sequence[Blamed]) -> RunError:
    """The failure of the run, with the culprit's exit code and last words."""
    blamed = culprit(failures)
    others = [str(other) for other in failures if other is not blamed]
    message = str(blamed) + (f" [then {'; '.join(others[:SHOWN])}]" if others else "")
    return RunError(message, blamed.failure.code or exitcodes.SOFTWARE, blamed.failure.words)


def _is_consequence(failure: Failure) -> int:
    """0: began by itself; 1: speaks of a lost peer; 2: the supervisor's own end."""
    if failure.who == "supervisor":
        return 2
    killed = failure.code > 128
    last = failure.words.strip().rpartition("\n")[2]
    return int(not killed and bool(_CONSEQUENCE.search(last)))
