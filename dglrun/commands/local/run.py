"""One run of a job on this machine: pods and their commands in the operator's order."""

import os
import secrets
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from dglrun.agent import ending_signals, prctl
from dglrun.commands.local import config_files, exec_server, isolated, places, plain, render
from dglrun.commands.local.api_server import LocalApiServer
from dglrun.commands.local.cluster import Cluster
from dglrun.commands.local.exec_server import ExecRefused, ExecServer
from dglrun.commands.local.job import LocalJob, Mount
from dglrun.commands.local.pod import Pod
from dglrun.commands.local.render import Machine
from dglrun.commands.local.workdir import Workdir
from dglrun.contract import exitcodes, names
from dglrun.contract.names import Role

GRACE_SECONDS = 20.0
"""What a main container has to end itself after SIGTERM, before its pod is killed."""


class Pods(Protocol):
    """Pods of this machine: in namespaces (isolated.Sandboxes) or folders (plain.FolderPods)."""

    def start(self, pods: Sequence[Pod]) -> None:
        """Make pods; their commands do not run yet."""

    def command(self, pod: Pod, argv: Sequence[str]) -> tuple[list[str], dict[str, str], str | None]:
        """How to run a command in a pod: argv, environment and working directory here."""

    def stop(self, pod: Pod) -> None:
        """Kill a pod."""

    def close(self) -> None:
        """Kill whatever is left."""


def say(text: str) -> None:
    """A line of `dglrun local` between those of the pods."""
    print(f"dglrun local: {text}", flush=True)


@dataclass
class LocalRun:
    """A run.

    Attributes:
        job: What to run.
        workdir: Where its files are.
        machine: What shows in the pods.
        pods: Makes them.
    """

    job: LocalJob
    workdir: Workdir
    machine: Machine
    pods: Pods
    cluster: Cluster = field(default_factory=lambda: Cluster(say))
    _known: dict[str, Pod] = field(default_factory=dict)
    _running: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    def perform(self) -> int:
        """Run the job; returns the exit code of the main container that decides.

        However it ends, no process of it is left.
        """
        with ExitStack() as stack:
            stack.callback(self._stop)
            self._serve(stack)
            mode = self.job.mode
            if mode.has_partitioner and (code := self._partition()) != exitcodes.OK:
                return code
            if mode.has_workers:
                self._start_workers()
            return self._launch()

    def _serve(self, stack: ExitStack) -> None:
        """Write what pods find, and answer what they ask."""
        job, machine, workdir = self.job, self.machine, self.workdir
        workdir.write("programs", {"dglrun": _shim()})
        if not job.mode.has_workers:
            return
        addresses = render.addresses(job, machine.is_isolated)
        kubectl = f"{machine.places.kube}/kubectl"
        workdir.write("config", config_files.files(job, addresses, kubectl))
        kube = workdir.write("kube", exec_server.programs(sys.executable, machine.places.kube))
        stack.callback(ExecServer(kube, self._command).close)
        token = secrets.token_hex(16)
        workdir.write("account", {"token": token, "namespace": job.namespace}, 0o400)
        address = (isolated.API_SERVER if machine.is_isolated else plain.ADDRESS, 0)
        server = LocalApiServer(address, token, self.cluster.get_pod, self.cluster.take_report)
        stack.callback(server.close)
        self.machine = replace(machine, api_server=(address[0], server.port))

    def _command(
        self, name: str, container: str, argv: list[str]
    ) -> tuple[list[str], dict[str, str], str | None]:
        """How `kubectl exec` runs a command; in kubectl's words why it cannot."""
        pod = self._known.get(name)
        init = names.WATCHER_PARTITIONER if pod and pod.role is Role.LAUNCHER else ""
        if pod is not None and container not in ("", pod.container, init):
            raise ExecRefused(
                f"Error from server (BadRequest): container {container} is not valid for pod {name}"
            )
        try:
            if pod is not None:
                return self.pods.command(pod, argv)
        except LookupError:
            pass
        raise ExecRefused(f'Error from server (NotFound): pods "{name}" not found')

    # --- the operator's order

    def _partition(self) -> int:
        """The launcher waits in its init container, and takes what the partitioner delivers."""
        launcher, partitioner = self._pod(Role.LAUNCHER), self._pod(Role.PARTITIONER)
        self._start((launcher, partitioner))
        self.cluster.started(launcher, names.WATCHER_PARTITIONER)
        self.cluster.started(partitioner)
        say(f"{partitioner.name} runs")
        code = self._wait(partitioner)
        self.cluster.ended(partitioner, code)
        self._remove(partitioner)
        if code != exitcodes.OK:
            say(f"failed: {partitioner.name} has ended with {code}")
        return code

    def _start_workers(self) -> None:
        workers = [self._pod(Role.WORKER, index) for index in range(self.job.workers)]
        self._start(workers)
        for worker in workers:
            self.cluster.started(worker)
            if worker.command:
                self._follow(worker)
        say(f"{len(workers)} workers run" if len(workers) > 1 else f"{workers[0].name} runs")

    def _launch(self) -> int:
        launcher = self._known.get(names.launcher(self.job.name))
        if launcher is None:
            launcher = self._pod(Role.LAUNCHER)
            self._start((launcher,))
        self.cluster.started(launcher)
        say(f"{launcher.name} runs")
        code = self._wait(launcher)
        say(f"{'completed' if code == 0 else 'failed'}: {launcher.name} has ended with {code}")
        return code

    # --- pods

    def _pod(self, role: Role, index: int = 0) -> Pod:
        return render.pod(self.job, role, index, self.machine)

    def _start(self, pods: Sequence[Pod]) -> None:
        self._known |= {pod.name: pod for pod in pods}
        self.pods.start(pods)

    def _wait(self, pod: Pod) -> int:
        code = self._begin(pod).wait()
        return code if code >= 0 else 128 - code

    def _begin(self, pod: Pod) -> "subprocess.Popen[bytes]":
        argv, env, cwd = self.pods.command(pod, pod.command)
        with ending_signals.put_off():  # until the process is known here: it would go on without this one
            # A session of its own: Ctrl-C reaches this process alone, which ends the pods in order.
            process = subprocess.Popen(
                argv,
                env=env,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=_end_with(os.getpid()),  # noqa: PLW1509 - it takes no lock
            )
            self._running.append(process)
        return process

    def _follow(self, worker: Pod) -> None:
        """Run a worker's own command; its end is the pod's."""
        process = self._begin(worker)

        def follow() -> None:
            code = process.wait()
            self.cluster.ended(worker, code if code >= 0 else 128 - code)
            self.pods.stop(worker)

        threading.Thread(target=follow, name=worker.name, daemon=True).start()

    def _remove(self, pod: Pod) -> None:
        self.pods.stop(pod)
        self._known.pop(pod.name)

    def _stop(self) -> None:
        """End main containers as the kubelet does, the launcher first, then kill what is left."""
        for process in reversed(self._running):
            _end_group(process)
        for pod in list(self._known.values()):
            self.pods.stop(pod)
        for process in self._running:
            process.wait()
        self.pods.close()


