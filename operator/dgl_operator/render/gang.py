"""The PodGroup of a job's workers, and how a worker names it; the launcher is no part of the gang.

The launcher waits for the partition, and workers come after it: in one gang they would wait for each other.
"""

from collections.abc import Mapping

from dgl_operator.api import gang
from dgl_operator.api.gang import GangApi
from dgl_operator.api.v1alpha1 import DGLJob, SchedulingPolicy
from dgl_operator.render import identity
from dgl_operator.render.merge import Json
from dglrun.contract import names


def pod_group(job: DGLJob, api: GangApi) -> Json:
    """Return the PodGroup.

    Raises:
        LookupError: the job has no workers or asks for no gang.
    """
    policy, worker = job.spec.run_policy.scheduling_policy, job.spec.dgl_replica_specs.worker
    if policy is None or worker is None:
        raise LookupError("no gang of workers")
    count = policy.min_available or worker.replicas
    return {
        "apiVersion": api.value,
        "kind": gang.KIND,
        "metadata": identity.metadata(job, names.pod_group(identity.job_name(job))),
        "spec": _native(policy, count) if api is GangApi.KUBERNETES else _coscheduling(policy, count),
    }


def joined(job: DGLJob, worker: Mapping[str, Json], api: GangApi) -> Json:
    """Return a worker pod as a member of the gang."""
    name = names.pod_group(identity.job_name(job))
    policy = job.spec.run_policy.scheduling_policy
    spec, metadata = dict(worker["spec"]), dict(worker["metadata"])
    if policy and policy.priority_class:
        spec["priorityClassName"] = policy.priority_class
    if api is GangApi.KUBERNETES:
        spec[gang.GROUP_FIELD] = {"podGroupName": name}
    else:
        metadata["labels"] = {**metadata["labels"], gang.COSCHEDULING_LABEL: name}
    return {**worker, "metadata": metadata, "spec": spec}


def _native(policy: SchedulingPolicy, count: int) -> Json:
    """The API server drops the priority unless its gate WorkloadAwarePreemption is on."""
    spec: Json = {"schedulingPolicy": {"gang": {"minCount": count}}}
    return {**spec, "priorityClassName": policy.priority_class} if policy.priority_class else spec


def _coscheduling(policy: SchedulingPolicy, count: int) -> Json:
    spec: Json = {"minMember": count}
    if policy.min_resources:
        spec["minResources"] = dict(policy.min_resources)
    if policy.schedule_timeout_seconds is not None:
        spec["scheduleTimeoutSeconds"] = policy.schedule_timeout_seconds
    return spec
