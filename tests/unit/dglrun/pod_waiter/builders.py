"""Pods and files as the watcher meets them."""

from pathlib import Path
from typing import Any

from dglrun.contract.hostfile import Host, format_hosts
from dglrun.kube.pods import Pod
from tests.support.fake_api_server import ApiServer


def ready(ip: str) -> dict[str, Any]:
    """Status of a pod that runs and is Ready."""
    return {"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]}


def unready(ip: str) -> dict[str, Any]:
    """Status of a pod that runs but is not Ready."""
    return {"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": "False"}]}


def failed(code: int, message: str) -> dict[str, Any]:
    """Status of a pod whose main container exited."""
    terminated = {"exitCode": code, "reason": "Error", "message": message}
    return {"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"terminated": terminated}}]}


def a_pod(status: dict[str, Any], uid: str = "uid-1", deleting: bool = False) -> Pod:
    """A Pod object."""
    metadata: dict[str, Any] = {"name": "job-worker-0", "uid": uid}
    if deleting:
        metadata["deletionTimestamp"] = "2026-11-21T04:00:00Z"
    return {"metadata": metadata, "status": status}


def workers(count: int) -> tuple[Host, ...]:
    """The hostfile's lines of a job with so many workers."""
    return tuple(Host(f"10.0.{i // 250}.{i % 250 + 1}", 30050, f"job-worker-{i}", 1) for i in range(count))


def publish(file: Path, hosts: tuple[Host, ...]) -> None:
    """Put a new version in place as the kubelet does: whole, by renaming."""
    fresh = file.with_name("..fresh")
    fresh.write_text(format_hosts(hosts))
    fresh.rename(file)


def make_ready(server: ApiServer, hosts: tuple[Host, ...]) -> None:
    """Let these pods be Ready."""
    for host in hosts:
        server.put_pod(host.name, **ready(host.ip))
