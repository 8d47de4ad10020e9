"""What a job must be beyond the API's rules: what only the whole job or the operator decides.

Each problem is one line: where, what was expected, what was found. A job is checked before anything is
created for it, so that a mistake costs seconds and not a partitioning.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from dgl_operator.api import quantity, rules
from dgl_operator.api.v1alpha1 import DGLJob, ReplicaSpec, mount_path, shown
from dgl_operator.domain import accounts, data_volume, gang, shapes
from dglrun.contract import names
from dglrun.contract.names import Mode, Role

INVALID_SPEC = "InvalidSpec"
UNSUPPORTED = "PartitionModeUnsupported"

SUPPORTED_MODES = frozenset(Mode)
"""The switch for the modes whose back ends are in the image; a job of another mode fails at once."""

MAX_PROBLEMS = 50
"""Named at once; nobody reads more of them, and a template may have a hundred thousand."""
_MAX_DIGITS = 9

_OUR_MOUNTS = (names.CONFIG_DIR, names.KUBE_DIR)
_OUR_VOLUMES = (names.VOLUME_CONFIG, names.VOLUME_KUBE)
_YIELDING = {names.VOLUME_DATASET: names.DATASET_DIR, names.VOLUME_SHM: names.SHM_DIR}
"""Our volumes that give way to one of the user's at the same path."""
_OUR_INIT_CONTAINERS = (names.KUBECTL_DOWNLOAD, names.WATCHER_PARTITIONER, names.WATCHER_WORKER)
_ENV_PREFIX = "DGL_OPERATOR_"


def problems(job: DGLJob) -> tuple[str, ...]:
    """Return what is wrong with the job, empty for a good one.

    The shape comes first, since the other checks rely on it. Of very many problems the first are named.
    """
    checks: Sequence[Callable[[DGLJob], Iterable[str]]] = (
        rules.violations,
        _shapes,
        lambda job: (
            *_partitions(job),
            *_each_role(job),
            *data_volume.problems(job),
            *accounts.problems(job),
            *gang.problems(job),
        ),
    )
    return next((found for check in checks if (found := tuple(islice(check(job), MAX_PROBLEMS)))), ())


def unsupported(job: DGLJob, modes: frozenset[Mode] = SUPPORTED_MODES) -> str | None:
    """Say why the mode cannot run, None when it can."""
    mode = job.spec.partition_mode
    if mode in modes:
        return None
    known = ", ".join(sorted(each.value for each in modes))
    return f"spec.partitionMode: expected one of {known}, whose back ends are in the image, got {mode.value}"


def warnings(job: DGLJob) -> tuple[str, ...]:
    """Return what remains the user's responsibility."""
    found = []
    for role in (Role.LAUNCHER, Role.PARTITIONER):
        spec = job.spec.dgl_replica_specs.of(role)
        account = _pod(spec).get("serviceAccountName") if spec else None
        if account:
            found.append(
                f"{role.value} keeps its serviceAccountName {account}, which must hold the rights of ours"
            )
    return tuple(found)


def _shapes(job: DGLJob) -> Iterator[str]:
    """Where a template is no PodTemplateSpec: the API server stores what the CRD does not type unchecked."""
    for role in Role:
        spec = job.spec.dgl_replica_specs.of(role)
        if spec is not None:
            yield from shapes.template(f"{rules.SPECS}.{role.value}.template", spec.template)


def _partitions(job: DGLJob) -> Iterator[str]:
    worker = job.spec.dgl_replica_specs.worker
    asked = _num_partitions(job.spec.dgl_replica_specs.launcher.main)
    if worker is None or asked is None or asked == worker.replicas:
        return
    yield (
        f"{rules.SPECS}.Launcher: expected --num-partitions to equal Worker.replicas ({worker.replicas}), "
        f"since worker i trains part i, got {asked}"
    )


def _num_partitions(container: Mapping[str, Any]) -> int | None:
    """The number that dglrun is started with, None when it is not dglrun or the number cannot be told."""
    argv = [str(word) for word in [*(container.get("command") or ()), *(container.get("args") or ())]]
    if not argv or PurePosixPath(argv[0]).name != "dglrun":
        return None
    own = argv[: argv.index("--")] if "--" in argv else argv
    values = [after for word, after in zip(own, [*own[1:], ""], strict=True) if word == "--num-partitions"]
    values += [word.partition("=")[2] for word in own if word.startswith("--num-partitions=")]
    is_number = bool(values) and values[-1].isdecimal() and len(values[-1]) <= _MAX_DIGITS
    return int(values[-1]) if is_number else None


