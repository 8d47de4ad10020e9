"""The Workload by which Kueue counts a job against a quota, and what an admission adds to the pods."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dgl_operator.api import kueue
from dgl_operator.api.v1alpha1 import DGLJob
from dgl_operator.render import identity
from dgl_operator.render import pods as rendered
from dgl_operator.render.merge import Json
from dgl_operator.render.settings import Images
from dglrun.contract.names import Role

POD_SETS = {Role.LAUNCHER: "launcher", Role.PARTITIONER: "partitioner", Role.WORKER: "workers"}
"""Names of the pod sets; the gang are the workers, which come after the partitioning."""

_OF_POD = (
    *("affinity", "nodeSelector", "overhead", "priorityClassName", "resourceClaims", "resources"),
    *("restartPolicy", "runtimeClassName", "schedulerName", "tolerations"),
)
_OF_CONTAINER = ("name", "image", "resources", "restartPolicy")
"""What Kueue counts and matches with flavors; commands and variables are none of its business."""


@dataclass(frozen=True)
class Priority:
    """The priority of a job in its queue.

    Attributes:
        source: The kind of the class, as Kueue writes it; "" without a class.
        name: The class.
        value: Higher ones come first, and may preempt.
    """

    source: str = ""
    name: str = ""
    value: int = 0


@dataclass(frozen=True)
class Placement:
    """What an admission adds to the pods of one role."""

    node_selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, Any], ...] = ()
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None


def workload(job: DGLJob, images: Images, priority: Priority) -> Json:
    """Return the Workload of a valid job that names a queue."""
    metadata = identity.metadata(job, kueue.workload_name(identity.job_name(job)))
    metadata["labels"] = {**metadata["labels"], kueue.JOB_UID: job.metadata["uid"]}
    spec: Json = {"queueName": kueue.queue(job), "active": True, "priority": priority.value}
    if priority.name:
        spec |= {"priorityClassName": priority.name, "priorityClassSource": priority.source}
    spec["podSets"] = [_pod_set(job, role, images) for role in POD_SETS if _has(job, role)]
    return {"apiVersion": kueue.API_VERSION, "kind": kueue.KIND, "metadata": metadata, "spec": spec}


def placed(pod: Mapping[str, Any], placement: Placement) -> Json:
    """Return a pod with what the admission adds to it."""
    metadata, spec = dict(pod["metadata"]), dict(pod["spec"])
    for key, values in (("labels", placement.labels), ("annotations", placement.annotations)):
        if values:
            metadata[key] = {**values, **(metadata.get(key) or {})}
    if placement.node_selector:
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **placement.node_selector}
    own = list(spec.get("tolerations") or ())
    added = [dict(each) for each in placement.tolerations if dict(each) not in own]
    if added:
        spec["tolerations"] = [*own, *added]
    return {**pod, "metadata": metadata, "spec": spec}


def placement(flavors: Iterable[Mapping[str, Any]], updates: Iterable[Mapping[str, Any]]) -> Placement:
    """Join what the flavors of a pod set and the admission checks give.

    Args:
        flavors: ResourceFlavor objects.
        updates: PodSetUpdates.
    """
    selector: dict[str, str] = {}
    tolerations: list[Mapping[str, Any]] = []
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    for flavor in flavors:
        spec = flavor.get("spec") or {}
        selector |= spec.get("nodeLabels") or {}
        tolerations += spec.get("tolerations") or ()
    for update in updates:
        selector |= update.get("nodeSelector") or {}
        tolerations += update.get("tolerations") or ()
        labels |= update.get("labels") or {}
        annotations |= update.get("annotations") or {}
    each_once = [each for at, each in enumerate(tolerations) if each not in tolerations[:at]]
    return Placement(selector, tuple(each_once), labels, annotations)


def _has(job: DGLJob, role: Role) -> bool:
    mode = job.spec.partition_mode
    return role is Role.LAUNCHER or (mode.has_partitioner if role is Role.PARTITIONER else mode.has_workers)


def _pod_set(job: DGLJob, role: Role, images: Images) -> Json:
    pod, specs = rendered.pod(job, role, 0, images), job.spec.dgl_replica_specs
    return {
        "name": POD_SETS[role],
        "count": specs.worker.replicas if specs.worker and role is Role.WORKER else 1,
        "template": {"metadata": {}, "spec": _counted(pod["spec"])},
    }


def _counted(spec: Mapping[str, Any]) -> Json:
    found = {key: spec[key] for key in _OF_POD if spec.get(key)}
    for key in ("initContainers", "containers"):
        if spec.get(key):
            found[key] = [
                {part: each[part] for part in _OF_CONTAINER if each.get(part)} for each in spec[key]
            ]
    return found
