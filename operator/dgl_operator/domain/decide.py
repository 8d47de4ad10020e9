"""From what is seen to what follows: phase, milestones, which pods must be or go, and when to look again.

The last status matters for these things only: a final phase stays, within an attempt a phase never moves
back, what was reached once is kept (a pod that had work on its disk is never silently made anew), and the
times from which deadlines and waits count.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from dgl_operator.api.v1alpha1 import DGLJob, Phase
from dgl_operator.domain import (
    admission,
    clean_up,
    clocks,
    failure,
    failure_policy,
    hold,
    milestones,
    worker_losses,
)
from dgl_operator.domain.attempts import Life
from dgl_operator.domain.failure import Failure
from dgl_operator.domain.observed import Observed, Pod
from dgl_operator.domain.report import Report
from dgl_operator.domain.verdict import (
    ACCEPTED,
    BLOCKED,
    COMPLETED,
    DEADLINE_EXCEEDED,
    FAILED,
    LAUNCHER_STARTED,
    PARTITIONED,
    START_DEADLINE_EXCEEDED,
    SUSPENDED,
    WORKERS_READY,
    Decision,
    Fact,
    blocked,
    found,
    holds,
    reached,
    unblocked,
    wanted,
)
from dglrun.contract.names import Mode, Role

MAX_WAITS = 20
"""So often an attempt waits for pods to start; a pod without work that is lost after that costs a new
attempt, whose number is bounded. Without losses an attempt waits two or three times."""

_ORDER = tuple(Phase)


@dataclass(frozen=True)
class Look:
    """What one look at a job rests on.

    Attributes:
        seen: Its children, of its pods those of the current attempt.
        said: What the current attempt reported of itself.
        facts: Milestones, those that this look shows included.
        stale: Pods of earlier attempts.
    """

    job: DGLJob
    seen: Observed
    said: Report
    now: datetime
    life: Life
    facts: tuple[Fact, ...]
    stale: tuple[Pod, ...]


def decide(job: DGLJob, seen: Observed, said: Report, now: datetime) -> Decision:
    """Decide on a valid job.

    Args:
        job: The job with its last status.
        seen: Its children as they are now.
        said: What the current attempt reported of itself.
        now: The clock's value, whole seconds.
    """
    decision = _decided(job, seen, said, now)
    is_final = decision.phase.is_final
    step = admission.next_step(job, seen, is_final=is_final, is_held=decision.is_held)
    return replace(decision, workload=step) if step else decision


def _decided(job: DGLJob, seen: Observed, said: Report, now: datetime) -> Decision:
    if job.status.phase and job.status.phase.is_final:
        return clean_up.after_end(job, job.status.phase, seen, now)
    seen = _numbered(seen, Life.of(job.status))
    look = _look(job, seen, said, now)
    if done := _success(look):
        return done
    deadline = clocks.active_deadline(job, look.life.start_time)
    if clocks.is_due(deadline, now):
        return _past_active_deadline(look)
    decision = _under_way(look, seen)
    if decision.phase.is_final:
        return decision
    started = decision.life.start_time if decision.life else None
    again = [decision.look_again, clocks.active_deadline(job, started)]
    return replace(decision, look_again=clocks.soonest(again))


def _numbered(seen: Observed, life: Life) -> Observed:
    """Give the pods of the current attempt its number, whatever others have made of their labels."""

    def is_own(pod: Pod) -> bool:
        return pod.attempt > life.attempt or (pod.label is None and life.began_before(pod.created))

    numbered = (replace(pod, attempt=life.attempt) if is_own(pod) else pod for pod in seen.pods)
    return replace(seen, pods=tuple(numbered))


def _look(job: DGLJob, seen: Observed, said: Report, now: datetime) -> Look:
    """Leave out pods that the mode or the number of workers does not give, and those of earlier attempts."""
    expected = {name for role in Role for name in wanted(job, role)}
    pods = [pod for pod in seen.pods if pod.name in expected]
    life = Life.of(job.status)
    stale = tuple(pod for pod in pods if pod.attempt < life.attempt)
    own = replace(seen, pods=tuple(pod for pod in pods if pod.attempt >= life.attempt))
    return Look(job, own, said, now, life, milestones.reached_by(job, own, said), stale)


def _success(look: Look) -> Decision | None:
    """Say that the job is done: its launcher has ended well, or is gone after it had reported so."""
    launcher = look.seen.one(Role.LAUNCHER)
    if launcher and launcher.succeeded:
        done = _complete(look.facts, "the launcher's main container ended with exit code 0")
        return replace(unblocked(done, look.job.status), is_certain=True)
    if _has_reported(look) and (launcher is None or launcher.ended_with_zero):
        done = _complete(look.facts, "the run reported that it had succeeded")
        return unblocked(done, look.job.status)
    return None


def _has_reported(look: Look) -> bool:
    return look.said.is_completed and holds(look.facts, LAUNCHER_STARTED)


def _past_active_deadline(look: Look) -> Decision:
    seconds = look.job.spec.run_policy.active_deadline_seconds
    why = f"the job has not ended within activeDeadlineSeconds ({seconds} s): {look.job.status.message or ''}"
    failed = _fail(Failure(DEADLINE_EXCEEDED, why.removesuffix(": "), ""), look.facts)
    return unblocked(failed, look.job.status)


def _under_way(look: Look, seen: Observed) -> Decision:
    """Decide on a job that has not ended."""
    if _has_reported(look):  # it ends of itself: only a failure of the launcher counts
        launcher = look.seen.one(Role.LAUNCHER)
        alone = replace(look, seen=replace(look.seen, pods=(launcher,) if launcher else ()))
        return replace(_unless_failed(alone, ()), roles=frozenset())
    if look.job.spec.run_policy.suspend:
        return hold.suspended(look.job, seen, look.life, look.now)
    if waits := admission.hold(look.job, seen):
        return hold.suspended(look.job, seen, look.life, look.now, waits)
    if look.life.current is None and (waited := _between(look)):
        return waited
    return _unless_failed(look, _lost(look))


def _between(look: Look) -> Decision | None:
    """Wait for the next attempt, None when it may begin."""
    begins = clocks.next_attempt(look.life, look.now)
    if not look.stale and (begins is None or begins <= look.now):
        return None
    decision = hold.between(look.job, look.stale, look.life, look.now)
    deadline = clocks.start_deadline(look.job, _hold_since(look, begins))
    if look.stale and clocks.is_due(deadline, look.now):
        late = _late(look, f"pod {look.stale[0].name} of an earlier attempt is still being deleted")
        return unblocked(_fail(late, look.facts), look.job.status)
    again = clocks.soonest([decision.look_again, deadline if look.stale else None])
    facts = (*look.facts, *hold.resumed(look.job))
    return unblocked(replace(decision, facts=facts, look_again=again), look.job.status)


def _hold_since(look: Look, begins: datetime | None) -> datetime | None:
    """From when on the next attempt waits for nothing but the pods of the last one to go, None before.

    An operator may end after it has said that they go, and before it has deleted them.
    """
    if not all(pod.deleting for pod in look.stale):
        return None
    last = look.life.attempts[-1].completion_time if look.life.attempts else None
    since = _latest([begins or last or look.life.start_time, *(pod.deleted_at for pod in look.stale)])
    suspended = found(look.job.status, SUSPENDED)
    if suspended is None or since is None:
        return since
    resumed = look.now if suspended.status == "True" else suspended.last_transition_time
    return max(since, resumed)


def _latest(times: Iterable[datetime | None]) -> datetime | None:
    return max((time for time in times if time), default=None)


def _unless_failed(look: Look, lost: tuple[str, ...]) -> Decision:
    """Decide on the pods of an attempt; those without work that cannot be used are made anew."""
    replaced = worker_losses.lost_alone(look.job, look.seen, look.said, look.life)
    lost = tuple(name for name in lost if name not in replaced)
    spare = tuple(pod for pod in look.seen.pods if pod.name in replaced or _is_spare(look, pod))
    rest = replace(look.seen, pods=tuple(pod for pod in look.seen.pods if pod not in spare))
    cause = failure.first_failure(rest, lost)
    cause = cause or next((failure.of_pod(pod) for pod in spare if _is_ruled(look, pod)), None)
    if cause is None:
        return _go_on(look, spare, replaced)
    after = hold.next_or_end(look.job, look.seen, _while_partitioning(look, cause), look.life, look.now)
    known = {fact.type for fact in after.facts}
    facts = (*(fact for fact in look.facts if fact.type not in known), *after.facts)
    if after.is_held:
        drop = tuple(pod for pod in (*look.seen.pods, *look.stale) if not pod.deleting)
        after = replace(after, drop=drop)
    return unblocked(replace(after, facts=facts, lost=lost), look.job.status)


def _is_spare(look: Look, pod: Pod) -> bool:
    return failure.is_replaceable(pod) and not _had_work(look, pod.role)


def _is_ruled(look: Look, pod: Pod) -> bool:
    return failure_policy.match(look.job, pod.name, look.seen) is not None


def reject(reason: str, problems: Iterable[str]) -> Decision:
    """Decide on a job that cannot run as it is written."""
    message = "; ".join(problems)
    facts = (Fact(ACCEPTED, False, reason, message), Fact(FAILED, True, reason, message))
    return Decision(Phase.FAILED, f"{reason}: {message}", facts)


def _while_partitioning(look: Look, cause: Failure) -> Failure:
    """In DistParMETIS the launcher partitions, too, and may fail at that."""
    is_dist = look.job.spec.partition_mode is Mode.DIST_PARMETIS
    is_early = is_dist and not holds(look.facts, PARTITIONED)
    return (
        replace(cause, reason="PartitionFailed") if is_early and cause.reason == "TrainingFailed" else cause
    )


def _complete(facts: tuple[Fact, ...], why: str) -> Decision:
    done = Fact(COMPLETED, True, "LauncherSucceeded", why)
    return Decision(Phase.COMPLETED, "training finished", (*facts, done))


def _fail(cause: Failure, facts: tuple[Fact, ...]) -> Decision:
    failed = Fact(FAILED, True, cause.reason, cause.message)
    return Decision(Phase.FAILED, f"{cause.reason}: {cause.message}", (*facts, failed))


def _go_on(look: Look, spare: tuple[Pod, ...], replaced: tuple[str, ...]) -> Decision:
    """Say which pods must be, and replace those that cannot be used.

    Args:
        look: What is seen.
        spare: Pods that cannot be used.
        replaced: Workers that were lost in the training and are made anew.
    """
    phase = _later(look.job.status.phase, milestones.phase(look.job, look.seen, look.said, look.facts))
    roles = _roles(look.job, look.facts)
    gone = tuple(pod for pod in spare if not pod.deleting)
    had_work = {pod.uid for pod in gone if pod.name in replaced and not _is_replacement(look, pod)}
    times = {pod.uid: clocks.replacement(pod, look.life) for pod in gone if pod.uid not in had_work}
    drop = tuple(pod for pod in gone if (times.get(pod.uid) or look.now) <= look.now)
    life = worker_losses.noted(_since(look), look.seen, replaced)
    is_started = holds(look.facts, LAUNCHER_STARTED) and not life.lost_workers
    lacks = None if is_started else _lacks(look, roles)
    life = life.waiting(look.now, is_waiting=lacks is not None)
    life = life.replacing(sum(pod.uid not in had_work for pod in drop))
    deadline = clocks.start_deadline(look.job, life.current.waiting_since if life.current else None)
    if lacks is not None and clocks.is_due(deadline, look.now):
        late = unblocked(_fail(_late(look, lacks), look.facts), look.job.status)
        return replace(late, life=life)
    overdue, forced = hold.leaving((*spare, *look.stale), look.now)
    again = clocks.soonest([deadline, forced, *(times.get(pod.uid) for pod in gone if pod not in drop)])
    facts = (*look.facts, *hold.resumed(look.job))
    message = _missing(life.lost_workers) or _doing(look.job, phase, look.seen)
    stale = tuple(pod for pod in look.stale if not pod.deleting)
    decision = Decision(phase, message, facts, roles, (*drop, *stale), life=life, look_again=again)
    relabel = tuple(pod for pod in look.seen.pods if not pod.deleting and (pod.label or 0) != pod.attempt)
    return _with_problem(replace(decision, overdue=overdue, relabel=relabel), look)


def _is_replacement(look: Look, pod: Pod) -> bool:
    return worker_losses.is_replacement(pod, look.life)


def _missing(workers: tuple[str, ...]) -> str:
    more = f" and {len(workers) - 1} more" if len(workers) > 1 else ""
    return (
        f"worker {workers[0]}{more} was lost and is replaced; then training starts again" if workers else ""
    )


def _since(look: Look) -> Life:
    """The attempt under way; what its first pods waited is not charged to the workers, which come now.

    The operator may have been away at every moment between the two when nothing waited.
    """
    life = look.life.begun(look.now)
    is_new = holds(look.facts, PARTITIONED) and not reached(look.job.status, PARTITIONED)
    return life.waiting(look.now, is_waiting=False) if is_new else life


def _with_problem(decision: Decision, look: Look) -> Decision:
    if problem := next((pod.problem for pod in look.seen.pods if pod.problem), None):
        return blocked(decision, problem)
    return unblocked(decision, look.job.status)


def _late(look: Look, what: str) -> Failure:
    seconds = look.job.spec.run_policy.start_deadline_seconds
    return Failure(START_DEADLINE_EXCEEDED, f"{what}, for startDeadlineSeconds ({seconds} s)", "")


def _lacks(look: Look, roles: frozenset[Role]) -> str | None:
    """Say what the start of the attempt waits for, None when nothing but the pods' own work is before it."""
    waits = list(_not_begun(look, roles))
    if problem := next((pod.problem for pod in look.seen.pods if pod.problem), None):
        return f"{problem.reason}: {problem.message}"
    if not waits:  # what the last look met, such as a Role that is refused, holds up nothing that runs
        return None
    last = found(look.job.status, BLOCKED) if reached(look.job.status, BLOCKED) else None
    return f"{last.reason}: {last.message}" if last else waits[0]


