"""A DGLJob read from YAML for one machine: what runs in which pod, with which variables and mounts.

The operator's models are not in a job image, so the rules here are those that a run on one machine needs;
`kubectl apply` checks the rest.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from dglrun.commands.arguments import UsageError
from dglrun.contract import names
from dglrun.contract.names import Mode, Role

SPECS = "spec.dglReplicaSpecs"
NAME = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][-A-Za-z0-9_.]*)\)")
_OF_THE_LAUNCHER_ALONE = (names.DATASET_DIR, names.OUTPUT_DIR)
"""As the operator: partitions are delivered into the one, results are collected in the other."""
_DATA_DIR = "/data"
"""Where the operator mounts spec.datasetVolume unless told otherwise."""
_LONGEST = 200

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Mount:
    """What a pod has at a path.

    Attributes:
        path: In the pod.
        source: A file or folder of this machine; None: an empty folder of the pod's own.
        volume: The volume's name, by which several mounts of a pod share an empty folder.
        is_read_only: Whether the pod may only read it.
        is_memory: Whether the empty folder is in memory.
        is_of_image: Whether it stands for what an image has.
    """

    path: str
    source: Path | None
    volume: str = ""
    is_read_only: bool = False
    is_memory: bool = False
    is_of_image: bool = False


@dataclass(frozen=True)
class Template:
    """A pod's main container.

    Attributes:
        container: Its name.
        command: Command and arguments, `$(NAME)` as written; empty: the pod idles.
        env: Names and values in their order, `$(NAME)` as written.
        cwd: Its working directory.
        mounts: The user's mounts.
        gpus: Its GPU limit.
        image: As written; it is not run, but a kept partition is known by it.
    """

    container: str
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    cwd: str
    mounts: tuple[Mount, ...]
    gpus: int
    image: str


@dataclass(frozen=True)
class LocalJob:
    """One job.

    Attributes:
        workers: How many; 0 in mode Skip.
        slots: MPI slots on each worker's line of the hostfile.
        templates: By role; the partitioner's only where the mode has one.
        notes: What of the job has no effect here, one line each.
    """

    name: str
    namespace: str
    mode: Mode
    workers: int
    slots: int
    templates: Mapping[Role, Template]
    notes: tuple[str, ...]

    @property
    def pods(self) -> int:
        """How many pods run at the same time at most."""
        return 1 + max(self.workers, int(self.mode.has_partitioner))


def read(path: Path, volumes: Mapping[str, Path]) -> LocalJob:
    """Read a job.

    Args:
        path: A YAML file with one DGLJob.
        volumes: What volumes of the job are here, by name; other than emptyDir and hostPath they need it.

    Raises:
        UsageError: the file holds no job that can run here; where, what was expected, what was found.
        OSError: it cannot be read.
    """
    try:
        documents = [each for each in yaml.safe_load_all(path.read_text()) if each is not None]
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path}: expected YAML, got an error: {' '.join(str(error).split())[:_LONGEST]}"
        ) from error
    if len(documents) != 1:
        raise UsageError(f"{path}: expected one document, a DGLJob, got {len(documents)}")
    try:
        return _job(documents[0], volumes)
    except _Wrong as wrong:
        raise UsageError(f"{path}: {wrong}") from None


def expand(template: Template, ours: Mapping[str, str]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The command and the environment with `$(NAME)` filled in as the kubelet does.

    Args:
        template: The container.
        ours: Variables of the operator's, which come after the user's.
    """
    found: dict[str, str] = {}
    for name, value in (*template.env, *ours.items()):
        found[name] = _expanded(value, found)
    return tuple(_expanded(word, found) for word in template.command), found


class _Wrong(ValueError):
    """A field is not what it must be."""

    def __init__(self, where: str, expected: str, got: object = None) -> None:
        shown = "nothing" if got is None else repr(got)
        super().__init__(f"{where}: expected {expected}, got {shown[:_LONGEST]}")


def _expanded(text: str, known: Mapping[str, str]) -> str:
    def value(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else known.get(found[1], found[0])

    return _REFERENCE.sub(value, text)


def _job(raw: Any, volumes: Mapping[str, Path]) -> LocalJob:
    if not isinstance(raw, dict) or raw.get("kind") != names.KIND:
        got = raw.get("kind") if isinstance(raw, dict) else raw
        raise _Wrong("kind", names.KIND, got)
    spec, metadata = _mapping(raw, "spec"), _mapping(raw, "metadata")
    mode = _mode(spec.get("partitionMode", Mode.DGL_API.value))
    roles = _roles(spec, mode)
    shared = tuple(_dataset_volume(spec, volumes))
    users = {role: _template(role, each, volumes) for role, each in roles.items()}
    users = {role: replace(each, mounts=(*each.mounts, *shared)) for role, each in users.items()}
    templates = {Role.LAUNCHER: users[Role.LAUNCHER]}
    if mode.has_workers:
        templates[Role.WORKER] = users[Role.WORKER]
    if mode.has_partitioner:
        templates[Role.PARTITIONER] = _partitioner(users)
    return LocalJob(
        name=_name(metadata),
        namespace=str(metadata.get("namespace") or "default"),
        mode=mode,
        workers=_count(roles[Role.WORKER], f"{SPECS}.Worker.replicas", "replicas") if mode.has_workers else 0,
        slots=_count(spec, "spec.slotsPerWorker", "slotsPerWorker"),
        templates=templates,
        notes=tuple(_notes(roles)),
    )


def _name(metadata: Json) -> str:
    name = metadata.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name) or len(name) > names.MAX_JOB_NAME:
        expected = f"at most {names.MAX_JOB_NAME} lower-case letters, digits and '-', a letter first"
        raise _Wrong("metadata.name", expected, name)
    return name


