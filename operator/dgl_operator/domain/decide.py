"""From what is seen to what follows: the job's phase, its milestones, and which pods must be or must go.

The last status matters for three things only: a final phase stays, a phase never moves back, and what
was reached once is kept (a pod that had work on its disk is never silently made anew).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from dgl_operator.api.v1alpha1 import CleanPodPolicy, DGLJob, JobStatus, Phase
from dgl_operator.domain import validate
from dgl_operator.domain.failure import Failure, first_failure, is_lost
from dgl_operator.domain.observed import Observed, Pod, Problem
from dgl_operator.domain.report import Report
from dglrun.contract import names, report
from dglrun.contract.names import Mode, Role

ACCEPTED = "Accepted"
WORKERS_READY = "WorkersReady"
PARTITIONED = "Partitioned"
LAUNCHER_STARTED = "LauncherStarted"
BLOCKED = "Blocked"
STALLED = "Stalled"
REPORTED = "Reported"
COMPLETED = "Completed"
FAILED = "Failed"

STOPPING_DEADLINE = 1
"""`activeDeadlineSeconds` by which a pod is ended while its object and its logs stay."""

_ORDER = tuple(Phase)


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
        is_certain: Whether the end rests on what cannot change any more: a pod that has ended stays ended.
    """

    phase: Phase
    message: str
    facts: tuple[Fact, ...] = ()
    roles: frozenset[Role] = frozenset()
    drop: tuple[Pod, ...] = ()
    stop: tuple[Pod, ...] = ()
    lost: tuple[str, ...] = ()
    is_certain: bool = False

    def needs_fresh_read(self, status: JobStatus) -> bool:
        """Whether it ends the job or a pod, so that it must rest on a fresh read."""
        if self.is_certain:
            return False
        return bool(self.drop or self.stop) or (self.phase.is_final and status.phase is not self.phase)


def decide(job: DGLJob, seen: Observed, said: Report) -> Decision:
    """Decide on a valid job.

    Args:
        job: The job with its last status.
        seen: Its children as they are now.
        said: What the job reported of itself.
    """
    if job.status.phase and job.status.phase.is_final:
        return clean_up(job, job.status.phase, seen)
    seen = _expected(job, seen)
    facts = _milestones(job, seen, said)
    launcher = seen.one(Role.LAUNCHER)
    if launcher and launcher.succeeded:
        done = _complete(facts, "the launcher's main container ended with exit code 0")
        return replace(unblocked(done, job.status), is_certain=True)
    if said.is_completed and _holds(facts, LAUNCHER_STARTED):
        return _after_report(job, seen, said, facts)
    return _unless_failed(job, seen, said, facts, _lost(job, seen, facts))


def _expected(job: DGLJob, seen: Observed) -> Observed:
    """Leave out pods that the mode or the number of workers does not give, whoever made them."""
    expected = {name for role in Role for name in wanted(job, role)}
    return replace(seen, pods=tuple(pod for pod in seen.pods if pod.name in expected))


def _after_report(job: DGLJob, seen: Observed, said: Report, facts: tuple[Fact, ...]) -> Decision:
    """Decide after the run has reported that all is done: only a failure of the launcher itself counts.

    The launcher may still run, be evicted with the workers, or be gone by the time of this look.
    """
    launcher = seen.one(Role.LAUNCHER)
    if launcher is None or launcher.ended_with_zero:
        return unblocked(_complete(facts, "the run reported that it had succeeded"), job.status)
    alone = replace(seen, pods=(launcher,))
    return replace(_unless_failed(job, alone, said, facts, ()), roles=frozenset())


def _unless_failed(
    job: DGLJob, seen: Observed, said: Report, facts: tuple[Fact, ...], lost: tuple[str, ...]
) -> Decision:
    if cause := first_failure(seen, lost):
        failed = _fail(_while_partitioning(job, cause, facts), facts)
        return replace(unblocked(failed, job.status), lost=lost)
    return _go_on(job, seen, said, facts)


def reject(reason: str, problems: Iterable[str]) -> Decision:
    """Decide on a job that cannot run as it is written."""
    message = "; ".join(problems)
    facts = (Fact(ACCEPTED, False, reason, message), Fact(FAILED, True, reason, message))
    return Decision(Phase.FAILED, f"{reason}: {message}", facts)