def _not_begun(look: Look, roles: frozenset[Role]) -> Iterator[str]:
    pods = {pod.name: pod for pod in look.seen.pods}
    for name in (name for role in Role if role in roles for name in wanted(look.job, role)):
        pod = pods.get(name)
        if pod is None:
            yield f"pod {name} does not exist"
        elif pod.deleting:
            yield f"pod {name} is being deleted"
        elif not pod.begun:
            yield f"pod {name} has started no container{': ' if pod.disruption else ''}{pod.disruption}"
        elif pod.is_prepared and not pod.main_started:  # an image may be pulled for ever without an error
            yield f"pod {name} has not started its main container after its init containers"
        elif pod.role is Role.WORKER and pod.main_started and not pod.ready:
            yield f"pod {name} runs and is not Ready"


def _lost(look: Look) -> tuple[str, ...]:
    """Pods whose work cannot be had again: gone or going after the point that the job is known to be past.

    What this look shows counts as much as what the status remembers: the operator may have been away when
    the point was passed and the pod lost.
    """
    irreplaceable = [role for role in Role if _had_work(look, role)]
    expected = [name for role in irreplaceable for name in wanted(look.job, role)]
    staying = {pod.name for pod in look.seen.pods if not failure.is_lost(pod)}
    return tuple(name for name in expected if name not in staying)


