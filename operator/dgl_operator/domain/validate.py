"""What a job must be beyond the API's rules: what only the whole job or the operator decides.

Each problem is one line: where, what was expected, what was found. A job is checked before anything is
created for it, so that a mistake costs seconds and not a partitioning.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from dgl_operator.api import quantity, rules
from dgl_operator.api.v1alpha1 import DGLJob, ReplicaSpec, mount_path
from dglrun.contract import names
from dglrun.contract.names import Mode, Role

INVALID_SPEC = "InvalidSpec"
UNSUPPORTED = "PartitionModeUnsupported"

SUPPORTED_MODES = frozenset(Mode)
"""The switch for the modes whose back ends are in the image; a job of another mode fails at once."""

_OUR_MOUNTS = (names.CONFIG_DIR, names.KUBE_DIR)
_OUR_VOLUMES = (names.VOLUME_CONFIG, names.VOLUME_KUBE)
_YIELDING = {names.VOLUME_DATASET: names.DATASET_DIR, names.VOLUME_SHM: names.SHM_DIR}
"""Our volumes that give way to one of the user's at the same path."""
_OUR_INIT_CONTAINERS = (names.KUBECTL_DOWNLOAD, names.WATCHER_PARTITIONER, names.WATCHER_WORKER)
_ENV_PREFIX = "DGL_OPERATOR_"


def problems(job: DGLJob) -> tuple[str, ...]:
    """Return all that is wrong with the job, empty for a good one."""
    broken = rules.violations(job) or tuple(_shapes(job))
    return broken or tuple([*_partitions(job), *_each_role(job)])


def unsupported(job: DGLJob, modes: frozenset[Mode] = SUPPORTED_MODES) -> str | None:
    """Say why the mode cannot run, None when it can."""
    mode = job.spec.partition_mode
    if mode in modes:
        return None
    known = ", ".join(sorted(each.value for each in modes))
    return f"spec.partitionMode: expected one of {known}, whose back ends are in the image, got {mode.value}"


def warnings(job: DGLJob) -> tuple[str, ...]:
    """Return what the user answers for himself."""
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
    """Where a template is no PodTemplateSpec: the API server stores what it does not know unchecked."""
    for role in Role:
        spec = job.spec.dgl_replica_specs.of(role)
        if spec is None:
            continue
        where = f"{rules.SPECS}.{role.value}.template"
        for key, value in (("spec", spec.template.get("spec")), ("metadata", spec.template.get("metadata"))):
            if not isinstance(value, Mapping | type(None)):
                yield f"{where}.{key}: expected an object, got {value!r}"
        yield from _list_shapes(f"{where}.spec", _pod(spec), ("containers", "initContainers", "volumes"))
        for container in spec.containers:
            inside = f"{where}.spec.containers[{container['name']}]"
            yield from _list_shapes(inside, container, ("env", "ports", "volumeMounts"))
            yield from _word_shapes(inside, container)
            yield from _object_shapes(inside, container)
        yield from _object_shapes(f"{where}.spec", _pod(spec))
        for init in _init(spec):
            yield from _object_shapes(f"{where}.spec.initContainers[{init.get('name')}]", init)
        metadata = spec.template.get("metadata")
        for key, value in metadata.items() if isinstance(metadata, Mapping) else ():
            if key in ("labels", "annotations") and not isinstance(value, Mapping | type(None)):
                yield f"{where}.metadata.{key}: expected an object, got {value!r}"


def _list_shapes(where: str, parent: Mapping[str, Any], keys: Sequence[str]) -> Iterator[str]:
    for key in keys:
        found = parent.get(key) or []
        if not isinstance(found, list) or not all(isinstance(each, Mapping) for each in found):
            yield f"{where}.{key}: expected a list of objects, got {found!r}"
        elif key != "ports" and not all(isinstance(each.get("name"), str) for each in found):
            yield f"{where}.{key}: expected a name in each, got {found!r}"


def _word_shapes(where: str, container: Mapping[str, Any]) -> Iterator[str]:
    for key in ("command", "args"):
        found = container.get(key) or []
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            yield f"{where}.{key}: expected a list of strings, got {found!r}"


