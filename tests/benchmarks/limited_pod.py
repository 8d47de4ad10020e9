"""A command in a pod with a memory limit, on the one-node cluster of this machine: the kernel enforces it."""

import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.jobs import VERSION, image
from tests.e2e.kubectl import Kubectl, Object, Refused
from tests.support.measured import ROOT
from tests.support.wait import wait_for

POD, REPOSITORY, FOLDER = "limited", "/repository", "/bench"
_ENDED = ("Succeeded", "Failed")
_HOPELESS = {
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "Unschedulable",
}
_PATIENCE = 120.0
"""Seconds in which such a reason may pass."""


def run(module: str, argv: Sequence[str], memory: str, seconds: float = 14_400) -> str:
    """Run a module of this checkout on the job image; returns what it has printed.

    Its BENCH_FOLDER is a folder of this machine's.

    Args:
        module: The module.
        argv: Its arguments.
        memory: The pod's limit, such as `4Gi`; page cache counts, but the kernel takes that back.
        seconds: It ends by then.

    Raises:
        SystemExit: it cannot start, failed, was evicted or killed for its memory; with the reason and what it
            has printed.
    """
    with _namespace() as kubectl:
        kubectl.apply(_pod(("python3", "-m", module, *argv), memory))

        status = wait_for(f"the end of pod {POD}", _end(kubectl), seconds)
        said = _logs(kubectl)
    if status["phase"] == "Failed":
        raise SystemExit(f"{said}limit {memory}: {why(status)}")
    return said


def _end(kubectl: Kubectl) -> Callable[[], Object | None]:
    """Look for the pod's last status; SystemExit when it has been unable to start for a while."""
    held_since: list[float] = []

    def look() -> Object | None:
        status: Object = (kubectl.get("pod", POD) or {}).get("status", {})
        if not (reason := hindrance(status)):
            held_since.clear()
        elif not held_since:
            held_since.append(time.monotonic())
        elif time.monotonic() - held_since[0] > _PATIENCE:
            raise SystemExit(f"pod {POD} cannot start: {reason}")
        return status if status.get("phase") in _ENDED else None

    return look


def _logs(kubectl: Kubectl) -> str:
    """What it has printed; an evicted pod may have no container left that could be asked."""
    try:
        return kubectl.logs(POD)
    except Refused:
        return ""


def hindrance(status: Object) -> str | None:
    """Why a pod of this status has not started, if that rarely passes."""
    conditions = [each for each in status.get("conditions", []) if each.get("status") == "False"]
    waiting = [each.get("state", {}).get("waiting", {}) for each in status.get("containerStatuses", [])]
    for each in (*waiting, *conditions):
        if each.get("reason") in _HOPELESS:
            return f"{each['reason']}: {each.get('message', '')}"
    return None


def why(status: Object) -> str:
    """Why a pod of this status has failed: its container's end, or the pod's own, as that of an eviction."""
    containers = status.get("containerStatuses") or [{}]
    state = containers[0].get("state", {}).get("terminated")
    own = ": ".join(status[key] for key in ("reason", "message") if status.get(key))
    end = f"{state.get('reason')}, exit code {state.get('exitCode')}" if state else ""
    return "; ".join(each for each in (own, end) if each) or "no reason is told"


@contextmanager
def _namespace() -> Iterator[Kubectl]:
    kubectl = Kubectl(f"bench-{uuid.uuid4().hex[:8]}")
    kubectl.run("create", "namespace", kubectl.namespace)
    try:
        wait_for("default ServiceAccount", lambda: kubectl.get("serviceaccount", "default"), 30)
        yield kubectl
    finally:
        kubectl.run("delete", "namespace", kubectl.namespace, "--wait=false")


def _pod(command: Sequence[str], memory: str) -> Object:
    paths = {REPOSITORY: ROOT, FOLDER: Path(os.environ.get("BENCH_FOLDER", "/tmp"))}
    main = {
        "name": "main",
        "image": image(f"job:{VERSION}"),
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        "workingDir": REPOSITORY,
        "env": [{"name": "PYTHONPATH", "value": REPOSITORY}, {"name": "BENCH_FOLDER", "value": FOLDER}],
        "securityContext": {"runAsUser": 0},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": memory}},
        "volumeMounts": [
            {"name": f"v{at}", "mountPath": path, "readOnly": path == REPOSITORY}
            for at, path in enumerate(paths)
        ],
    }
    volumes = [
        {"name": f"v{at}", "hostPath": {"path": str(path.resolve()), "type": "Directory"}}
        for at, path in enumerate(paths.values())
    ]
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [main],
        "volumes": volumes,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": POD}, "spec": spec}
