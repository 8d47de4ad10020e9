"""Pods without namespaces: folders of this machine and its network, for one worker."""

import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from dglrun.agent import prctl, process_group
from dglrun.commands.arguments import UsageError
from dglrun.commands.local.job import LocalJob, Mount
from dglrun.commands.local.pod import Pod
from dglrun.contract import names

ADDRESS = "127.0.0.1"
_ENDING_SECONDS = 10.0


def words(command: Sequence[str]) -> tuple[str, ...]:
    """A command that finds its files below the pod's folder, where no path can be mounted.

    What lies in the workspace is named from there, and dglrun is told where the workspace is.
    """
    found = [_relative(word) for word in command]
    if not found or PurePosixPath(found[0]).name != "dglrun":
        return tuple(found)
    end = found.index("--") if "--" in found else len(found)
    places = ("--workspace", ".", "--dataset-dir", "dataset")
    return (found[0], *places, *found[1:end], *found[end:])


def check(job: LocalJob) -> None:
    """Refuse what needs namespaces.

    Raises:
        UsageError: there are several workers, or a mount lies outside the workspace.
    """
    if job.workers > 1:
        raise UsageError(
            f"spec.dglReplicaSpecs.Worker.replicas: expected 1 without namespaces, got {job.workers}:"
            " run as root, where namespaces are allowed, as each worker needs a network of its own"
        )


def _relative(word: str) -> str:
    flag, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    if value == names.WORKSPACE or value.startswith(f"{names.WORKSPACE}/"):
        value = f".{value.removeprefix(names.WORKSPACE)}"
    return f"{flag}{equals}{value}"


class FolderPods:
    """The pods of a run; the orphans among their processes come to this one."""

    def __init__(self) -> None:
        prctl.adopt_orphans()
        self._running: set[str] = set()

    def start(self, pods: Sequence[Pod]) -> None:
        """Make the folders of pods.

        Raises:
            UsageError: a mount lies outside the workspace.
        """
        for pod in pods:
            pod.make_folders()
            for mount in sorted(pod.mounts, key=lambda mount: mount.path.count("/")):
                source = pod.source(mount)
                if source is not None:
                    _place(pod, mount, source)
            self._running.add(pod.name)

    def command(self, pod: Pod, argv: Sequence[str]) -> tuple[list[str], dict[str, str], str | None]:
        """How to run a command in a pod: argv, environment and working directory here.

        Raises:
            LookupError: the pod does not run.
        """
        if pod.name not in self._running:
            raise LookupError(pod.name)
        return list(argv), dict(pod.env), str(pod.volume("workspace"))

    def stop(self, pod: Pod) -> None:
        """Take no more commands; `close` ends the processes."""
        self._running.discard(pod.name)

    def close(self) -> None:
        """End all processes of all pods."""
        deadline = time.monotonic() + _ENDING_SECONDS
        number = signal.SIGTERM
        while process_group.signal_all(number):
            process_group.reap()
            number = signal.SIGKILL if time.monotonic() > deadline - _ENDING_SECONDS / 2 else signal.SIGTERM
            if time.monotonic() > deadline:
                return
            time.sleep(0.05)


def _place(pod: Pod, mount: Mount, source: Path) -> None:
    path = PurePosixPath(mount.path)
    if str(path) in (names.WORKSPACE, names.SHM_DIR, "/tmp"):  # noqa: S108 - the pod's
        return
    if not path.is_relative_to(names.WORKSPACE):
        raise UsageError(f"{path}: expected a path in {names.WORKSPACE} without namespaces: run as root")
    target = pod.volume("workspace") / path.relative_to(names.WORKSPACE)
    target.parent.mkdir(parents=True, exist_ok=True)
    if not mount.is_of_image:
        target.symlink_to(source)
    elif source.is_dir():  # copied, as scripts look for files beside them by their real path
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)
