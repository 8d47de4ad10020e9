"""What only the worker itself can know: its interface, its free ports, its threads."""

import errno
import fcntl
import os
import socket
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from dglrun import cgroup
from dglrun.agent.spec import CAUSES_FOLDER, INTERFACE, MASTER_PORT, PROGRESS_FILE, THREADS
from dglrun.contract import env

MASTER_PORTS = range(29500, 29900)
"""Below the kernel's ephemeral ports (from 32768): no client of DGL takes the chosen one meanwhile."""
KEEP_OF_CONTAINER = ("OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""The pod template's own value of these wins over ours."""

_SIOCGIFADDR = 0x8915


class HostError(Exception):
    """The worker is not what a run needs; says what is wrong."""


def threads(cpus: float, trainers: int) -> int:
    """OpenMP threads of each of `trainers` that share `cpus`; at least 1."""
    return max(1, int(cpus / max(1, trainers)))


def interface_of(ip: str) -> str:
    """The network interface that has this IPv4 address.

    Raises:
        HostError: none has. DGL would silently take the process for machine 0.
    """
    found = {name: _address(name) for _index, name in socket.if_nameindex()}
    for name, address in found.items():
        if address == ip:
            return name
    raise HostError(f"pod IP {ip} is on no interface of this pod (found {found}): was the pod replaced?")


def free_port(candidates: Iterable[int] = MASTER_PORTS) -> int:
    """The first port on which one can listen on every address.

    Raises:
        HostError: all are taken.
    """
    for port in candidates:
        if _is_free(port):
            return port
    raise HostError(f"no free port for torch.distributed in {candidates}")


def require_free(ports: Iterable[int]) -> None:
    """Refuse to start beside a server that still listens.

    Raises:
        HostError: names the taken ports.
    """
    taken = [port for port in ports if not _is_free(port)]
    if taken:
        raise HostError(f"port {', '.join(map(str, taken))} is taken on this worker: a DGL server needs it")


def environment(
    base: Mapping[str, str], wanted: Mapping[str, str], known: Mapping[str, str]
) -> dict[str, str]:
    """The environment of a process: the container's, with the wanted values and placeholders filled in."""
    filled = {key: known.get(value, value) for key, value in wanted.items()}
    kept = {key: base[key] for key in KEEP_OF_CONTAINER if key in base}
    return {**base, **filled, **kept}


def known(ip: str, trainers: int, master_port: int, causes: Path, progress: Path) -> dict[str, str]:
    """What the placeholders of a spec stand for on this worker.

    Raises:
        HostError: no interface has the IP.
    """
    return {
        THREADS: str(threads(float(os.environ.get(env.CPUS) or cgroup.cpu_limit()), trainers)),
        INTERFACE: interface_of(ip),
        MASTER_PORT: str(master_port),
        CAUSES_FOLDER: str(causes),
        PROGRESS_FILE: str(progress),
    }


def _address(interface: str) -> str | None:
    request = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)[20:24])
        except OSError:
            return None


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True
