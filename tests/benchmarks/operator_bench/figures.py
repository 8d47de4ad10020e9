"""What a run found, as values, ratios and Markdown tables. Pure."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

OTHERS = "others"
"""CPU of everything that the benchmark does not know."""
RARE = 0.01
"""Fewer requests of a kind per job are left out of the table."""


@dataclass(frozen=True)
class SideFigures:
    """What one operator did with its jobs.

    Attributes:
        name: The operator.
        jobs: Number of jobs, submitted at once.
        seconds: From the first submission to the last Completed.
        completed: Seconds from each job's submission to its completion.
        cpu: CPU seconds by process until the last Completed; `operator` is the one under test.
        rss_start: MiB without a job.
        rss_peak: MiB at most.
        rss_after: MiB when all jobs are deleted.
        cleaning: Seconds from the last Completed to the deletion of the last worker.
        left: Workers that were not deleted.
        requests: By verb and resource until then; None without an audit log.
        events: Events posted, repetitions included.
    """

    name: str
    jobs: int
    seconds: float
    completed: Sequence[float]
    cpu: Mapping[str, float]
    rss_start: float
    rss_peak: float
    rss_after: float
    cleaning: float = 0.0
    left: int = 0
    requests: Mapping[str, int] | None = None
    events: int = 0

    @property
    def pace(self) -> float:
        """Jobs per second."""
        return self.jobs / self.seconds

    def share(self, quantile: float) -> float:
        """A quantile of the times to Completed, as a share of the whole run."""
        return nearest_rank(self.completed, quantile) / self.seconds

    @property
    def cpu_ms(self) -> float:
        """CPU milliseconds of the operator for each job."""
        return 1000 * self.cpu["operator"] / self.jobs

    @property
    def requests_per_job(self) -> float | None:
        """Requests to the API server, those for Events included."""
        return None if self.requests is None else (sum(self.requests.values()) + self.events) / self.jobs

    @property
    def status_writes_per_job(self) -> float | None:
        """Writes of the jobs' status."""
        if self.requests is None:
            return None
        writes = (count for what, count in self.requests.items() if what.endswith("/status"))
        return sum(writes) / self.jobs


def nearest_rank(values: Sequence[float], quantile: float) -> float:
    """The smallest value that at least this share of all values does not exceed."""
    return sorted(values)[max(0, math.ceil(quantile * len(values)) - 1)]


class Row(NamedTuple):
    """A line of the table: how to read the value, and how to print it."""

    what: str
    value: Callable[[SideFigures], float | None]
    form: str


ROWS = (
    Row("jobs", lambda side: side.jobs, ",.0f"),
    Row("whole run, s", lambda side: side.seconds, ".1f"),
    Row("jobs per second", lambda side: side.pace, ".2f"),
    Row("median time to Completed, share of the run", lambda side: side.share(0.5), ".2f"),
    Row("95th percentile of it, share of the run", lambda side: side.share(0.95), ".2f"),
    Row("workers deleted, s after the last Completed", lambda side: side.cleaning, ".1f"),
    Row("workers never deleted", lambda side: side.left, ".0f"),
    Row("operator CPU per job, ms", lambda side: side.cpu_ms, ".1f"),
    Row("RSS without jobs, MiB", lambda side: side.rss_start, ".0f"),
    Row("peak RSS, MiB", lambda side: side.rss_peak, ".0f"),
    Row("RSS when all jobs are deleted, MiB", lambda side: side.rss_after, ".0f"),
    Row("RSS afterwards over RSS at the start", lambda side: side.rss_after / side.rss_start, ".2f"),
    Row("API requests per job", lambda side: side.requests_per_job, ".1f"),
    Row("of these status writes", lambda side: side.status_writes_per_job, ".1f"),
    Row("of these Events", lambda side: side.events / side.jobs, ".1f"),
)


def table(sides: Sequence[SideFigures]) -> str:
    """All figures; with two sides the first over the second as a ratio."""
    header = ["", *(side.name for side in sides), *(["ratio"] if len(sides) == 2 else [])]
    rows = [[row.what, *_cells(row, sides)] for row in ROWS if row.value(sides[0]) is not None]
    return markdown(header, rows)


def requests_table(sides: Sequence[SideFigures]) -> str:
    """Requests per job by verb and resource, the most frequent first."""
    counted = [side for side in sides if side.requests is not None]
    kinds = {what for side in counted for what in (side.requests or {})}
    found = {what: [(side.requests or {}).get(what, 0) / side.jobs for side in counted] for what in kinds}
    rows = [
        [what, *(f"{each:.2f}" for each in per_job)]
        for what, per_job in sorted(found.items(), key=lambda item: (-max(item[1]), item[0]))
        if max(per_job) >= RARE
    ]
    return markdown(["requests per job", *(side.name for side in counted)], rows)


def cpu_table(sides: Sequence[SideFigures]) -> str:
    """CPU milliseconds per job by process: what the machine did meanwhile."""
    processes = dict.fromkeys(process for side in sides for process in side.cpu)
    rows = [[process, *(f"{_ms(side, process):.0f}" for side in sides)] for process in processes]
    ours = [process for process in processes if process != OTHERS]
    rows.append(["all but others", *(f"{sum(_ms(side, each) for each in ours):.0f}" for side in sides)])
    return markdown(["CPU per job, ms", *(side.name for side in sides)], rows)


def _ms(side: SideFigures, process: str) -> float:
    return 1000 * side.cpu.get(process, 0.0) / side.jobs


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])


def _cells(row: Row, sides: Sequence[SideFigures]) -> list[str]:
    values = [row.value(side) for side in sides]
    cells = ["" if value is None else format(value, row.form) for value in values]
    if len(values) != 2:
        return cells
    mine, peers = values
    return [*cells, format(mine / peers, ".2f") if mine is not None and peers else ""]