def _mode(found: object) -> Mode:
    for mode in Mode:
        if mode.value == found:
            return mode
    raise _Wrong("spec.partitionMode", f"one of {', '.join(mode.value for mode in Mode)}", found)


def _roles(spec: Json, mode: Mode) -> dict[Role, Json]:
    given = _mapping(spec, "dglReplicaSpecs", "spec.")
    known = {role.value: role for role in Role}
    for name in given:
        if name not in known:
            raise _Wrong(SPECS, f"only the roles {', '.join(known)}", name)
    needed = (Role.LAUNCHER, Role.WORKER) if mode.has_workers else (Role.LAUNCHER,)
    allowed = (*needed, Role.PARTITIONER) if mode.has_partitioner else needed
    for role in Role:
        if role in needed and role.value not in given:
            raise _Wrong(SPECS, f"a {role.value} in mode {mode.value}", ", ".join(given) or None)
        if role not in allowed and role.value in given:
            raise _Wrong(SPECS, f"no {role.value} in mode {mode.value}", role.value)
    found = {role: _mapping(given, role.value, f"{SPECS}.") for role in allowed if role.value in given}
    for role, each in found.items():
        if role is not Role.WORKER and each.get("replicas", 1) != 1:
            raise _Wrong(f"{SPECS}.{role.value}.replicas", "1", each["replicas"])
    return found


def _template(role: Role, spec: Json, volumes: Mapping[str, Path]) -> Template:
    where = f"{SPECS}.{role.value}.template.spec"
    pod = _mapping(_mapping(spec, "template", f"{SPECS}.{role.value}."), "spec", where.removesuffix("spec"))
    containers = _list(pod, "containers", where)
    if not containers:
        raise _Wrong(f"{where}.containers", "at least one container")
    if _list(pod, "initContainers", where):
        raise _Wrong(f"{where}.initContainers", "none, only main containers run here", "some")
    main = containers[0]
    place = f"{where}.containers[0]"
    if main.get("envFrom"):
        raise _Wrong(f"{place}.envFrom", "none: there are no ConfigMaps and Secrets here", main["envFrom"])
    command = tuple(_words(main, "command", place))
    if not command and (role is Role.LAUNCHER or main.get("args")):
        raise _Wrong(f"{place}.command", "a command: no image is run, whose entry point it would be")
    return Template(
        container=str(main.get("name") or "main"),
        command=(*command, *_words(main, "args", place)),
        env=tuple(_variables(main, place)),
        cwd=str(main.get("workingDir") or names.WORKSPACE),
        mounts=tuple(_mounts(pod, main, where, volumes)),
        gpus=_gpus(main),
        image=str(main.get("image") or ""),
    )


def _partitioner(users: Mapping[Role, Template]) -> Template:
    """The user's own, else made of worker and launcher as the operator makes it."""
    launcher, worker = users[Role.LAUNCHER], users[Role.WORKER]
    own = users.get(Role.PARTITIONER)
    if own is not None:
        return own if own.command else replace(own, command=launcher.command)
    env = dict(launcher.env)
    env |= {name: value for name, value in worker.env if name not in env}
    mounts = {mount.path: mount for mount in worker.mounts}
    mounts |= {mount.path: mount for mount in launcher.mounts if mount.path not in _OF_THE_LAUNCHER_ALONE}
    cwd = worker.cwd if worker.cwd != names.WORKSPACE else launcher.cwd
    return replace(
        worker, command=launcher.command, env=tuple(env.items()), cwd=cwd, mounts=tuple(mounts.values())
    )


def _words(main: Json, key: str, where: str) -> Iterator[str]:
    for word in _sequence(main, key, where):
        if isinstance(word, dict | list):
            raise _Wrong(f"{where}.{key}", "a list of words", word)
        yield str(word)


def _variables(main: Json, where: str) -> Iterator[tuple[str, str]]:
    for entry in _list(main, "env", where):
        if entry.get("valueFrom"):
            expected = "a value: there are no ConfigMaps, Secrets and pod fields here"
            raise _Wrong(f"{where}.env[{entry.get('name')}]", expected, "valueFrom")
        if str(entry.get("name", "")).startswith("DGL_OPERATOR_"):
            raise _Wrong(f"{where}.env", "no DGL_OPERATOR_*, which the operator sets", entry["name"])
        yield str(entry.get("name")), str(entry.get("value") or "")


