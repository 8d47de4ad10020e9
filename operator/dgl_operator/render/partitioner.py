"""The partitioner's pod spec made from the worker's template and the launcher's container.

Image, resources and placement are the workers', the command and all that it needs are the launcher's: a
variable or a file that the user gives to the launcher reaches the partition script, too.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from dgl_operator.api.v1alpha1 import mount_path
from dgl_operator.render import merge, resources
from dgl_operator.render.merge import Json
from dglrun.contract import names

_OF_THE_WORKERS_COMMAND = (
    "command",
    "args",
    "ports",
    "lifecycle",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
)
"""What a worker's main container says of its own command and does not hold for the partitioner's."""

_OF_THE_LAUNCHER_ALONE = (names.DATASET_DIR, names.OUTPUT_DIR)
"""Mounts that the partitioner does not share: partitions are delivered into the one, which must not be
delivered onto themselves, and results are collected in the other after the partitioner has ended."""

_LONGEST_NAME = 63


def of(worker: Mapping[str, Any], launcher: Mapping[str, Any]) -> Json:
    """Return the pod spec.

    Sidecars stay with the workers: they would keep the pod from ending. So do devices, and accounts, since
    the partitioner runs under the one that may deliver.

    Args:
        worker: The worker's pod spec.
        launcher: The launcher's pod spec.
    """
    bare = merge.without(worker, ("serviceAccountName", "serviceAccount", "automountServiceAccountToken"))
    own, other = worker["containers"][0], launcher["containers"][0]
    kept = _kept_mounts(own, other)
    used = {mount["name"] for mount in [*kept, *_mounts_of(worker.get("initContainers") or ())]}
    volumes, renamed = _volumes(worker, launcher, used)
    mounts = [{**each, "name": renamed.get(each["name"], each["name"])} for each in _shared_mounts(other)]
    lists = {
        "env": _environment(own, other),
        "envFrom": [*(own.get("envFrom") or ()), *(other.get("envFrom") or ())],
        "volumeMounts": [*kept, *mounts],
    }
    main = with_command(merge.without(own, (*_OF_THE_WORKERS_COMMAND, *lists)), other)
    main |= {key: value for key, value in lists.items() if value}
    bare = merge.without(bare, ("volumes",)) | ({"volumes": volumes} if volumes else {})
    return resources.without_devices({**bare, "containers": [main]})


def with_command(main: Mapping[str, Any], launcher: Mapping[str, Any]) -> Json:
    """Give a container the launcher's command and arguments."""
    taken = {key: launcher[key] for key in ("command", "args") if launcher.get(key)}
    place = {key: launcher[key] for key in ("workingDir",) if launcher.get(key)}
    return {**place, **main, **taken}


def _environment(worker: Mapping[str, Any], launcher: Mapping[str, Any]) -> list[Json]:
    """The launcher's variables win, and come first, so that $(NAME) in either list finds what it names."""
    first = [dict(entry) for entry in launcher.get("env") or ()]
    known = {entry["name"] for entry in first}
    return [*first, *(dict(entry) for entry in worker.get("env") or () if entry["name"] not in known)]


def _shared_mounts(launcher: Mapping[str, Any]) -> list[Json]:
    mounts = [dict(mount) for mount in launcher.get("volumeMounts") or ()]
    return [mount for mount in mounts if mount_path(mount) not in _OF_THE_LAUNCHER_ALONE]


def _kept_mounts(worker: Mapping[str, Any], launcher: Mapping[str, Any]) -> list[Json]:
    """The worker's mounts but for those where the launcher mounts something itself."""
    taken = {mount_path(mount) for mount in _shared_mounts(launcher)}
    return [dict(mount) for mount in worker.get("volumeMounts") or () if mount_path(mount) not in taken]


def _mounts_of(containers: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [mount for container in containers for mount in container.get("volumeMounts") or ()]


def _volumes(
    worker: Mapping[str, Any], launcher: Mapping[str, Any], used: set[str]
) -> tuple[list[Json], dict[str, str]]:
    """Join the volumes of both; returns them and the new names of the launcher's.

    One name with two definitions is the launcher's volume where nothing of the worker's mounts it any more;
    otherwise both are kept, the launcher's under a new name, which nobody but this pod sees.
    """
    found = {volume["name"]: dict(volume) for volume in worker.get("volumes") or ()}
    theirs = {volume["name"]: dict(volume) for volume in launcher.get("volumes") or ()}
    renamed: dict[str, str] = {}
    for name in dict.fromkeys(mount["name"] for mount in _shared_mounts(launcher["containers"][0])):
        if name not in theirs:
            continue
        if name in used and found.get(name, theirs[name]) != theirs[name]:
            renamed[name] = _free_name(name, {*found, *theirs})
        new = renamed.get(name, name)
        found[new] = {**theirs[name], "name": new}
    return list(found.values()), renamed


def _free_name(name: str, taken: set[str]) -> str:
    """A volume's name that is not taken, with the launcher's at its beginning."""
    for number in range(len(taken) + 1):
        ending = f"-launcher-{number}" if number else "-launcher"
        found = name[: _LONGEST_NAME - len(ending)] + ending
        if found not in taken:
            break
    return found
