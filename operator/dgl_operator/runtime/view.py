"""A job and all that is seen of it, read together: what one look decides on."""

from dataclasses import dataclass
from datetime import datetime
from typing import overload

from dgl_operator.api.v1alpha1 import DGLJob, JobStatus, readable_status
from dgl_operator.domain import decide, report, status
from dgl_operator.domain.observed import Observed
from dgl_operator.domain.report import Report
from dgl_operator.domain.verdict import LAUNCHER_STARTED, PARTITIONED, Decision, reached, wanted
from dgl_operator.render.config import Addresses
from dgl_operator.runtime.kinds import Json, Key
from dgl_operator.runtime.store import Seen
from dglrun.contract import names
from dglrun.contract.names import Role


@dataclass(frozen=True)
class View:
    """A job and what is seen of it, read together.

    Attributes:
        said: What the current attempt reported of itself.
        now: The clock's value when it was read.
    """

    raw: Json
    job: DGLJob
    known: Seen
    said: Report
    now: datetime

    @classmethod
    def of(cls, raw: Json, known: Seen, now: datetime) -> "View":
        """Parse the job and read its report; that of an earlier attempt says nothing of this one.

        Raises:
            InvalidJob: the job has another shape.
        """
        job, seen = DGLJob.parse(raw), known.observed
        name = names.report(raw["metadata"]["name"])
        is_of_attempt = seen.report_attempt(name) == job.status.attempt
        return cls(raw, job, known, report.read(seen.report(name)) if is_of_attempt else Report(), now)

    @property
    def seen(self) -> Observed:
        """Its children."""
        return self.known.observed

    @property
    def is_under_way(self) -> bool:
        """Whether work may have been done: from the first pod on, and between two attempts too."""
        last = self.job.status
        has_got_on = reached(last, PARTITIONED) or reached(last, LAUNCHER_STARTED)
        return bool(self.seen.pods) or last.attempt > 0 or has_got_on

    @property
    def key(self) -> Key:
        """The job's key."""
        return Key.of_job(self.raw)

    @property
    def namespace(self) -> str:
        """The job's namespace."""
        return str(self.raw["metadata"]["namespace"])

    @property
    def uid(self) -> str:
        """The job's UID."""
        return str(self.raw["metadata"]["uid"])

    def decide(self) -> Decision:
        """Decide on what is seen."""
        return decide.decide(self.job, self.seen, self.said, self.now)

    def status(self, decision: Decision) -> JobStatus:
        """The status that follows from a decision on what is seen."""
        generation = int(self.raw["metadata"].get("generation", 1))
        replicas = status.count(self.job, self.seen)
        return status.next_status(self.job.status, generation, decision, replicas, self.said, self.now)

    def addresses(self) -> Addresses:
        """Addresses of the pods that stay."""
        found = {pod.name: pod.ip for pod in self.seen.pods if not pod.deleting}
        one = {role: next(iter(wanted(self.job, role)), "") for role in Role}
        workers = tuple(found.get(name) for name in wanted(self.job, Role.WORKER))
        return Addresses(found.get(one[Role.LAUNCHER]), found.get(one[Role.PARTITIONER]), workers)


@overload
def readable(raw: Json) -> Json: ...
@overload
def readable(raw: None) -> None: ...
def readable(raw: Json | None) -> Json | None:
    """The job with what can be read of its status: others may have written into it."""
    return None if raw is None else {**raw, "status": readable_status(raw.get("status"))}
