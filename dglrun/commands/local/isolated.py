"""Pods in namespaces of their own: network, mounts, processes, IPC and host name. Needs root.

This process itself moves into a network and a mount namespace first, where the bridge of the pods is. So
nothing that a run makes is seen outside, and the kernel removes all of it when the run has ended, however.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from dglrun.commands.local import pod_init
from dglrun.commands.local.job import Mount
from dglrun.commands.local.pod import Pod
from dglrun.errors import BackendFailedError, BackendMissingError

API_SERVER = "10.201.0.1"
BRIDGE = "dgl0"
_NEWNS, _NEWNET = 0x20000, 0x40000000
_PER_NET = 250


def address(number: int) -> str:
    """The IP of the pod with this number, counted from 0."""
    return f"10.201.{1 + number // _PER_NET}.{1 + number % _PER_NET}"


def hardware_address(ip: str) -> str:
    """The Ethernet address of whoever has this IP; what others have noted of it then stays true.

    Of a bridge without one of its own it is that of a pod, and another one's as soon as that pod is gone; a
    pod that replaces another has its IP. Who has noted the former address sends to nobody for up to a minute.
    """
    return ":".join(f"{number:02x}" for number in (2, 0, *map(int, ip.split("."))))  # 2: administered locally


def require() -> None:
    """Refuse a machine that lacks a program.

    Raises:
        BackendMissingError: says what to install.
    """
    for program, package in (("ip", "iproute2"), ("nsenter", "util-linux")):
        if not any(Path(folder, program).exists() for folder in os.get_exec_path()):
            raise BackendMissingError(
                f"pods in namespaces need {program}, not found here; install (Debian) {package}"
            )


def enter(has_network: bool) -> bool:
    """Move this process into namespaces of its own; whether the kernel lets it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEWNS | (_NEWNET if has_network else 0)) != 0:
        return False
    flags = ctypes.c_ulong(16384 | 1 << 18)  # MS_REC | MS_PRIVATE
    if libc.mount(b"none", b"/", None, flags, None) != 0:
        raise OSError(ctypes.get_errno(), "the mounts cannot be made private")
    return True


class Sandboxes:
    """The pods of a run.

    Args:
        has_network: Whether pods have a network of their own; otherwise they share this machine's.
        hosts: Text of /etc/hosts in the pods; None: this machine's.
    """

    def __init__(self, has_network: bool, hosts: str | None) -> None:
        self._has_network, self._hosts = has_network, hosts
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._pids: dict[str, int] = {}
        self._links = 0
        if has_network:
            _ip(
                ("link", "set", "lo", "up"),
                ("link", "add", "name", BRIDGE, "address", hardware_address(API_SERVER), "type", "bridge"),
                ("addr", "add", f"{API_SERVER}/16", "dev", BRIDGE),
                ("link", "set", BRIDGE, "up"),
            )

    def start(self, pods: Sequence[Pod]) -> None:
        """Make sandboxes, all at the same time; their commands do not run yet.

        Raises:
            BackendFailedError: one cannot be made; says why.
        """
        for pod in pods:
            pod.make_folders()
            self._processes[pod.name] = self._begin(pod)
        for pod in pods:
            self._pids[pod.name] = _answer(pod, self._processes[pod.name])
        if self._has_network:
            self._connect(pods)

    def command(self, pod: Pod, argv: Sequence[str]) -> tuple[list[str], dict[str, str], str | None]:
        """How to run a command in a pod: argv, environment and working directory here.

        Raises:
            LookupError: the pod does not run.
        """
        pid = str(self._pids[pod.name])
        network = ["--net"] if self._has_network else []
        enter = ["nsenter", "--target", pid, "--mount", "--uts", "--ipc", *network, "--pid", "--root"]
        return [*enter, "--", "env", f"--chdir={pod.cwd}", *argv], dict(pod.env), None

    def stop(self, pod: Pod) -> None:
        """Kill all processes of a pod; its namespaces go with the last one."""
        if (pid := self._pids.pop(pod.name, None)) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if (process := self._processes.pop(pod.name, None)) is not None:
            if pid is None:
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()

    def close(self) -> None:
        """Nothing is left when all pods are stopped: the kernel removes the namespaces of this process."""

    def _begin(self, pod: Pod) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", pod_init.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C reaches `dglrun local` alone
        )
        wanted = {
            "parent": os.getpid(),
            "has_network": self._has_network,
            "hostname": pod.name,
            "scratch": str(pod.folder / "root"),
            "files": {} if self._hosts is None else {"/etc/hosts": self._hosts},
            "mounts": [_as_json(pod, mount) for mount in _in_order(pod.mounts)],
        }
        stream: IO[str] | None = process.stdin
        if stream is not None:
            with suppress(BrokenPipeError):
                stream.write(json.dumps(wanted) + "\n")
                stream.flush()
        return process

    def _connect(self, pods: Sequence[Pod]) -> None:
        outside: list[tuple[str, ...]] = []
        for pod in pods:
            self._links += 1
            link, pid = f"v{self._links}", str(self._pids[pod.name])
            peer = ("name", "eth0", "address", hardware_address(pod.ip), "netns", pid)
            outside.append(("link", "add", link, "type", "veth", "peer", *peer))
            outside += [("link", "set", link, "master", BRIDGE), ("link", "set", link, "up")]
        _ip(*outside)
        for pod in pods:
            inside = ("nsenter", "--target", str(self._pids[pod.name]), "--net")
            _ip(
                ("link", "set", "lo", "up"),
                ("addr", "add", f"{pod.ip}/16", "dev", "eth0"),
                ("link", "set", "eth0", "up"),
                via=inside,
            )


def _in_order(mounts: Sequence[Mount]) -> list[Mount]:
    """Outer paths first, and of one path the last alone."""
    return sorted({mount.path: mount for mount in mounts}.values(), key=lambda mount: mount.path.count("/"))


def _as_json(pod: Pod, mount: Mount) -> Mapping[str, object]:
    source = pod.source(mount)
    return {
        "source": None if source is None else str(source),
        "target": mount.path,
        "is_read_only": mount.is_read_only,
    }


def _answer(pod: Pod, process: "subprocess.Popen[str]") -> int:
    line = process.stdout.readline() if process.stdout else ""
    said = json.loads(line) if line else {"failed": "its process has ended"}
    if said["failed"]:
        raise BackendFailedError(f"pod {pod.name} cannot be made: {said['failed'].strip()}")
    return int(said["pid"])


def _ip(*commands: Sequence[str], via: Sequence[str] = ()) -> None:
    done = subprocess.run(
        [*via, "ip", "-batch", "-"],
        input="".join(" ".join(command) + "\n" for command in commands),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise BackendFailedError(f"the pods' network cannot be made: ip: {done.stderr.strip()[:500]}")