def _dataset_volume(spec: Json, volumes: Mapping[str, Path]) -> Iterator[Mount]:
    """`spec.datasetVolume`, which every pod has at the same path."""
    where = "spec.datasetVolume"
    if spec.get("datasetVolume") is None:
        return
    mount = _mapping(spec, "datasetVolume", "spec.")
    volume = {key: value for key, value in mount.items() if key not in ("mountPath", "readOnly")}
    path = str(PurePosixPath(str(mount.get("mountPath") or _DATA_DIR)))
    if not path.startswith("/") or path in (names.CONFIG_DIR, names.KUBE_DIR):
        raise _Wrong(f"{where}.mountPath", "a free absolute path", path)
    yield _mount({**volume, "name": names.VOLUME_JOB_DATA}, mount, path, where, volumes)


def _mounts(pod: Json, main: Json, where: str, volumes: Mapping[str, Path]) -> Iterator[Mount]:
    known = {str(each.get("name")): each for each in _list(pod, "volumes", where)}
    for mount in _list(main, "volumeMounts", where):
        name, path = str(mount.get("name")), str(PurePosixPath(str(mount.get("mountPath") or "")))
        if name not in known:
            raise _Wrong(f"{where}.containers[0].volumeMounts", "the name of a volume", name)
        if not path.startswith("/") or path in (names.CONFIG_DIR, names.KUBE_DIR):
            raise _Wrong(
                f"{where}.containers[0].volumeMounts[{name}].mountPath", "a free absolute path", path
            )
        if mount.get("subPathExpr"):
            raise _Wrong(f"{where}.containers[0].volumeMounts[{name}]", "subPath", "subPathExpr")
        yield _mount(known[name], mount, path, f"{where}.volumes[{name}]", volumes)


def _mount(volume: Json, mount: Json, path: str, where: str, given: Mapping[str, Path]) -> Mount:
    name, sub = str(volume["name"]), str(mount.get("subPath") or "")
    is_read_only = bool(mount.get("readOnly"))
    if name in given:
        return Mount(path, _below(given[name], sub, where), name, is_read_only)
    if "emptyDir" in volume:
        is_memory = (volume["emptyDir"] or {}).get("medium") == "Memory"
        return Mount(path, None, f"{name}/{sub}".rstrip("/"), is_read_only, is_memory)
    if isinstance(volume.get("hostPath"), dict):
        host = volume["hostPath"]
        folder = Path(str(host.get("path") or ""))
        if host.get("type") == "DirectoryOrCreate":
            folder.mkdir(parents=True, exist_ok=True)
        return Mount(path, _below(folder, sub, where), name, is_read_only)
    kind = next((key for key in volume if key != "name"), None)
    raise _Wrong(where, f"emptyDir, hostPath or --volume {name}=DIR", kind)


def _below(folder: Path, sub: str, where: str) -> Path:
    found = (folder / sub).absolute()
    if not found.exists():
        raise _Wrong(where, "a folder or file of this machine", str(found))
    return found


def _gpus(main: Json) -> int:
    limits = (main.get("resources") or {}).get("limits") or {}
    return sum(
        int(amount)
        for name, amount in limits.items()
        if "/" in name and (name.endswith("/gpu") or "/mig-" in name) and str(amount).isdigit()
    )


def _notes(roles: Mapping[Role, Json]) -> Iterator[str]:
    pods = {role.value: each["template"]["spec"] for role, each in roles.items()}
    images = {str(pod["containers"][0].get("image")) for pod in pods.values()}
    yield f"the image {', '.join(sorted(images))} is not used: this machine's programs run"
    if any((pod["containers"][0].get("resources") or {}).get("limits") for pod in pods.values()):
        yield "limits of CPU and memory are not enforced"
    for role, pod in pods.items():
        if others := [str(each.get("name")) for each in pod["containers"][1:]]:
            yield f"{role}: sidecars do not run: {', '.join(others)}"


def _count(found: Json, where: str, key: str) -> int:
    value = found.get(key, 1)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _Wrong(where, "a whole number of at least 1", value)
    return value


def _mapping(found: Json, key: str, where: str = "") -> Json:
    value = found.get(key)
    if not isinstance(value, dict):
        raise _Wrong(f"{where}{key}", "a mapping", value)
    return value


def _sequence(found: Json, key: str, where: str) -> Sequence[Any]:
    value = found.get(key)
    if value is not None and not isinstance(value, list):
        raise _Wrong(f"{where}.{key}", "a list", value)
    return value or []


def _list(found: Json, key: str, where: str) -> list[Json]:
    items = list(_sequence(found, key, where))
    for item in items:
        if not isinstance(item, dict):
            raise _Wrong(f"{where}.{key}", "a list of mappings", item)
    return items
