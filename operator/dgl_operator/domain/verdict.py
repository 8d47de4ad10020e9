"""What follows from one look at a job, as a value, and the conditions by which its status says so."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from dgl_operator.api.v1alpha1 import Condition, DGLJob, JobStatus, Phase
from dgl_operator.domain.admission import Step
from dgl_operator.domain.attempts import Life
from dgl_operator.domain.observed import Pod, Problem
from dglrun.contract import names
from dglrun.contract.names import Role

ACCEPTED = "Accepted"
WORKERS_READY = "WorkersReady"
PARTITIONED = "Partitioned"
LAUNCHER_STARTED = "LauncherStarted"
BLOCKED = "Blocked"
STALLED = "Stalled"
SUSPENDED = "Suspended"
REPORTED = "Reported"
COMPLETED = "Completed"
FAILED = "Failed"

DEADLINE_EXCEEDED = "DeadlineExceeded"
START_DEADLINE_EXCEEDED = "StartDeadlineExceeded"
INVALID_NETWORK_POLICY = "InvalidNetworkPolicy"
"""Reason of a job under way whose changed rules cannot be: its pods go on under the rules that it had."""
OF_ATTEMPT = (PARTITIONED, WORKERS_READY, LAUNCHER_STARTED)
"""Conditions that each attempt reaches anew."""

STOPPING_DEADLINE = 1
"""`activeDeadlineSeconds` by which a pod is ended while its object and its logs stay."""


@dataclass(frozen=True)
class Fact:
    """A condition without its times."""

    type: str
    is_true: bool
    reason: str
    message: str = ""


@dataclass(frozen=True)
class Decision:
    """What follows from one look at the job.

    Attributes:
        roles: Roles whose pods must exist; an absent one is created.
        drop: Pods to delete.
        stop: Pods to end while their objects and logs stay.
        lost: Names of pods that are needed and not seen.
        overdue: Pods that are being deleted for so long that they go by force, if their node is gone.
        relabel: Pods that lack the label of their attempt or have a wrong one.
        is_held: Whether the job has no pods for now: it is suspended, or between two attempts.
        is_expired: Whether the job itself is to be deleted.
        life: The attempts as they are now, None for no change.
        look_again: When to look again though nothing changes, None for never.
        is_certain: Whether the end rests on what cannot change any more: a pod that has ended stays ended.
        workload: What is to be done with the job's Workload of Kueue, None for nothing.
    """

    phase: Phase
    message: str
    facts: tuple[Fact, ...] = ()
    roles: frozenset[Role] = frozenset()
    drop: tuple[Pod, ...] = ()
    stop: tuple[Pod, ...] = ()
    lost: tuple[str, ...] = ()
    overdue: tuple[Pod, ...] = ()
    relabel: tuple[Pod, ...] = ()
    is_held: bool = False
    is_expired: bool = False
    is_certain: bool = False
    life: Life | None = None
    look_again: datetime | None = None
    workload: Step | None = None

    def needs_fresh_read(self, status: JobStatus) -> bool:
        """Whether it ends the job, an attempt or a pod, or counts a loss: it must rest on a fresh read.

        A pod that is overdue is being deleted already, which nobody can take back.
        """
        if self.is_certain:
            return False
        is_end = self.phase.is_final and status.phase is not self.phase
        is_next = self.life is not None and self.life.attempt != status.attempt
        is_end = is_end or is_next or self.is_expired or self.has_lost(status)
        return bool(self.drop or self.stop or self.relabel) or is_end

    def has_lost(self, status: JobStatus) -> bool:
        """Whether it counts a worker as lost that the last status does not."""
        counted = status.restarts.workers if status.restarts else 0
        return self.life is not None and self.life.restarts.workers > counted


def holds(facts: Iterable[Fact], condition: str) -> bool:
    """Whether the condition is true in what was decided."""
    return any(fact.type == condition and fact.is_true for fact in facts)


def found(status: JobStatus, condition: str) -> Condition | None:
    """The condition in the last status, None without it."""
    return next((each for each in status.conditions if each.type == condition), None)


def reached(status: JobStatus, condition: str) -> bool:
    """Whether the condition is true in the last status."""
    last = found(status, condition)
    return last is not None and last.status == "True"


def wanted(job: DGLJob, role: Role) -> tuple[str, ...]:
    """Names of the pods that the mode gives to a role, in the order of their index."""
    name, mode = str(job.metadata["name"]), job.spec.partition_mode
    if role is Role.LAUNCHER:
        return (names.launcher(name),)
    if role is Role.PARTITIONER:
        return (names.partitioner(name),) if mode.has_partitioner else ()
    worker = job.spec.dgl_replica_specs.worker
    return names.workers(name, worker.replicas) if worker and mode.has_workers else ()


def blocked(decision: Decision, problem: Problem) -> Decision:
    """Say why the job does not go on."""
    facts = tuple(fact for fact in decision.facts if fact.type != BLOCKED)
    hindrance = Fact(BLOCKED, True, problem.reason, problem.message)
    return replace(decision, message=f"{problem.reason}: {problem.message}", facts=(*facts, hindrance))


def unblocked(decision: Decision, status: JobStatus) -> Decision:
    """Withdraw an earlier hindrance."""
    return _withdrawn(decision, status, BLOCKED)


def stalled(decision: Decision, reason: str, message: str) -> Decision:
    """Say that the operator met a bug of its own or an object that it cannot read."""
    facts = tuple(fact for fact in decision.facts if fact.type != STALLED)
    stall = Fact(STALLED, True, reason, message)
    return replace(decision, message=f"{reason}: {message}", facts=(*facts, stall))


def unstalled(decision: Decision, status: JobStatus) -> Decision:
    """Withdraw `Stalled` after a look that went well."""
    return _withdrawn(decision, status, STALLED)


def _withdrawn(decision: Decision, status: JobStatus, condition: str) -> Decision:
    if not reached(status, condition):
        return decision
    return replace(decision, facts=(*decision.facts, Fact(condition, False, "Resolved")))
