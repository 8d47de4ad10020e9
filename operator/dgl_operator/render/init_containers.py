"""The operator's own init containers of the launcher and the partitioner."""

from collections.abc import Mapping, Sequence
from typing import Any

from dgl_operator.api.v1alpha1 import DGLJob
from dgl_operator.render import environment, merge, resources
from dgl_operator.render.merge import Json
from dgl_operator.render.settings import Images
from dglrun.contract import names
from dglrun.contract.names import Role

CONFIG_MOUNT = {"name": names.VOLUME_CONFIG, "mountPath": names.CONFIG_DIR}
KUBE_MOUNT = {"name": names.VOLUME_KUBE, "mountPath": names.KUBE_DIR}


def of(
    job: DGLJob, role: Role, pod: Mapping[str, Any], dataset: Sequence[Mapping[str, Any]], images: Images
) -> list[Json]:
    """Return the init containers that run before the user's, in their order.

    Args:
        job: The job.
        role: Launcher or partitioner; workers have none.
        pod: The pod spec, whose security demands they meet.
        dataset: The mounts of the container into which the partitioner delivers.
        images: Their images.
    """
    if role is Role.WORKER or not job.spec.partition_mode.has_workers:
        return []
    kubectl = _container(names.KUBECTL_DOWNLOAD, images.kubectl_download, [KUBE_MOUNT])
    found = [{**kubectl, "env": environment.of_init_container()}]
    if role is Role.LAUNCHER and job.spec.partition_mode.has_partitioner:
        found.append(_watcher(job, names.WATCHER_PARTITIONER, [CONFIG_MOUNT, *dataset], images))
    if role is Role.LAUNCHER:
        found.append(_watcher(job, names.WATCHER_WORKER, [CONFIG_MOUNT], images))
    common = {
        "imagePullPolicy": images.pull_policy,
        "securityContext": _security(pod),
        "resources": resources.INIT_RESOURCES if images.resources is None else dict(images.resources),
    }
    return [{**container, **common} for container in found]


def _watcher(job: DGLJob, name: str, mounts: list[Mapping[str, Any]], images: Images) -> Json:
    worker = job.spec.dgl_replica_specs.worker
    waits_for = {
        names.WATCHER_PARTITIONER: (names.PARTFILE, "finished", 1),
        names.WATCHER_WORKER: (names.HOSTFILE, "ready", worker.replicas if worker else 0),
    }[name]
    return {
        **_container(name, images.watcher_loop, mounts),
        "env": environment.of_watcher(job, *waits_for),
    }


def _container(name: str, image: str, mounts: list[Mapping[str, Any]]) -> Json:
    return {
        "name": name,
        "image": image,
        "volumeMounts": [dict(mount) for mount in mounts],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _security(pod: Mapping[str, Any]) -> Json:
    """Meet the Pod Security level `restricted` where the user's pod does.

    Otherwise capabilities stay, since a root user without them could not write into a volume of another
    owner.
    """
    basic = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    whole = pod.get("securityContext") or {}
    main = pod["containers"][0].get("securityContext") or {}
    if not (whole.get("runAsNonRoot") or main.get("runAsNonRoot")):
        return basic
    users = {key: main[key] for key in ("runAsUser", "runAsGroup") if key in main}
    return merge.with_defaults(users, {**basic, "runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}})
