"""What becomes of the pods of a job that has ended, and of the job itself."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from dgl_operator.api.v1alpha1 import CleanPodPolicy, DGLJob, Phase
from dgl_operator.domain import clocks, milestones
from dgl_operator.domain.observed import Observed, Pod
from dgl_operator.domain.verdict import (
    DEADLINE_EXCEEDED,
    FAILED,
    START_DEADLINE_EXCEEDED,
    STOPPING_DEADLINE,
    WORKERS_READY,
    Decision,
    Fact,
    found,
    wanted,
)
from dglrun.contract.names import Role


def after_end(job: DGLJob, phase: Phase, seen: Observed, now: datetime) -> Decision:
    """Decide on a job that has ended: its pods, and whether it has been kept long enough itself."""
    last = found(job.status, FAILED)
    expiry = clocks.expiry(job, job.status.completion_time)
    is_expired = clocks.is_due(expiry, now)
    return replace(
        clean_up(job, phase, seen, last.reason if last else ""),
        is_expired=is_expired,
        look_again=None if is_expired else expiry,
    )


def clean_up(job: DGLJob, phase: Phase, seen: Observed, reason: str) -> Decision:
    """Apply `cleanPodPolicy` to an ended job.

    Running deletes every pod that has not stopped (sidecars count), All every pod, None none. Of a failed
    job Running ends a launcher that has run instead of deleting it: its logs say how the failure looked
    from the training. After a deadline None ends what still runs, and keeps the pods.

    Args:
        job: The job.
        phase: How it has ended.
        seen: Its children.
        reason: Why it failed, if it did.
    """
    policy = job.spec.clean_pod_policy
    left = [
        pod for pod in seen.pods if not pod.deleting and (policy is CleanPodPolicy.ALL or not pod.stopped)
    ]
    if policy is CleanPodPolicy.NONE:
        is_late = phase is Phase.FAILED and reason in (DEADLINE_EXCEEDED, START_DEADLINE_EXCEEDED)
        drop, kept = [], left if is_late else []
    else:
        keeps_logs = phase is Phase.FAILED and policy is CleanPodPolicy.RUNNING
        kept = [pod for pod in left if keeps_logs and pod.role is Role.LAUNCHER and pod.begun]
        drop = [pod for pod in left if pod not in kept]
    return Decision(
        phase,
        job.status.message or "",
        _after_end(job, seen),
        drop=tuple(drop),
        stop=tuple(_running_on(kept)),
    )


def _running_on(pods: Iterable[Pod]) -> Iterable[Pod]:
    return (pod for pod in pods if pod.active_deadline != STOPPING_DEADLINE)


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
    if not found(job.status, WORKERS_READY) or milestones.ready(seen) == len(wanted(job, Role.WORKER)):
        return ()
    return (Fact(WORKERS_READY, False, "JobEnded", "the job has ended"),)
