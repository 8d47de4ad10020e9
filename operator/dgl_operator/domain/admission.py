"""What a queue of Kueue means for a job: whether it may have pods, and what becomes of its Workload.

A job with the label `kueue.x-k8s.io/queue-name` has a Workload, by which Kueue counts it against a quota.
Kueue knows no DGLJob, so that the operator does for it what Kueue's own controllers do for a Job: give the
quota back when an evicted job's pods are gone, and say that the job has ended.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any

from dgl_operator.api.kueue import KIND, queue, workload_name
from dgl_operator.api.v1alpha1 import DGLJob, Phase
from dgl_operator.domain import fields
from dgl_operator.domain.observed import Observed

ADMITTED, QUOTA_RESERVED = "Admitted", "QuotaReserved"
EVICTED, REQUEUED, FINISHED = "Evicted", "Requeued", "Finished"
CONDITIONS = (ADMITTED, QUOTA_RESERVED, EVICTED, FINISHED)
"""Conditions of a Workload that are read."""

NOT_ADMITTED, RESUMED = "NotAdmitted", "JobAdmitted"

_AGAIN = ("Preempted", "NodeFailures")
"""Evictions after which the job waits for admission again at once; after others Kueue says when."""
_MAX_MESSAGE = 32 * 1024


class Step(Enum):
    """What is to be done with a Workload."""

    CREATE = "create"
    RELEASE = "release"
    """Give the quota back: Kueue has evicted the job, and its pods are gone."""
    FINISH = "finish"
    """Say that the job has ended, by which Kueue frees its quota: no pod runs any more."""
    DELETE = "delete"


@dataclass(frozen=True)
class Hold:
    """Why a job of a queue may have no pods: reason and message of its condition `Suspended`."""

    reason: str
    message: str


@dataclass(frozen=True)
class Workload:
    """What Kueue says of a job.

    Attributes:
        queue: The LocalQueue that it waits in.
        conditions: By type: (status, reason, message).
        is_active: Whether anybody has deactivated it.
        is_leaving: Whether it is being deleted.
        assigned: The pod sets of an admission with what their pods need: `flavors` and `updates`.
    """

    name: str
    uid: str
    queue: str
    conditions: Mapping[str, tuple[str, str, str]]
    is_active: bool = True
    is_leaving: bool = False
    assigned: Mapping[str, "Assigned"] = field(default_factory=dict)

    def says(self, condition: str) -> bool:
        """Whether the condition is true."""
        return self.conditions.get(condition, ("",))[0] == "True"

    @property
    def may_run(self) -> bool:
        """Whether the job may have pods."""
        ends = self.says(EVICTED) or self.says(FINISHED) or self.is_leaving
        return self.is_active and self.says(ADMITTED) and not ends


@dataclass(frozen=True)
class Assigned:
    """What an admission gives to the pods of one pod set.

    Attributes:
        flavors: Names of ResourceFlavors, whose labels and tolerations the pods take.
        updates: What admission checks add, as PodSetUpdates.
    """

    flavors: tuple[str, ...] = ()
    updates: tuple[Mapping[str, Any], ...] = ()


def workload(job: DGLJob, seen: Observed) -> Workload | None:
    """The job's Workload, None while there is none."""
    raw = seen.objects.get((KIND, workload_name(str(job.metadata["name"]))))
    return _read(raw) if raw is not None else None


def is_counted(job: DGLJob, seen: Observed) -> bool:
    """Whether the job's Workload counts: a job whose label was taken off keeps it as long as it has pods."""
    return bool(queue(job) or (seen.pods and workload(job, seen)))


def hold(job: DGLJob, seen: Observed) -> Hold | None:
    """Why the job may have no pods for now; None when it may, or waits in no queue.

    Pods that were there before anybody asked Kueue stay: the label may be newer than they are, or older than
    an operator that reads it. Those of an admitted job stay, too, while nobody can say whether it still is.
    """
    found = workload(job, seen)
    if not is_counted(job, seen) or (seen.pods and _is_unspoken(job, seen, found)):
        return None
    name = queue(job) or (found.queue if found else "")
    if found is None:
        return Hold(NOT_ADMITTED, f"queue {name}: the job has no Workload yet")
    if found.may_run:
        return None
    if found.says(EVICTED):
        _, reason, message = found.conditions[EVICTED]
        return Hold(EVICTED, f"queue {name}: Kueue evicted the job: {reason}: {message}")
    if not found.is_active:
        return Hold(NOT_ADMITTED, f"queue {name}: the Workload {found.name} is deactivated")
    waits = found.conditions.get(QUOTA_RESERVED, ("", "", ""))
    why = f": {waits[2]}" if waits[0] == "False" and waits[2] else ""
    return Hold(NOT_ADMITTED, f"queue {name}: Kueue has not admitted the job{why}")


