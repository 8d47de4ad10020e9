"""The times in which a job has no pods: while it is suspended, and between two attempts."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from dgl_operator.api import kueue
from dgl_operator.api.v1alpha1 import DGLJob, FailureAction, Phase
from dgl_operator.domain import admission, attempts, clocks, failure_policy, milestones
from dgl_operator.domain.attempts import Cause, Life
from dgl_operator.domain.failure import Failure
from dgl_operator.domain.observed import Observed, Pod
from dgl_operator.domain.verdict import (
    FAILED,
    SUSPENDED,
    Decision,
    Fact,
    reached,
    unblocked,
)

MAX_UNCOUNTED = 100
"""Attempts of one job that do not count towards `backoffLimit`. What evicts each pod as soon as it runs must
not keep a job for ever: with the waits between short attempts so many take more than nine hours. And a job of
a week may lose a pod every 100 minutes."""

_RESUMED = "JobResumed"
_BY_USER = admission.Hold(attempts.SUSPENDED, "spec.runPolicy.suspend is true")


def suspended(
    job: DGLJob, seen: Observed, life: Life, now: datetime, why: admission.Hold = _BY_USER
) -> Decision:
    """Take the pods away; the attempt that they belonged to has ended."""
    own = [pod for pod in seen.pods if pod.attempt == life.attempt]
    is_adopted = not life.attempts and job.status.phase not in (None, Phase.SUSPENDED)
    if own or is_adopted:  # an older operator has begun it
        life = life.begun(now)
    if life.current:
        said = "the job was suspended" if why is _BY_USER else why.message
        life = life.following(Cause.SUSPENSION, now, attempts.SUSPENDED, said)
    facts = (
        milestones.accepted(job),
        *milestones.withdrawn(job, attempts.SUSPENDED),
        Fact(SUSPENDED, True, why.reason, why.message),
    )
    said = "suspended" if why is _BY_USER else why.message
    message = f"{said}; {_leaving(seen.pods)}" if seen.pods else said
    decision = Decision(Phase.SUSPENDED, message, facts, life=life.suspended(), is_held=True)
    return unblocked(_without(decision, seen.pods, now), job.status)


def resumed(job: DGLJob) -> tuple[Fact, ...]:
    """Return what is to be said of a job that was suspended and is no longer."""
    if not reached(job.status, SUSPENDED):
        return ()
    queue = kueue.queue(job)
    why = f"queue {queue}: Kueue admitted the job" if queue else "spec.runPolicy.suspend is false"
    return (Fact(SUSPENDED, False, admission.RESUMED if queue else _RESUMED, why),)


def next_or_end(job: DGLJob, seen: Observed, cause: Failure, life: Life, now: datetime) -> Decision:
    """Decide after a failure whether another attempt follows.

    The facts of the decision are those of the end or of the restart alone.
    """
    rule = failure_policy.match(job, cause.pod, seen)
    action = rule[1] if rule else None
    named = f"; failurePolicy.rules[{rule[0]}]: {rule[1].value}" if rule else ""
    is_counted = action is FailureAction.RESTART or (action is None and not cause.is_disruption)
    life = life.begun(now)
    used_up = _used_up(job, life, is_counted=is_counted)
    if action is FailureAction.FAIL_JOB or cause.is_permanent or used_up is not None:
        why = f"{cause.message}{named}" + (used_up or "" if action is not FailureAction.FAIL_JOB else "")
        failed = Fact(FAILED, True, cause.reason, why)
        return Decision(Phase.FAILED, f"{cause.reason}: {why}", (failed,), life=life)
    what = Cause.FAILURE if is_counted else Cause.IGNORED if action else Cause.DISRUPTION
    life = life.following(what, now, cause.reason, f"{cause.message}{named}")
    facts = milestones.withdrawn(job, "NewAttempt")
    return replace(between(job, seen.pods, life, now), facts=facts)


def between(job: DGLJob, pods: tuple[Pod, ...], life: Life, now: datetime) -> Decision:
    """Wait until the pods of the last attempt are gone and the next one may begin.

    Args:
        job: The job.
        pods: Pods of earlier attempts.
        life: The attempts; none is under way.
        now: The clock's value.
    """
    last = life.attempts[-1] if life.attempts else None
    begins = clocks.next_attempt(life, now)
    message = f"attempt {life.attempt} begins"
    if begins and begins > now:
        message += f" at {begins.isoformat().replace('+00:00', 'Z')}"
    if pods:
        message += f" when {_leaving(pods)}"
    if last and last.reason:
        message += f"; attempt {last.number} ended: {last.reason}: {last.message or ''}"
    decision = Decision(Phase.PENDING, message, life=life, is_held=True)
    return _without(decision, pods, now, begins if begins and begins > now else None)


def _used_up(job: DGLJob, life: Life, *, is_counted: bool) -> str | None:
    """Say that no attempt is left, with nothing to say where there was never more than one."""
    limit = job.spec.run_policy.backoff_limit
    if is_counted:
        words = f"; backoffLimit {limit} is used up" if limit else ""
        return words if life.restarts.failures >= limit else None
    return f"; {MAX_UNCOUNTED} attempts were lost like this" if life.uncounted >= MAX_UNCOUNTED else None


def leaving(pods: Iterable[Pod], now: datetime) -> tuple[tuple[Pod, ...], datetime | None]:
    """Return the pods that are being deleted for too long, and when to look for that again."""
    times = {pod: clocks.force(pod) for pod in pods if pod.deleting}
    overdue = tuple(pod for pod, time in times.items() if clocks.is_due(time, now))
    again = [time for time in times.values() if time and time > now]
    return overdue, clocks.soonest([*again, clocks.later(now, clocks.FORCE_AFTER) if overdue else None])


def _without(
    decision: Decision, pods: tuple[Pod, ...], now: datetime, begins: datetime | None = None
) -> Decision:
    """Add what makes these pods go."""
    overdue, again = leaving(pods, now)
    drop = tuple(pod for pod in pods if not pod.deleting)
    return replace(decision, drop=drop, overdue=overdue, look_again=clocks.soonest([begins, again]))


def _leaving(pods: tuple[Pod, ...]) -> str:
    others = f" and {len(pods) - 1} more pods are" if len(pods) > 1 else " is"
    return f"pod {pods[0].name}{others} gone"
