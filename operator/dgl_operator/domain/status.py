"""The status that a decision amounts to: one value, compared with the last one and written only on change."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from dgl_operator.api.v1alpha1 import Condition, DGLJob, JobStatus, ReplicaStatus
from dgl_operator.domain.decide import Decision, Fact, wanted
from dgl_operator.domain.observed import Observed, Pod
from dgl_operator.domain.report import Report
from dglrun.contract.names import Role

NO_REPORT = Report()


def next_status(
    old: JobStatus,
    generation: int,
    decision: Decision,
    replicas: Mapping[str, ReplicaStatus],
    said: Report,
    now: datetime,
) -> JobStatus:
    """Return the status after the decision; equal to `old` when nothing changed.

    Args:
        old: The last written status.
        generation: `metadata.generation` that was decided on.
        decision: What was decided.
        replicas: Pods counted by role, see `count`.
        said: What the job reported of itself; an unreadable part keeps its last readable value.
        now: The clock's value, whole seconds.
    """
    ended = decision.phase.is_final
    conditions = _merged(old.conditions, decision.facts, generation, now)
    new = JobStatus(
        phase=decision.phase,
        message=decision.message,
        conditions=conditions,
        replica_statuses=dict(replicas),
        start_time=old.start_time or now,
        completion_time=(old.completion_time or now) if ended else None,
        last_reconcile_time=old.last_reconcile_time,
        observed_generation=generation,
        progress=said.progress or old.progress,
        partition=said.partition or old.partition,
    )
    return new if new == old else new.model_copy(update={"last_reconcile_time": now})


def count(job: DGLJob, seen: Observed) -> dict[str, ReplicaStatus]:
    """Count the pods of each role that the mode has, as they are now."""
    return {
        role.value: _count(seen.of_role(role), len(wanted(job, role))) for role in Role if wanted(job, role)
    }


def _count(pods: Iterable[Pod], everyone: int) -> ReplicaStatus:
    tally = dict.fromkeys(("pending", "starting", "running", "succeeded", "failed"), 0)
    ready = 0
    for pod in pods:
        tally[_state(pod)] += 1
        ready += pod.ready and not pod.deleting
    return ReplicaStatus(**tally, ready=f"{ready}/{everyone}")


def _state(pod: Pod) -> str:
    if pod.succeeded:
        return "succeeded"
    if pod.failed:
        return "failed"
    if pod.main_started:
        return "running"
    return "starting" if pod.begun else "pending"


def _merged(
    old: tuple[Condition, ...], facts: Iterable[Fact], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """Merge by type; `lastTransitionTime` moves with the status alone (KEP-1623)."""
    found = {condition.type: condition for condition in old}
    for fact in facts:
        found[fact.type] = _condition(found.get(fact.type), fact, generation, now)
    return tuple(found.values())


def _condition(old: Condition | None, fact: Fact, generation: int, now: datetime) -> Condition:
    status = "True" if fact.is_true else "False"
    since = old.last_transition_time if old and old.status == status else now
    return Condition(
        type=fact.type,
        status=status,
        reason=fact.reason,
        message=fact.message,
        last_transition_time=since,
        observed_generation=generation,
    )