def prepare(
    job: LocalJob,
    workdir: Workdir,
    mounts: tuple[Mount, ...],
    is_isolated: bool,
) -> LocalRun:
    """Make what a run needs; as root this process moves into namespaces of its own.

    Raises:
        UsageError: the job needs namespaces, which this user cannot make.
    """
    is_isolated = is_isolated and _can_isolate(job)
    if not is_isolated:
        plain.check(job)
    machine = Machine(
        folder=workdir.folder,
        places=places.IN_NAMESPACES if is_isolated else places.below(workdir.folder),
        is_isolated=is_isolated,
        environment=dict(os.environ),
        library=Path(render.__file__).resolve().parents[3],
        python=Path(sys.prefix),
        cpus=render.machine_cpus(),
        api_server=None,
        mounts=mounts,
    )
    if not is_isolated:
        return LocalRun(job, workdir, machine, plain.FolderPods())
    hosts = render.hosts(render.addresses(job, is_isolated)) if job.mode.has_workers else None
    return LocalRun(job, workdir, machine, isolated.Sandboxes(job.mode.has_workers, hosts))


def _can_isolate(job: LocalJob) -> bool:
    if os.geteuid() != 0:
        say("note: not root: pods are folders of this machine without namespaces")
        return False
    isolated.require()
    if isolated.enter(job.mode.has_workers):
        return True
    say("note: this machine allows no namespaces: pods are folders without them")
    return False


def _shim() -> str:
    """The `dglrun` of the pods is the one that runs here."""
    return f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m dglrun "$@"\n'


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """Ask a command and those of its session to end, and wait for them."""
    deadline = time.monotonic() + GRACE_SECONDS
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        while time.monotonic() < deadline:
            process.poll()  # its zombie would still be in the group
            os.killpg(process.pid, 0)
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)


def _end_with(parent: int) -> Callable[[], None]:
    """What a child does before it begins: takes no lock that another thread may hold."""

    def end_with_parent() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # or the handler that puts it off would stay
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        prctl.end_with_parent(signal.SIGTERM)
        if os.getppid() != parent:  # it ended before the kernel was told
            os._exit(exitcodes.SIGTERM)

    return end_with_parent
