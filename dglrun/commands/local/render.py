"""From a job to its pods on this machine. Pure."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dglrun.commands.local import isolated, plain, pod_environment
from dglrun.commands.local.job import LocalJob, Mount, expand
from dglrun.commands.local.places import Places
from dglrun.commands.local.pod import Pod
from dglrun.contract import env, names
from dglrun.contract.names import Role


@dataclass(frozen=True)
class Machine:
    """What of this machine shows in the pods.

    Attributes:
        folder: The run's folder.
        places: Where pods find the operator's files.
        is_isolated: Whether pods are in namespaces.
        environment: This machine's variables.
        library: Folder that holds the package dglrun.
        python: The interpreter's installation.
        cpus: How many there are.
        api_server: Its address and port; None: there is none.
        mounts: The user's own, in every pod.
    """

    folder: Path
    places: Places
    is_isolated: bool
    environment: Mapping[str, str]
    library: Path
    python: Path
    cpus: int
    api_server: tuple[str, int] | None
    mounts: tuple[Mount, ...]


def addresses(job: LocalJob, is_isolated: bool) -> dict[str, str]:
    """The IP of each pod."""
    pods = [names.launcher(job.name), names.partitioner(job.name), *names.workers(job.name, job.workers)]
    return {pod: isolated.address(i) if is_isolated else plain.ADDRESS for i, pod in enumerate(pods)}


def pod(job: LocalJob, role: Role, index: int, machine: Machine) -> Pod:
    """One pod of a job."""
    template, name = job.templates[role], _name(job, role, index)
    folder = machine.folder / "pods" / name
    image = pod_environment.of_image(
        machine.environment,
        (machine.places.programs, str(machine.python / "bin")),
        machine.library,
        machine.cpus / (job.workers if role is Role.WORKER else 1),
    )
    ours = {**pod_environment.of_operator(job, role, index), **_of_place(job, machine, folder)}
    command, users = expand(template, ours)
    return Pod(
        name=name,
        role=role,
        folder=folder,
        ip=addresses(job, machine.is_isolated)[name],
        container=template.container,
        command=command if machine.is_isolated else plain.words(command),
        env={**image, **users},
        cwd=template.cwd,
        mounts=_mounts(role, template.mounts, machine),
        image=template.image,
    )


def hosts(found: Mapping[str, str]) -> str:
    """Text of /etc/hosts: the pods by name."""
    return "".join(f"{ip} {name}\n" for name, ip in {"localhost": "127.0.0.1", **found}.items())


def _name(job: LocalJob, role: Role, index: int) -> str:
    of_one = {Role.LAUNCHER: names.launcher, Role.PARTITIONER: names.partitioner}
    return of_one[role](job.name) if role in of_one else names.worker(job.name, index)


def _of_place(job: LocalJob, machine: Machine, folder: Path) -> dict[str, str]:
    """Variables that say where things are."""
    places = machine.places
    found = {} if machine.is_isolated else {"TMPDIR": str(folder / "volumes" / "tmp")}
    if machine.api_server is not None:
        found[env.SERVICE_ACCOUNT] = places.account
        found["KUBERNETES_SERVICE_HOST"] = machine.api_server[0]
        found["KUBERNETES_SERVICE_PORT"] = str(machine.api_server[1])
    if job.mode.has_workers and not machine.is_isolated:
        found[env.KUBEXEC_PATH] = f"{places.config}/{names.KUBEXEC}"
        found[env.HOSTFILE_PATH] = f"{places.config}/{names.HOSTFILE}"
        found[env.PARTFILE_PATH] = f"{places.config}/{names.PARTFILE}"
        found[env.KUBECTL_PATH] = f"{places.kube}/kubectl"
    return found


def _mounts(role: Role, users: Sequence[Mount], machine: Machine) -> tuple[Mount, ...]:
    """The pod's own folders, ours, those of the command line, the user's: of one path the last counts."""
    found = [Mount(names.WORKSPACE, None, "workspace"), Mount("/tmp", None, "tmp")]  # noqa: S108 - the pod's
    found.append(Mount(names.SHM_DIR, None, "shm", is_memory=True))
    if machine.is_isolated:
        found += _ours(machine)
    if role is Role.LAUNCHER:
        found.append(Mount(names.OUTPUT_DIR, machine.folder / "output"))
    return (*found, *machine.mounts, *(replace(mount, volume=f"volume-{mount.volume}") for mount in users))


def _ours(machine: Machine) -> list[Mount]:
    places, folder = machine.places, machine.folder
    targets = {"config": places.config, "kube": places.kube}
    targets |= {"account": places.account, "programs": places.programs}
    found = [
        Mount(target, folder / name, is_read_only=name != "kube")
        for name, target in targets.items()
        if (folder / name).exists()
    ]
    # The pod has a /tmp of its own, which must not hide what it runs.
    for place in {machine.library, machine.python}:
        if place.is_relative_to("/tmp"):  # noqa: S108 - as above
            found.append(Mount(str(place), place, is_read_only=True))
    return found


def machine_cpus() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0))
