"""What the log and the statuses of a batch say together."""

from collections.abc import Iterable, Iterator, Mapping

from tests.fuzz.cases import Case
from tests.fuzz.findings import Finding
from tests.fuzz.raw_api import Json
from tests.fuzz.watched import LogError

Job = tuple[str, str]
_SHOWN = ("Stalled", "Blocked", "Failed")
LOOKS = 30
"""Looks at a job on average; 10,000 cases took 6."""


def log_findings(
    errors: Iterable[LogError],
    jobs: Mapping[Job, Case],
    statuses: Mapping[Job, Json | None],
    counted: float | None,
) -> Iterator[Finding]:
    """Each error is counted by a metric and shown in its job's status; an exception is always a finding.

    Args:
        errors: Errors that the operator logged.
        jobs: Cases by job.
        statuses: Status of each job, None for one that is gone.
        counted: By how much the operator's error counters grew meanwhile, None where nobody could read them.
    """
    for error in errors:
        place, _, name = error.job.partition("/")
        problems = ["not counted by a metric"] if counted == 0 else []
        if not is_shown(statuses.get((place, name))):
            problems.append("its job does not say so")
        if error.bug or problems:
            told = f" ({', '.join(problems)})" if problems else ""
            yield Finding(f"logged: {error.bug or 'error'}{told}", error.message, jobs.get((place, name)))


def looks_finding(looks: int, jobs: int) -> Iterator[Finding]:
    """Tell when the operator looked at its jobs over and over.

    The API server would be slow for it, and innocent jobs would not be judged by their time.
    """
    if looks > LOOKS * jobs:
        yield Finding("too many looks", f"{looks} at {jobs} jobs, expected {LOOKS} a job at most")


def is_shown(status: Json | None) -> bool:
    """Whether the status says that something is wrong; a job that is gone has none."""
    conditions = (status or {}).get("conditions") or ()
    kinds = {each.get("type") for each in conditions if each.get("status") == "True"}
    return status is None or bool(kinds & set(_SHOWN))
