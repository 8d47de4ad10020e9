"""Builders: jobs as a user writes them, pods as a kubelet reports them, with telling defaults."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from dgl_operator.api.v1alpha1 import DGLJob
from dgl_operator.domain.observed import Observed
from dgl_operator.render import pods
from dgl_operator.render.settings import Images
from dglrun.contract import names
from dglrun.contract.names import Mode, Role

Json = dict[str, Any]

NOON = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
IMAGES = Images("watcher:v1", "kubectl:v1")
IMAGE_FLAGS = ("--watcher-loop-image=watcher:v1", "--kubectl-download-image=kubectl:v1")
"""The same on the operator's command line, where they are required."""
DGLRUN = (
    "--graph-name",
    "graphsage",
    "--num-partitions",
    "{workers}",
    "--train-entry-point",
    "code/train.py",
)


def a_template(name: str = "main", **main: Any) -> Json:
    """A pod template with one container; keyword arguments are keys of that container."""
    return {"spec": {"containers": [{"name": name, "image": "example/graphsage:v1", **main}]}}


def a_raw_job(
    name: str = "sage",
    *,
    workers: int = 2,
    mode: Mode = Mode.DGL_API,
    namespace: str = "default",
    uid: str = "job-uid",
    launcher: Json | None = None,
    worker: Json | None = None,
    partitioner: Json | None = None,
    args: Sequence[str] = DGLRUN,
    **spec: Any,
) -> Json:
    """A DGLJob as the API server stores it, without a status."""
    command: Json = {"command": ["dglrun"], "args": [word.format(workers=workers) for word in args]}
    replicas: Json = {"Launcher": {"replicas": 1, "template": launcher or a_template(**command)}}
    if mode is not Mode.SKIP:
        replicas["Worker"] = {"replicas": workers, "template": worker or a_template()}
    if partitioner:
        replicas["Partitioner"] = {"replicas": 1, "template": partitioner}
    return {
        "apiVersion": f"{names.GROUP}/{names.VERSION}",
        "kind": names.KIND,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "generation": 1,
            "resourceVersion": "1",
        },
        "spec": {"partitionMode": mode.value, "dglReplicaSpecs": replicas, **spec},
    }


def a_job(name: str = "sage", *, status: Json | None = None, **given: Any) -> DGLJob:
    """A parsed job; `status` as it is stored."""
    return DGLJob.parse({**a_raw_job(name, **given), "status": status or {}})


def a_status(phase: str, *reached: str) -> Json:
    """A stored status with conditions that are True."""
    conditions = [
        {
            "type": kind,
            "status": "True",
            "reason": "Reached",
            "message": "",
            "lastTransitionTime": "2026-11-21T11:00:00Z",
        }
        for kind in reached
    ]
    return {"phase": phase, "conditions": conditions, "startTime": "2026-11-21T11:00:00Z"}


def running(name: str = "main") -> Json:
    """A container that runs."""
    return {"name": name, "state": {"running": {"startedAt": "2026-11-21T11:30:00Z"}}}


def waiting(name: str = "main", reason: str = "PodInitializing", message: str = "") -> Json:
    """A container that waits."""
    return {"name": name, "state": {"waiting": {"reason": reason, "message": message}}}


def ended(
    name: str = "main", code: int = 0, message: str = "", reason: str = "", at: str = "2026-11-21T11:59:00Z"
) -> Json:
    """A container that has ended."""
    why = reason or ("Completed" if code == 0 else "Error")
    return {
        "name": name,
        "state": {"terminated": {"exitCode": code, "reason": why, "message": message, "finishedAt": at}},
    }


def a_pod_status(
    phase: str,
    *,
    ip: str | None = None,
    ready: bool = False,
    containers: Sequence[Json] | None = None,
    init: Sequence[Json] = (),
    **more: Any,
) -> Json:
    """What a kubelet reports; the containers follow from the phase unless given."""
    told = {"Pending": waiting(), "Running": running(), "Succeeded": ended(), "Failed": ended(code=1)}
    return {
        "phase": phase,
        "podIP": ip,
        "podIPs": [{"ip": ip}] if ip else [],
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        "containerStatuses": list(containers) if containers is not None else [told[phase]],
        "initContainerStatuses": list(init),
        **more,
    }


def a_pod(
    job: DGLJob,
    role: Role,
    phase: str = "Running",
    *,
    index: int = 0,
    uid: str | None = None,
    deleting: bool | str = False,
    owner: str | None = None,
    **status: Any,
) -> Json:
    """A pod of the job as the API server stores it, rendered by the operator and reported by a kubelet.

    `deleting` may be the time at which its grace period of 30 s ends.
    """
    body = pods.pod(job, role, index, IMAGES)
    metadata = {**body["metadata"], "uid": uid or f"{body['metadata']['name']}-uid", "resourceVersion": "1"}
    if deleting:
        metadata["deletionTimestamp"] = deleting if isinstance(deleting, str) else "2026-11-21T11:59:30Z"
        metadata["deletionGracePeriodSeconds"] = 30 if isinstance(deleting, str) else 0
    if owner:
        metadata["ownerReferences"] = [{**metadata["ownerReferences"][0], "uid": owner}]
    return {**body, "metadata": metadata, "status": a_pod_status(phase, **status)}


def workers_of(job: DGLJob, phase: str = "Running", **status: Any) -> list[Json]:
    """All worker pods of the job, alike but for their IP."""
    spec = job.spec.dgl_replica_specs.worker
    assert spec is not None
    return [
        a_pod(job, Role.WORKER, phase, index=index, ip=f"10.0.0.{index + 10}", **status)
        for index in range(spec.replicas)
    ]


def observed(job: DGLJob, *children: Json) -> Observed:
    """What is seen of the job when these are its children."""
    return Observed.of(children, str(job.metadata["uid"]), str(job.metadata["name"]))


def a_child(body: Mapping[str, Any], uid: str, version: int = 1) -> Json:
    """A rendered object as the API server stores it."""
    return {**body, "metadata": {**body["metadata"], "uid": uid, "resourceVersion": str(version)}}