def reached(status: JobStatus, condition: str) -> bool:
    """Whether the condition is true in the last status."""
    return any(found.type == condition and found.status == "True" for found in status.conditions)


def clean_up(job: DGLJob, phase: Phase, seen: Observed) -> Decision:
    """Apply `cleanPodPolicy` to an ended job.

    Running deletes every pod that has not stopped (sidecars count), All every pod, None none. Of a failed
    job Running ends a launcher that has run instead of deleting it: its logs say how the failure looked
    from the training.
    """
    policy = job.spec.clean_pod_policy
    doomed = () if policy is CleanPodPolicy.NONE else seen.pods
    if policy is CleanPodPolicy.RUNNING:
        doomed = tuple(pod for pod in seen.pods if not pod.stopped)
    doomed = tuple(pod for pod in doomed if not pod.deleting)
    keeps_logs = phase is Phase.FAILED and policy is CleanPodPolicy.RUNNING
    kept = tuple(pod for pod in doomed if keeps_logs and pod.role is Role.LAUNCHER and pod.begun)
    return Decision(
        phase,
        job.status.message or "",
        _after_end(job, seen),
        drop=tuple(pod for pod in doomed if pod not in kept),
        stop=tuple(pod for pod in kept if pod.active_deadline != STOPPING_DEADLINE),
    )


def ended(decision: Decision, job: DGLJob, left: Observed) -> Decision:
    """Say of an ended job what is so when its clean-up is done.

    Args:
        decision: How the job ends or has ended.
        job: The job.
        left: Its children without the pods that the clean-up deletes.
    """
    facts = _after_end(job, left)
    known = {fact.type for fact in facts}
    return replace(decision, facts=(*(each for each in decision.facts if each.type not in known), *facts))


def _after_end(job: DGLJob, seen: Observed) -> tuple[Fact, ...]:
    """WorkersReady goes with the workers, so that it never contradicts their number."""
    is_known = any(condition.type == WORKERS_READY for condition in job.status.conditions)
    if not is_known or _ready(seen) == len(wanted(job, Role.WORKER)):
        return ()
    return (Fact(WORKERS_READY, False, "JobEnded", "the job has ended"),)


def wanted(job: DGLJob, role: Role) -> tuple[str, ...]:
    """Names of the pods that the mode gives to a role, in the order of their index."""
    name, mode = str(job.metadata["name"]), job.spec.partition_mode
    if role is Role.LAUNCHER:
        return (names.launcher(name),)
    if role is Role.PARTITIONER:
        return (names.partitioner(name),) if mode.has_partitioner else ()
    worker = job.spec.dgl_replica_specs.worker
    return names.workers(name, worker.replicas) if worker and mode.has_workers else ()


def _while_partitioning(job: DGLJob, cause: Failure, facts: tuple[Fact, ...]) -> Failure:
    """In DistParMETIS the launcher partitions, too, and may fail at that."""
    is_early = job.spec.partition_mode is Mode.DIST_PARMETIS and not _holds(facts, PARTITIONED)
    return (
        replace(cause, reason="PartitionFailed") if is_early and cause.reason == "TrainingFailed" else cause
    )


def _complete(facts: tuple[Fact, ...], why: str) -> Decision:
    done = Fact(COMPLETED, True, "LauncherSucceeded", why)
    return Decision(Phase.COMPLETED, "training finished", (*facts, done))


def _fail(cause: Failure, facts: tuple[Fact, ...]) -> Decision:
    failed = Fact(FAILED, True, cause.reason, cause.message)
    return Decision(Phase.FAILED, f"{cause.reason}: {cause.message}", (*facts, failed))


def _go_on(job: DGLJob, seen: Observed, said: Report, facts: tuple[Fact, ...]) -> Decision:
    phase = _later(job.status.phase, _phase(job, seen, said, facts))
    decision = Decision(phase, _doing(job, phase, seen), facts, _roles(job, facts))
    if problem := next((pod.problem for pod in seen.pods if pod.problem), None):
        return blocked(decision, problem)
    return unblocked(decision, job.status)


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


def _milestones(job: DGLJob, seen: Observed, said: Report) -> tuple[Fact, ...]:
    facts = [Fact(ACCEPTED, True, "Valid", "; ".join(validate.warnings(job))), _reported(job, said)]
    if job.spec.partition_mode.has_workers:
        facts += [_partitioned(job, seen, said), _workers_ready(job, seen)]
    return (*(fact for fact in facts if fact), _launcher_started(job, seen))


