"""The user's rules on failures: which one matches the pod that is the root cause."""

from dgl_operator.api.v1alpha1 import (
    DGLJob,
    ExitCodeOperator,
    FailureAction,
    FailureRule,
    OnExitCodes,
)
from dgl_operator.domain.observed import Observed, Pod
from dglrun.contract import names
from dglrun.contract.names import Role


def match(job: DGLJob, name: str, seen: Observed) -> tuple[int, FailureAction] | None:
    """Return place and action of the first rule that matches a pod, None when none does.

    Args:
        job: The job.
        name: The pod's name; a pod that is gone has a role, and no exit code and no condition any more.
        seen: The job's children.
    """
    if job.spec.failure_policy is None:
        return None
    place = names.role_of(str(job.metadata["name"]), name)
    pod = next((each for each in seen.pods if each.name == name), None)
    for at, rule in enumerate(job.spec.failure_policy.rules):
        if _matches(rule, place[0] if place else None, pod):
            return at, rule.action
    return None


def _matches(rule: FailureRule, role: Role | None, pod: Pod | None) -> bool:
    if rule.role is not None and rule.role is not role:
        return False
    if rule.on_exit_codes and not (pod and _has_exit_code(rule.on_exit_codes, pod)):
        return False
    if rule.on_pod_conditions:
        wanted = {f"{each.type}={each.status}" for each in rule.on_pod_conditions}
        return pod is not None and not wanted.isdisjoint(pod.conditions)
    return True


def _has_exit_code(asked: OnExitCodes, pod: Pod) -> bool:
    """Whether a container that ended with another code than 0 has such a code."""
    codes = [end.exit_code for end in pod.failures if asked.container_name in (None, end.container)]
    return any((code in asked.values) is (asked.operator is ExitCodeOperator.IN) for code in codes)
