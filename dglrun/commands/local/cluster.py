"""What the API server of a local run knows: the pods, and what they have reported."""

import json
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from dglrun.commands.local.pod import Pod
from dglrun.contract import names, report
from dglrun.contract.names import Role


class Cluster:
    """The pods by name; safe for many threads.

    Args:
        say: Takes a line when a pod reports a new stage.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._lock = threading.Lock()
        self._pods: dict[str, dict[str, Any]] = {}
        self._stage = ""

    def started(self, pod: Pod, init_container: str | None = None) -> None:
        """Note a pod that runs, or waits in an init container."""
        running = {"running": {"startedAt": _now()}}
        waits = [{"name": init_container, "state": running}] if init_container else []
        main = {
            "name": pod.container,
            "ready": not waits,
            "state": {"waiting": {"reason": "PodInitializing"}} if waits else running,
            "imageID": pod.image,  # which is not run: its name stands for this machine's programs
        }
        status = {
            "phase": "Pending" if waits else "Running",
            "podIP": pod.ip,
            "conditions": [{"type": "Ready", "status": "False" if waits else "True"}],
            "initContainerStatuses": waits,
            "containerStatuses": [main],
        }
        self._put(pod, status)

    def ended(self, pod: Pod, code: int) -> None:
        """Note the end of a pod's main container."""
        terminated = {"exitCode": code, "reason": "Error" if code else "Completed"}
        status = {
            "phase": "Failed" if code else "Succeeded",
            "podIP": pod.ip,
            "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [{"name": pod.container, "state": {"terminated": terminated}}],
        }
        self._put(pod, status)

    def get_pod(self, name: str) -> Mapping[str, Any] | None:
        """A pod as the API server has it."""
        with self._lock:
            return self._pods.get(name)

    def take_report(self, data: Mapping[str, str]) -> None:
        """Say which stage a pod has reached."""
        if report.PROGRESS not in data:
            return
        stage = str(json.loads(data[report.PROGRESS]).get("stage"))
        with self._lock:
            is_new, self._stage = stage != self._stage, stage
        if is_new:
            self._say(f"stage {stage}")

    def _put(self, pod: Pod, status: Mapping[str, Any]) -> None:
        index = pod.name.rpartition("-")[2] if pod.role is Role.WORKER else None
        labels = {names.LABEL_ROLE: pod.role.lower} | ({names.LABEL_INDEX: index} if index else {})
        metadata = {
            "name": pod.name,
            "uid": pod.name,
            "labels": labels,
            "annotations": {names.ANNOTATION_MAIN: pod.container},
        }
        with self._lock:
            self._pods[pod.name] = {"kind": "Pod", "metadata": metadata, "status": status}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
