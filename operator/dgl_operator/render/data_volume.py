"""`spec.datasetVolume` in the pods, and the volume of the launcher into which partitions are delivered.

The first is every main container's, at one path. The second is an empty directory, unless a volume of the
user's, or the first one, holds that folder already: nothing is then mounted over what is shared.
"""

from collections.abc import Mapping
from typing import Any

from dgl_operator.api.v1alpha1 import DGLJob, mount_path
from dgl_operator.render.merge import Json
from dglrun.contract import names

EMPTY_MOUNT: Json = {"name": names.VOLUME_DATASET, "mountPath": names.DATASET_DIR}


def volumes(job: DGLJob) -> list[Json]:
    """Return the pod volume of `spec.datasetVolume`, none where the job has none."""
    given = job.spec.dataset_volume
    return [{"name": names.VOLUME_JOB_DATA, **given.source}] if given else []


def mounts(job: DGLJob) -> list[Json]:
    """Return its mount in a main container, none where the job has none."""
    given = job.spec.dataset_volume
    if given is None:
        return []
    mount = {"name": names.VOLUME_JOB_DATA, "mountPath": given.path}
    return [{**mount, "readOnly": True} if given.read_only else mount]


def of_delivery(job: DGLJob, launcher: Mapping[str, Any]) -> list[Json]:
    """Return the mounts of the launcher's init container that takes the partitions.

    It has the dataset volume, too: a partition that the partitioner leaves there is not copied.
    """
    users = _holding_dataset(launcher)
    if users:
        return [users, *mounts(job)]
    return mounts(job) if _holds(job) else [dict(EMPTY_MOUNT), *mounts(job)]


def has_dataset_folder(job: DGLJob, launcher: Mapping[str, Any]) -> bool:
    """Whether a volume that the launcher mounts has the folder for partitions."""
    return _holds(job) or _holding_dataset(launcher) is not None


def mount_at(pod: Mapping[str, Any], path: str) -> Json | None:
    """Return the user's mount at a path of the main container, None where there is none."""
    found = (mount for mount in _users_mounts(pod) if mount_path(mount) == path)
    return next(found, None)


def is_within(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies below it; both in one spelling."""
    return path == folder or path.startswith(f"{folder}/")


def _holds(job: DGLJob) -> bool:
    given = job.spec.dataset_volume
    return given is not None and is_within(names.DATASET_DIR, given.path)


def _holding_dataset(launcher: Mapping[str, Any]) -> Json | None:
    """Return the innermost mount of the user's that holds the folder and that one may write.

    One above the folder counts if its path is the same in every container: `subPathExpr` has variables.
    """
    found = [mount for mount in _users_mounts(launcher) if _can_hold(mount)]
    return max(found, key=lambda mount: len(mount_path(mount)), default=None)


def _can_hold(mount: Mapping[str, Any]) -> bool:
    path = mount_path(mount)
    is_plain = not (mount.get("readOnly") or mount.get("subPathExpr"))
    return path == names.DATASET_DIR or (is_plain and is_within(names.DATASET_DIR, path))


def _users_mounts(pod: Mapping[str, Any]) -> list[Json]:
    return [dict(mount) for mount in pod["containers"][0].get("volumeMounts") or ()]