def _each_role(job: DGLJob) -> Iterator[str]:
    for role in Role:
        spec = job.spec.dgl_replica_specs.of(role)
        if spec is None:
            continue
        where = f"{rules.SPECS}.{role.value}.template.spec"
        for check in _CHECKS:
            yield from (f"{where}{line}" for line in check(role, spec))
        for of_mode in (_container_names, _volumes):
            yield from (f"{where}{line}" for line in of_mode(spec, job.spec.partition_mode))


def _restart_policy(_role: Role, spec: ReplicaSpec) -> Iterator[str]:
    found = _pod(spec).get("restartPolicy")
    if found not in (None, "Never"):
        why = "since a restarted container has lost its work"
        yield f".restartPolicy: expected Never, {why}, got {shown(found)}"


def _host_names(_role: Role, spec: ReplicaSpec) -> Iterator[str]:
    for key in ("hostname", "subdomain", "setHostnameAsFQDN"):
        if found := _pod(spec).get(key):
            yield f".{key}: expected nothing, since the operator gives pods their names, got {shown(found)}"


def _environment(_role: Role, spec: ReplicaSpec) -> Iterator[str]:
    for entry in spec.main.get("env") or ():
        if entry["name"].startswith(_ENV_PREFIX):
            found = shown(entry["name"])
            yield f".containers[0].env: expected no {_ENV_PREFIX}*, which the operator sets, got {found}"


def _container_names(spec: ReplicaSpec, mode: Mode) -> Iterator[str]:
    """Names are unique in a pod, and the partitioner has those of the worker."""
    for key in ("containers", "initContainers") if mode.has_workers else ():
        for container in _pod(spec).get(key) or ():
            if container["name"] in _OUR_INIT_CONTAINERS:
                yield f".{key}: expected a name that the operator does not use, got {container['name']}"


def _ports(role: Role, spec: ReplicaSpec) -> Iterator[str]:
    if role is not Role.WORKER:
        return
    ours = (names.DGL_PORT_NAME, names.DGL_PORT)
    for index, container in enumerate(spec.containers):
        for port in container.get("ports") or ():
            if (port.get("protocol") or "TCP") != "TCP" or (index == 0 and _port(port) == ours):
                continue
            if port.get("containerPort") == names.DGL_PORT or port.get("name") == names.DGL_PORT_NAME:
                yield (
                    f".containers[{index}].ports: expected {names.DGL_PORT} ({names.DGL_PORT_NAME}) free for "
                    f"DGL's server, got {port.get('containerPort')} ({port.get('name') or 'unnamed'})"
                )


def _port(port: Mapping[str, Any]) -> tuple[str, int | None]:
    return (port.get("name") or names.DGL_PORT_NAME, port.get("containerPort"))


def _volumes(spec: ReplicaSpec, mode: Mode) -> Iterator[str]:
    """Ours must not meet the user's; without workers a pod has but /dev/shm of us."""
    mounted = {mount_path(mount): mount["name"] for mount in spec.main.get("volumeMounts") or ()}
    for path in _OUR_MOUNTS:
        if path in mounted and mode.has_workers:
            yield f".containers[0].volumeMounts: expected {path} free, got {shown(mounted[path])}"
    for volume in _pod(spec).get("volumes") or ():
        name = volume.get("name")
        if name in _OUR_VOLUMES and mode.has_workers:
            yield f".volumes: expected a name that the operator does not use, got {name}"
        if name not in (_YIELDING if mode.has_workers else (names.VOLUME_SHM,)):
            continue
        if mounted.get(_YIELDING[name]) != name:
            place = _YIELDING[name]
            yield f".volumes: expected {name} mounted at {place} or another name, got it elsewhere"


def _pod(spec: ReplicaSpec) -> Mapping[str, Any]:
    found = spec.template.get("spec")
    return found if isinstance(found, Mapping) else {}


def _quantities(_role: Role, spec: ReplicaSpec) -> Iterator[str]:
    for where, holder in ((".containers[0]", spec.main), ("", _pod(spec))):
        for key in ("limits", "requests"):
            amounts = (holder.get("resources") or {}).get(key) or {}
            for name, amount in amounts.items():
                try:
                    quantity.parse(amount)
                except quantity.QuantityError as error:
                    yield f"{where}.resources.{key}[{name if len(name) <= 100 else shown(name)}]: {error}"


_CHECKS: Sequence[Callable[[Role, ReplicaSpec], Iterator[str]]] = (
    _restart_policy,
    _host_names,
    _environment,
    _ports,
    _quantities,
)