def next_step(job: DGLJob, seen: Observed, *, is_final: bool, is_held: bool) -> Step | None:
    """Return what is to be done with the job's Workload, None for nothing.

    It is made, given up and deleted only while the job has no pods, so that quota and pods never differ. That
    the job has ended is said when none of its pods runs any more: pods that are kept hold quota, too.

    Args:
        job: The job.
        seen: Its children.
        is_final: Whether the job has ended.
        is_held: Whether it is to have no pods for now.
    """
    found = workload(job, seen)
    if is_final:
        is_due = found is not None and not found.says(FINISHED) and all(pod.stopped for pod in seen.pods)
        return Step.FINISH if is_due else None
    if not queue(job):
        return Step.DELETE if found and not seen.pods else None
    if not is_held or seen.pods:
        return None
    if found is None:
        return None if job.spec.run_policy.suspend else Step.CREATE
    return _of_one_at_rest(job, found)


def released(raw: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return the change of status by which an evicted job gives its quota back."""
    conditions = fields.items(fields.mapping(raw.get("status")).get("conditions"))
    evicted: Mapping[str, Any] = next((each for each in conditions if each.get("type") == EVICTED), {})
    reason, message = fields.text(evicted.get("reason")), fields.text(evicted.get("message"))
    changes = (
        (REQUEUED, reason in _AGAIN, reason or EVICTED, message),
        (QUOTA_RESERVED, False, "Pending", message),
        (ADMITTED, False, "NoReservation", "The workload has no reservation"),
    )
    return {"conditions": _merged(raw, changes, now), "admission": None}


def finished(raw: Mapping[str, Any], phase: Phase, message: str, now: datetime) -> dict[str, Any]:
    """Return the change of status that says how the job has ended."""
    reason = "Succeeded" if phase is Phase.COMPLETED else "Failed"
    return {"conditions": _merged(raw, ((FINISHED, True, reason, message),), now)}


def was_admitted(job: DGLJob) -> bool:
    """Whether the job's last word of its queue is that it was admitted."""
    return _last_reason(job) == RESUMED


def _is_unspoken(job: DGLJob, seen: Observed, found: Workload | None) -> bool:
    """Whether Kueue has said nothing of the job's pods: nobody has asked it, or nobody can hear it."""
    if found is None and not _has_asked(job):
        return True
    is_gone = found is None or found.is_leaving
    return is_gone and was_admitted(job) and not seen.hears_kueue


def _has_asked(job: DGLJob) -> bool:
    """Whether the job had a Workload before: it was held until its admission, and its status says so."""
    return _last_reason(job) in (NOT_ADMITTED, EVICTED, RESUMED)


def _last_reason(job: DGLJob) -> str:
    return next((each.reason for each in job.status.conditions if each.type == "Suspended"), "")


def _of_one_at_rest(job: DGLJob, found: Workload) -> Step | None:
    """What is to be done with a Workload whose job has no pods and has not ended."""
    has_moved = found.queue != queue(job) and not found.says(QUOTA_RESERVED)
    if found.is_leaving:
        return None
    if job.spec.run_policy.suspend or found.says(FINISHED) or has_moved:
        return Step.DELETE
    is_withdrawn = found.says(EVICTED) and found.says(QUOTA_RESERVED)
    return Step.RELEASE if is_withdrawn else None


def _read(raw: Mapping[str, Any]) -> Workload:
    metadata, spec = fields.mapping(raw.get("metadata")), fields.mapping(raw.get("spec"))
    status = fields.mapping(raw.get("status"))
    said = ("status", "reason", "message")
    return Workload(
        name=fields.text(metadata.get("name")),
        uid=fields.text(metadata.get("uid")),
        queue=fields.text(spec.get("queueName")),
        conditions={
            fields.text(each.get("type")): tuple(fields.text(each.get(key)) for key in said)  # type: ignore[misc]
            for each in fields.items(status.get("conditions"))
        },
        is_active=spec.get("active") is not False,
        is_leaving=fields.text(metadata.get("deletionTimestamp")) != "",
        assigned=_assigned(status),
    )


def _assigned(status: Mapping[str, Any]) -> dict[str, Assigned]:
    admission, checks = fields.mapping(status.get("admission")), fields.items(status.get("admissionChecks"))
    updates = [each for check in checks for each in fields.items(check.get("podSetUpdates"))]
    found = {}
    for each in fields.items(admission.get("podSetAssignments")):
        name = fields.text(each.get("name"))
        flavors = {fields.text(flavor) for flavor in fields.mapping(each.get("flavors")).values()}
        own = tuple(update for update in updates if update.get("name") == name)
        found[name] = Assigned(tuple(sorted(flavors - {""})), own)
    return found


def _merged(
    raw: Mapping[str, Any], changes: Iterable[tuple[str, bool, str, str]], now: datetime
) -> list[dict[str, Any]]:
    """Return all conditions with these (type, status, reason, message) changed."""
    conditions = fields.items(fields.mapping(raw.get("status")).get("conditions"))
    found = {fields.text(each.get("type")): dict(each) for each in conditions}
    generation = fields.whole(fields.mapping(raw.get("metadata")).get("generation")) or 0
    for kind, is_true, reason, message in changes:
        status = "True" if is_true else "False"
        old = found.get(kind, {})
        time = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        found[kind] = {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message[:_MAX_MESSAGE],
            "observedGeneration": generation,
            "lastTransitionTime": old.get("lastTransitionTime", time)
            if old.get("status") == status
            else time,
        }
    return list(found.values())