def _object_shapes(where: str, holder: Mapping[str, Any]) -> Iterator[str]:
    """Of a pod spec or a container; a key that was left blank is null there, and no mistake."""
    for key in ("securityContext", "resources"):
        if not isinstance(holder.get(key), Mapping | type(None)):
            yield f"{where}.{key}: expected an object, got {holder[key]!r}"
    resources = holder.get("resources")
    if not isinstance(resources, Mapping):
        return
    for key in ("limits", "requests"):
        found = resources.get(key)
        if not isinstance(found, Mapping | type(None)):
            yield f"{where}.resources.{key}: expected amounts by name, got {found!r}"


def _init(spec: ReplicaSpec) -> list[Mapping[str, Any]]:
    found = _pod(spec).get("initContainers")
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


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
    return int(values[-1]) if values and values[-1].isdecimal() else None


def _each_role(job: DGLJob) -> Iterator[str]:
    for role in Role:
        spec = job.spec.dgl_replica_specs.of(role)
        if spec is None:
            continue
        where = f"{rules.SPECS}.{role.value}.template.spec"
        for check in _CHECKS:
            yield from (f"{where}{line}" for line in check(role, spec))
        yield from (f"{where}{line}" for line in _volumes(spec, job.spec.partition_mode))


def _restart_policy(_role: Role, spec: ReplicaSpec) -> Iterator[str]:
    found = _pod(spec).get("restartPolicy", "Never")
    if found != "Never":
        yield f".restartPolicy: expected Never, since a restarted container has lost its work, got {found}"


def _host_names(_role: Role, spec: ReplicaSpec) -> Iterator[str]:
    for key in ("hostname", "subdomain", "setHostnameAsFQDN"):
        if found := _pod(spec).get(key):
            yield f".{key}: expected nothing, since the operator gives pods their names, got {found}"


def _environment(_role: Role, spec: ReplicaSpec) -> Iterator[str]:
    for entry in spec.main.get("env") or ():
        name = str(entry.get("name"))
        if name.startswith(_ENV_PREFIX):
            yield f".containers[0].env: expected no {_ENV_PREFIX}*, which the operator sets, got {name}"


def _init_containers(_role: Role, spec: ReplicaSpec) -> Iterator[str]:
    for container in _pod(spec).get("initContainers") or ():
        if container.get("name") in _OUR_INIT_CONTAINERS:
            yield f".initContainers: expected a name that the operator does not use, got {container['name']}"


def _ports(role: Role, spec: ReplicaSpec) -> Iterator[str]:
    if role is not Role.WORKER:
        return
    ours = (names.DGL_PORT_NAME, names.DGL_PORT)
    for index, container in enumerate(spec.containers):
        for port in container.get("ports") or ():
            if port.get("protocol", "TCP") != "TCP" or (index == 0 and _port(port) == ours):
                continue
            if port.get("containerPort") == names.DGL_PORT or port.get("name") == names.DGL_PORT_NAME:
                yield (
                    f".containers[{index}].ports: expected {names.DGL_PORT} ({names.DGL_PORT_NAME}) free for "
                    f"DGL's server, got {port.get('containerPort')} ({port.get('name', 'unnamed')})"
                )


def _port(port: Mapping[str, Any]) -> tuple[str, int | None]:
    return (port.get("name", names.DGL_PORT_NAME), port.get("containerPort"))


def _volumes(spec: ReplicaSpec, mode: Mode) -> Iterator[str]:
    """Ours must not meet the user's; without workers a pod has but /dev/shm of us."""
    mounted = {mount_path(mount): mount.get("name") for mount in spec.main.get("volumeMounts") or ()}
    for path in _OUR_MOUNTS:
        if path in mounted and mode.has_workers:
            yield f".containers[0].volumeMounts: expected {path} free, got {mounted[path]}"
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
        for key, resources in (holder.get("resources") or {}).items():
            for name, amount in resources.items() if isinstance(resources, Mapping) else ():
                try:
                    quantity.parse(amount)
                except quantity.QuantityError as error:
                    yield f"{where}.resources.{key}[{name}]: {error}"


_CHECKS: Sequence[Callable[[Role, ReplicaSpec], Iterator[str]]] = (
    _restart_policy,
    _host_names,
    _environment,
    _init_containers,
    _ports,
    _quantities,
)
