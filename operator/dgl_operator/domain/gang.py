"""Gang scheduling of the workers: what `schedulingPolicy` must be, and when the PodGroup has to be there."""

from collections.abc import Iterator, Mapping
from typing import Any

from dgl_operator.api import gang, quantity, rules
from dgl_operator.api.gang import GangApi
from dgl_operator.api.v1alpha1 import DGLJob, shown
from dgl_operator.domain.observed import Observed, Problem
from dgl_operator.domain.verdict import wanted
from dglrun.contract.names import Role

UNAVAILABLE = "GangSchedulingUnavailable"
UNSUPPORTED = "SchedulingPolicyUnsupported"
_TEMPLATE = f"{rules.SPECS}.Worker.template"
_MAX_NAME = 100


def problems(job: DGLJob) -> Iterator[str]:
    """Yield one line for each thing that no cluster could honour."""
    policy, worker = job.spec.run_policy.scheduling_policy, job.spec.dgl_replica_specs.worker
    if policy is None or worker is None:
        return
    for name, amount in policy.min_resources.items():
        try:
            quantity.parse(amount)
        except quantity.QuantityError as error:
            where = name if len(name) <= _MAX_NAME else shown(name)
            yield f"{rules.SCHEDULING}.minResources[{where}]: {error}"
    pod: Mapping[str, Any] = worker.template.get("spec") or {}
    labels = (worker.template.get("metadata") or {}).get("labels") or {}
    found = pod.get("priorityClassName")
    if policy.priority_class and found not in (None, "", policy.priority_class):
        expected = f"expected {policy.priority_class}, as schedulingPolicy.priorityClass says"
        yield f"{_TEMPLATE}.spec.priorityClassName: {expected}, got {shown(found)}"
    taken = {
        f"spec.{gang.GROUP_FIELD}": pod.get(gang.GROUP_FIELD),
        f"metadata.labels[{gang.COSCHEDULING_LABEL}]": labels.get(gang.COSCHEDULING_LABEL),
    }
    for field, value in taken.items():
        if value is not None:
            yield f"{_TEMPLATE}.{field}: expected nothing beside a schedulingPolicy, got {shown(value)}"


def is_needed(job: DGLJob, seen: Observed, roles: frozenset[Role]) -> bool:
    """Whether the PodGroup has to be there now.

    That is before the first pod, so that what prevents it shows before hours of partitioning, and while a
    worker is to be created or has no node yet.
    """
    if job.spec.run_policy.scheduling_policy is None:
        return False
    if not seen.pods:
        return True
    placed = {pod.name for pod in seen.of_role(Role.WORKER) if pod.node}
    return Role.WORKER in roles and not placed.issuperset(wanted(job, Role.WORKER))


def unavailable() -> Problem:
    """The API server has none of the APIs."""
    apis = " nor ".join(f"PodGroup of {api.value}" for api in GangApi)
    return Problem(
        UNAVAILABLE, f"{rules.SCHEDULING} needs a gang scheduler, and the cluster has neither {apis}"
    )


def unsupported(job: DGLJob, api: GangApi) -> Problem | None:
    """Say what of the job's policy this API cannot honour, None when it can honour all."""
    policy = job.spec.run_policy.scheduling_policy
    if policy is None or api is GangApi.COSCHEDULING:
        return None
    given = {
        "minResources": bool(policy.min_resources),
        "scheduleTimeoutSeconds": policy.schedule_timeout_seconds is not None,
    }
    found = [name for name, is_given in given.items() if is_given]
    if not found:
        return None
    what = f"{rules.SCHEDULING}: {' and '.join(found)} cannot be honoured by PodGroup of {api.value}"
    return Problem(
        UNSUPPORTED, f"{what}, which the cluster has; spec.runPolicy.startDeadlineSeconds bounds the wait"
    )
