"""Sizes and devices read from the user's containers."""

from collections.abc import Mapping
from typing import Any

from dgl_operator.api import quantity
from dgl_operator.render import merge
from dgl_operator.render.merge import Json

DEFAULT_SHM_BYTES = 1 << 30
"""Size of /dev/shm without a memory limit: the kernel's 64 MiB are too little for DGL's shared graph."""

LAUNCHER_REQUESTS = {"cpu": "100m", "memory": "256Mi"}
"""The launcher mostly waits; no limit, since collecting a large model must not end it."""

INIT_RESOURCES = {
    "requests": {"cpu": "50m", "memory": "64Mi", "ephemeral-storage": "64Mi"},
    "limits": {"cpu": "1", "memory": "512Mi"},
}
"""Of our init containers: a namespace with a quota admits no container without both.

The limits leave room for the receiver of the partitions, which runs inside `watcher-loop-partitioner`."""


def shm_bytes(pod: Mapping[str, Any]) -> int:
    """Return half of the main container's memory limit (or the pod's), in bytes."""
    for holder in (pod["containers"][0], pod):
        limit = _resources(holder, "limits").get("memory")
        if limit is not None:
            return int(quantity.parse(limit) / 2) or DEFAULT_SHM_BYTES
    return DEFAULT_SHM_BYTES


def gpus(container: Mapping[str, Any]) -> int:
    """Return how many GPUs the container may use: the sum of its `*/gpu` and MIG limits."""
    limits = _resources(container, "limits")
    return sum(int(quantity.parse(amount)) for name, amount in limits.items() if _is_gpu(name))


def without_devices(pod: Mapping[str, Any]) -> Json:
    """Take all devices (extended resources and resource claims) from a pod spec."""
    bare = merge.without(pod, ("resourceClaims",))
    for key in ("containers", "initContainers"):
        if pod.get(key):
            bare[key] = [_without_devices(container) for container in pod[key]]
    return bare


def _without_devices(container: Mapping[str, Any]) -> Json:
    resources = container.get("resources")
    if not resources:
        return dict(container)
    kept = {
        kind: {name: amount for name, amount in (resources.get(kind) or {}).items() if not _is_device(name)}
        for kind in ("requests", "limits")
    }
    rest = {
        **merge.without(resources, ("requests", "limits", "claims")),
        **{k: v for k, v in kept.items() if v},
    }
    return {**container, "resources": rest} if rest else merge.without(container, ("resources",))


def _resources(holder: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return (holder.get("resources") or {}).get(kind) or {}


def _is_gpu(resource: str) -> bool:
    name = resource.rpartition("/")[2]
    return "/" in resource and (name == "gpu" or name.startswith("mig-"))


def _is_device(resource: str) -> bool:
    """Whether it is an extended resource: a qualified name outside Kubernetes' own domain."""
    domain = resource.partition("/")[0]
    return "/" in resource and not (domain == "kubernetes.io" or domain.endswith(".kubernetes.io"))
