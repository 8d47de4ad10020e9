"""The pods of a job: the user's template with names, labels, environment, mounts and init containers added.

Pods are created and never applied: what a template says is fixed once the pod is there.
"""

from collections.abc import Mapping
from typing import Any

from dgl_operator.api.v1alpha1 import DGLJob
from dgl_operator.render import (
    access,
    config,
    data_volume,
    environment,
    identity,
    init_containers,
    merge,
    pod_templates,
    resources,
)
from dgl_operator.render.merge import Json
from dgl_operator.render.settings import Images
from dglrun.contract import names
from dglrun.contract.names import Mode, Role

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
"""Makes the main container the target of `kubectl logs` and `kubectl exec`."""

_REAPED = {"shareProcessNamespace": True}
"""The pause process reaps what the agent leaves, and an idle `sleep` gets SIGTERM like any other."""


def pod(job: DGLJob, role: Role, index: int, images: Images) -> Json:
    """Return one pod.

    Args:
        job: A valid job.
        role: The pod's role.
        index: Worker index from 0; 0 for the other roles.
        images: Images of the init containers.

    Raises:
        LookupError: the job has no such role.
    """
    source = pod_templates.of(job, role)
    name = name_of(job, role, index)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(job, role, name, index, source),
        "spec": _spec(job, role, index, source["spec"], images),
    }


def name_of(job: DGLJob, role: Role, index: int) -> str:
    """Return the pod's name."""
    job_name = identity.job_name(job)
    if role is Role.WORKER:
        return names.worker(job_name, index)
    return names.launcher(job_name) if role is Role.LAUNCHER else names.partitioner(job_name)


def _metadata(job: DGLJob, role: Role, name: str, index: int, source: Mapping[str, Any]) -> Json:
    users = source.get("metadata") or {}
    main = source["spec"]["containers"][0]["name"]
    labels = identity.pod_labels(job, role, name, index if role is Role.WORKER else None)
    return {
        "name": name,
        "namespace": identity.namespace(job),
        "labels": {**(users.get("labels") or {}), **labels},
        "annotations": {
            DEFAULT_CONTAINER: main,
            **(users.get("annotations") or {}),
            names.ANNOTATION_REPLICA: role.value,
            names.ANNOTATION_MAIN: main,
        },
        "ownerReferences": [identity.owner(job)],
    }


def _spec(job: DGLJob, role: Role, index: int, users: Mapping[str, Any], images: Images) -> Json:
    shape = {**users, "restartPolicy": "Never"}
    if job.spec.partition_mode.has_workers:
        shape |= {"hostname": name_of(job, role, index), "subdomain": names.service(identity.job_name(job))}
    if role is Role.WORKER and not users.get("hostPID"):
        shape = merge.with_defaults(shape, _REAPED)
    shape = _with_account(job, role, shape)
    own = init_containers.of(job, role, users, data_volume.of_delivery(job, users), images)
    shape = merge.with_first(shape, "initContainers", own)
    mounts = _mounts(job, role, users)
    shape = merge.with_items(shape, "volumes", _volumes(job, mounts, users))
    return merge.with_main(shape, _main(job, role, index, shape["containers"][0], mounts))


def _with_account(job: DGLJob, role: Role, pod: Mapping[str, Any]) -> Json:
    """Give the pod its account; workers ask the API server for nothing and carry no token."""
    if pod.get("serviceAccountName") or pod.get("serviceAccount"):
        return dict(pod)
    account = access.account_name(job, role)
    shape = {**pod, "serviceAccountName": account} if account else dict(pod)
    return merge.with_defaults(shape, {"automountServiceAccountToken": False} if role is Role.WORKER else {})


def _main(job: DGLJob, role: Role, index: int, users: Mapping[str, Any], mounts: list[Json]) -> Json:
    main = merge.with_defaults(users, {"terminationMessagePolicy": "FallbackToLogsOnError"})
    main = merge.with_items(main, "env", environment.of_main(job, role, index, str(main.get("image") or "")))
    main = merge.with_items(main, "volumeMounts", mounts, by="mountPath")
    if role is Role.WORKER and not _has_port(main):
        port = {"name": names.DGL_PORT_NAME, "containerPort": names.DGL_PORT, "protocol": "TCP"}
        main = {**main, "ports": [*(main.get("ports") or ()), port]}
    if role is Role.LAUNCHER and job.spec.partition_mode is not Mode.SKIP and not main.get("resources"):
        main["resources"] = {"requests": resources.LAUNCHER_REQUESTS}
    return main


def _has_port(main: Mapping[str, Any]) -> bool:
    ours = (names.DGL_PORT, "TCP")
    return any(
        (port.get("containerPort"), port.get("protocol") or "TCP") == ours for port in main.get("ports") or ()
    )


def _mounts(job: DGLJob, role: Role, users: Mapping[str, Any]) -> list[Json]:
    """Return our mounts of the main container; the dataset and /dev/shm give way to the user's own."""
    has_workers = job.spec.partition_mode.has_workers
    found = [init_containers.CONFIG_MOUNT] if has_workers else []
    if has_workers and role is not Role.WORKER:
        found.append(init_containers.KUBE_MOUNT)
    if has_workers and role is Role.LAUNCHER and not data_volume.has_dataset_folder(job, users):
        found.append(data_volume.EMPTY_MOUNT)
    if (role is not Role.LAUNCHER or not has_workers) and not data_volume.mount_at(users, names.SHM_DIR):
        found.append({"name": names.VOLUME_SHM, "mountPath": names.SHM_DIR})
    return [dict(mount) for mount in (*found, *data_volume.mounts(job))]


def _volumes(job: DGLJob, mounts: list[Json], users: Mapping[str, Any]) -> list[Json]:
    shm = {"medium": "Memory", "sizeLimit": str(resources.shm_bytes(users))}
    known: dict[str, Json] = {
        names.VOLUME_CONFIG: config.volume(job),
        names.VOLUME_KUBE: {"name": names.VOLUME_KUBE, "emptyDir": {}},
        names.VOLUME_DATASET: {"name": names.VOLUME_DATASET, "emptyDir": {}},
        names.VOLUME_SHM: {"name": names.VOLUME_SHM, "emptyDir": shm},
        **{volume["name"]: volume for volume in data_volume.volumes(job)},
    }
    return [known[mount["name"]] for mount in mounts]