def _reported(job: DGLJob, said: Report) -> Fact | None:
    if said.problems:
        return Fact(REPORTED, False, "Malformed", "; ".join(said.problems))
    known = any(condition.type == REPORTED for condition in job.status.conditions)
    return Fact(REPORTED, True, "Readable") if known else None


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
    ready, all_of_them = _ready(seen), len(wanted(job, Role.WORKER))
    if ready == all_of_them:
        return Fact(WORKERS_READY, True, "AllReady", f"{ready} of {all_of_them} workers are Ready")
    return Fact(WORKERS_READY, False, "NotAllReady", f"{ready} of {all_of_them} workers are Ready")


def _launcher_started(job: DGLJob, seen: Observed) -> Fact:
    launcher = seen.one(Role.LAUNCHER)
    if launcher and launcher.main_started:
        return Fact(LAUNCHER_STARTED, True, "MainContainerStarted")
    return _kept(job, LAUNCHER_STARTED) or Fact(LAUNCHER_STARTED, False, "NotYet")


def _kept(job: DGLJob, condition: str) -> Fact | None:
    for found in job.status.conditions:
        if found.type == condition and found.status == "True":
            return Fact(condition, True, found.reason, found.message)
    return None


def _holds(facts: Iterable[Fact], condition: str) -> bool:
    return any(fact.type == condition and fact.is_true for fact in facts)


def _is_past_partitioning(said: Report) -> bool:
    later = (report.STAGE_DISPATCHING, report.STAGE_TRAINING, report.STAGE_COLLECTING, report.STAGE_COMPLETED)
    return said.stage in later


def _ready(seen: Observed) -> int:
    return sum(pod.ready and not pod.deleting for pod in seen.of_role(Role.WORKER))


def _lost(job: DGLJob, seen: Observed, facts: tuple[Fact, ...]) -> tuple[str, ...]:
    """Pods whose work cannot be had again: gone or going after the point that the job is known to be past.

    What this look shows counts as much as what the status remembers: the operator may have been away when
    the point was passed and the pod lost.
    """
    irreplaceable = [role for role in Role if _had_work(job, role, facts)]
    expected = [name for role in irreplaceable for name in wanted(job, role)]
    staying = {pod.name for pod in seen.pods if not is_lost(pod)}
    return tuple(name for name in expected if name not in staying)


def _had_work(job: DGLJob, role: Role, facts: tuple[Fact, ...]) -> bool:
    status = job.status
    if role is Role.LAUNCHER:
        is_delivered = job.spec.partition_mode.has_partitioner and _holds(facts, PARTITIONED)
        return status.phase not in (None, Phase.PENDING) or is_delivered
    if role is Role.PARTITIONER:
        return status.phase is Phase.PARTITIONING and not _holds(facts, PARTITIONED)
    return _holds(facts, LAUNCHER_STARTED) or reached(status, WORKERS_READY)


def _roles(job: DGLJob, facts: tuple[Fact, ...]) -> frozenset[Role]:
    mode, partitioned = job.spec.partition_mode, _holds(facts, PARTITIONED)
    roles = {Role.LAUNCHER}
    if mode.has_partitioner and not partitioned:
        roles.add(Role.PARTITIONER)
    if mode is Mode.DIST_PARMETIS or (mode.has_partitioner and partitioned):
        roles.add(Role.WORKER)
    return frozenset(roles)


def _phase(job: DGLJob, seen: Observed, said: Report, facts: tuple[Fact, ...]) -> Phase:
    if _holds(facts, LAUNCHER_STARTED):
        return _phase_of_launcher(job, said)
    if _holds(facts, PARTITIONED):
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


def _later(old: Phase | None, new: Phase) -> Phase:
    return max(old or Phase.PENDING, new, key=_ORDER.index)


def _doing(job: DGLJob, phase: Phase, seen: Observed) -> str:
    everyone = len(wanted(job, Role.WORKER))
    return {
        Phase.PENDING: "waiting for pods to be scheduled",
        Phase.STARTING: "pods are starting",
        Phase.PARTITIONING: "the graph is being partitioned",
        Phase.PARTITIONED: f"waiting for the workers, {_ready(seen)} of {everyone} are Ready",
        Phase.TRAINING: f"training on {everyone} workers" if everyone else "training in the launcher",
    }[phase]
