"""What `spec.datasetVolume` must be: one volume source, at a path that nothing else needs.

What the source itself must be says Kubernetes, when the pods are rehearsed and created.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dgl_operator.api import rules
from dgl_operator.api.v1alpha1 import DatasetVolume, DGLJob, ReplicaSpec, mount_path, shown
from dglrun.contract import names
from dglrun.contract.names import Role

_WHERE = "spec.datasetVolume"
_MAX_NAME = 100


def problems(job: DGLJob) -> Iterator[str]:
    """Yield one line for each problem."""
    given = job.spec.dataset_volume
    if given is None:
        return
    yield from _source(given)
    has_workers = job.spec.partition_mode.has_workers
    ours = (names.CONFIG_DIR, names.KUBE_DIR, names.SHM_DIR) if has_workers else (names.SHM_DIR,)
    yield from _place(given, ours)
    if has_workers and given.read_only and _is_within(names.DATASET_DIR, given.path):
        why = f"since partitions are delivered into {names.DATASET_DIR}"
        yield f"{_WHERE}.readOnly: expected false at {shown(given.path)}, {why}, got true"
    for role in Role:
        if spec := job.spec.dgl_replica_specs.of(role):
            yield from _meets(role, spec, given)


def _source(given: DatasetVolume) -> Iterator[str]:
    found = given.source
    if len(found) != 1:
        got = f"{len(found)}: {', '.join(map(shown, sorted(found)[:8]))}" if found else "none"
        yield f"{_WHERE}: expected exactly one volume source, such as persistentVolumeClaim, got {got}"
        return
    name, value = next(iter(found.items()))
    if not isinstance(value, Mapping):
        where = name if name.isidentifier() and len(name) <= _MAX_NAME else shown(name)
        yield f"{_WHERE}.{where}: expected an object, got {shown(value)}"


def _place(given: DatasetVolume, ours: tuple[str, ...]) -> Iterator[str]:
    """Neither over, nor at, nor below a path at which the operator mounts something that has to be seen."""
    for path in ours:
        if _is_within(path, given.path) or _is_within(given.path, path):
            yield (
                f"{_WHERE}.mountPath: expected a path that leaves the operator's {path} alone, "
                f"got {shown(given.path)}"
            )


def _meets(role: Role, spec: ReplicaSpec, given: DatasetVolume) -> Iterator[str]:
    """A role's own mount at the path, or its own volume of our name."""
    where = f"{rules.SPECS}.{role.value}.template.spec"
    for mount in spec.main.get("volumeMounts") or ():
        if mount_path(mount) == given.path:
            yield (
                f"{where}.containers[0].volumeMounts: expected {shown(given.path)} free for {_WHERE}, "
                f"got {shown(mount['name'])}"
            )
    pod: Any = spec.template.get("spec") or {}
    if any(volume.get("name") == names.VOLUME_JOB_DATA for volume in pod.get("volumes") or ()):
        name = names.VOLUME_JOB_DATA
        yield f"{where}.volumes: expected another name than {name}, which is that of {_WHERE}"


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")