def _had_work(look: Look, role: Role) -> bool:
    """Whether a pod of the role may have work on its disk, or the attempt has lost too many that had none."""
    current, phase = look.life.current, look.job.status.phase
    is_partitioned = holds(look.facts, PARTITIONED)
    is_partitioner_done = is_partitioned and look.job.spec.partition_mode.has_partitioner
    if current and current.waits >= MAX_WAITS and current.waiting_since is None:
        return role in _roles(look.job, look.facts) and _was_waited_for(look, role)
    partitioner = look.seen.one(Role.PARTITIONER)
    is_partitioning = phase is Phase.PARTITIONING or bool(partitioner and partitioner.main_started)
    if role is Role.LAUNCHER:
        is_past = phase not in (None, Phase.SUSPENDED, Phase.PENDING, Phase.STARTING)
        return is_past or is_partitioner_done or is_partitioning or holds(look.facts, LAUNCHER_STARTED)
    if role is Role.PARTITIONER:
        return is_partitioning and not is_partitioned
    return holds(look.facts, LAUNCHER_STARTED) or reached(look.job.status, WORKERS_READY)


def _was_waited_for(look: Look, role: Role) -> bool:
    """Whether the attempt has waited for the role's pods and no longer does, so that they have been there.

    Workers that a partitioner precedes are waited for from the status on that says `Partitioned`.
    """
    is_later = role is Role.WORKER and look.job.spec.partition_mode.has_partitioner
    return not is_later or reached(look.job.status, PARTITIONED)


def _roles(job: DGLJob, facts: tuple[Fact, ...]) -> frozenset[Role]:
    mode, partitioned = job.spec.partition_mode, holds(facts, PARTITIONED)
    roles = {Role.LAUNCHER}
    if mode.has_partitioner and not partitioned:
        roles.add(Role.PARTITIONER)
    if mode is Mode.DIST_PARMETIS or (mode.has_partitioner and partitioned):
        roles.add(Role.WORKER)
    return frozenset(roles)


def _later(old: Phase | None, new: Phase) -> Phase:
    return max(old or Phase.PENDING, new, key=_ORDER.index)


def _doing(job: DGLJob, phase: Phase, seen: Observed) -> str:
    everyone = len(wanted(job, Role.WORKER))
    return {
        Phase.PENDING: "waiting for pods to be scheduled",
        Phase.STARTING: "pods are starting",
        Phase.PARTITIONING: "the graph is being partitioned",
        Phase.PARTITIONED: f"waiting for the workers, {milestones.ready(seen)} of {everyone} are Ready",
        Phase.TRAINING: f"training on {everyone} workers" if everyone else "training in the launcher",
    }[phase]
