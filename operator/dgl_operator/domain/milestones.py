"""What a job has reached in its current attempt, from its pods and its report; kept once it was seen."""

from dgl_operator.api.v1alpha1 import DGLJob, Phase
from dgl_operator.domain import validate
from dgl_operator.domain.observed import Observed
from dgl_operator.domain.report import Report
from dgl_operator.domain.verdict import (
    ACCEPTED,
    LAUNCHER_STARTED,
    OF_ATTEMPT,
    PARTITIONED,
    REPORTED,
    WORKERS_READY,
    Fact,
    found,
    holds,
    reached,
    wanted,
)
from dglrun.contract import report
from dglrun.contract.names import Mode, Role


def reached_by(job: DGLJob, seen: Observed, said: Report) -> tuple[Fact, ...]:
    """Return what is so after this look, the milestones of the last status included."""
    facts = [accepted(job), _reported(job, said)]
    if job.spec.partition_mode.has_workers:
        facts += [_partitioned(job, seen, said), _workers_ready(job, seen)]
    return (*(fact for fact in facts if fact), _launcher_started(job, seen))


def accepted(job: DGLJob) -> Fact:
    """Say that the job can run, and what remains the user's responsibility."""
    return Fact(ACCEPTED, True, "Valid", "; ".join(validate.warnings(job)))


def withdrawn(job: DGLJob, reason: str) -> tuple[Fact, ...]:
    """Return the milestones of an attempt that has ended: the next one reaches them anew."""
    return tuple(Fact(each, False, reason) for each in OF_ATTEMPT if reached(job.status, each))


def _reported(job: DGLJob, said: Report) -> Fact | None:
    if said.problems:
        return Fact(REPORTED, False, "Malformed", "; ".join(said.problems))
    return Fact(REPORTED, True, "Readable") if found(job.status, REPORTED) else None


def _partitioned(job: DGLJob, seen: Observed, said: Report) -> Fact:
    partitioner = seen.one(Role.PARTITIONER)
    if partitioner and partitioner.succeeded:
        return Fact(
            PARTITIONED, True, "PartitionerSucceeded", "the partitions were delivered to the launcher"
        )
    if job.spec.partition_mode is Mode.DIST_PARMETIS and _is_past_partitioning(said):
        return Fact(PARTITIONED, True, "Reported", "every worker holds its part")
    return _kept(job, PARTITIONED) or Fact(PARTITIONED, False, "NotYet")


def _workers_ready(job: DGLJob, seen: Observed) -> Fact:
    count, all_of_them = ready(seen), len(wanted(job, Role.WORKER))
    if count == all_of_them:
        return Fact(WORKERS_READY, True, "AllReady", f"{count} of {all_of_them} workers are Ready")
    return Fact(WORKERS_READY, False, "NotAllReady", f"{count} of {all_of_them} workers are Ready")


def _launcher_started(job: DGLJob, seen: Observed) -> Fact:
    launcher = seen.one(Role.LAUNCHER)
    if launcher and launcher.main_started:
        return Fact(LAUNCHER_STARTED, True, "MainContainerStarted")
    return _kept(job, LAUNCHER_STARTED) or Fact(LAUNCHER_STARTED, False, "NotYet")


def _kept(job: DGLJob, condition: str) -> Fact | None:
    last = found(job.status, condition)
    is_true = last is not None and last.status == "True"
    return Fact(condition, True, last.reason, last.message) if last and is_true else None


def _is_past_partitioning(said: Report) -> bool:
    later = (report.STAGE_DISPATCHING, report.STAGE_TRAINING, report.STAGE_COLLECTING, report.STAGE_COMPLETED)
    return said.stage in later


def ready(seen: Observed) -> int:
    """Count the workers that are Ready and stay."""
    return sum(pod.ready and not pod.deleting for pod in seen.of_role(Role.WORKER))


def phase(job: DGLJob, seen: Observed, said: Report, facts: tuple[Fact, ...]) -> Phase:
    """Return where the attempt stands by this look alone."""
    if holds(facts, LAUNCHER_STARTED):
        return _phase_of_launcher(job, said)
    if holds(facts, PARTITIONED):
        return Phase.PARTITIONED
    partitioner = seen.one(Role.PARTITIONER)
    if partitioner and partitioner.main_started:
        return Phase.PARTITIONING
    return Phase.STARTING if any(pod.begun for pod in seen.pods) else Phase.PENDING


def _phase_of_launcher(job: DGLJob, said: Report) -> Phase:
    if job.spec.partition_mode is not Mode.DIST_PARMETIS:
        return Phase.TRAINING
    if said.stage in (None, report.STAGE_PARTITIONING):
        return Phase.PARTITIONING
    return Phase.PARTITIONED if said.stage == report.STAGE_DISPATCHING else Phase.TRAINING
