"""Starts the launchers' main containers, which no Stage of kwok can do: it depends on other pods.

For each job it waits until the partitioner has succeeded (where there is one), all workers are Ready and
the address file is whole (where the job mounts one), and a second later writes the status that a kubelet
would write: init containers ended, main container running. The write takes the place of one of kwok's, so
that neither operator sees an object or an event that real pods would not cause.
"""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.benchmarks.operator_bench.bodies import JOB, LAUNCHER, PARTITIONER, ROLE, WORKER, Json
from tests.support.api_client import ApiServer

KUBELET_SECONDS = 1.0
"""From the moment that a launcher may go on to the kubelet's report that it did."""
THREADS = 4

Key = tuple[str, str]


@dataclass(frozen=True)
class Needs:
    """What a launcher waits for.

    Attributes:
        workers: So many Ready workers.
        partitioner: Its success.
        addresses: The job's address file, reported by `on_addresses`.
    """

    workers: int
    partitioner: bool = False
    addresses: bool = False


@dataclass
class Waiting:
    """What is known of one job."""

    launcher: Json = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)
    partitioned: bool = False
    addressed: bool = False
    advanced: bool = False
    started: bool = False
    cleaned: set[str] = field(default_factory=set)
    """Workers that were deleted."""

    def may_start(self, needs: Needs) -> bool:
        """Whether the main container starts now."""
        has_begun = "startTime" in (self.launcher.get("status") or {})
        is_partitioned = self.partitioned or not needs.partitioner
        is_addressed = self.addressed or not needs.addresses
        return has_begun and is_partitioned and is_addressed and len(self.ready) >= needs.workers

    def may_advance(self) -> bool:
        """Whether the launcher, which waits for the partitioner, begins to wait for the workers."""
        inits = (self.launcher.get("status") or {}).get("initContainerStatuses") or []
        return self.partitioned and len(inits) > 2 and "running" in inits[1]["state"]


class LauncherDriver:
    """Fed with watch events of all pods; writes statuses from a few threads."""

    def __init__(self, api: ApiServer, needs: Needs) -> None:
        self._api = api
        self._needs = needs
        self._jobs: dict[Key, Waiting] = {}
        self._lock = threading.Lock()
        # The delay is the same for all, so that the order of a queue is the order of their due times.
        self._queues: list[queue.SimpleQueue[tuple[float, Key, Callable[[Json], Json]]]] = [
            queue.SimpleQueue() for _ in range(THREADS)
        ]
        self.failures: list[str] = []
        for each in self._queues:
            threading.Thread(target=self._serve, args=(each,), name="kubelet", daemon=True).start()

    def on_pod(self, change: str, pod: Json) -> None:
        """Take a pod as it is now."""
        labels, status = pod["metadata"]["labels"], pod.get("status") or {}
        key = (pod["metadata"]["namespace"], labels[JOB])
        with self._lock:
            job = self._jobs.setdefault(key, Waiting())
            if change == "DELETED":
                job.cleaned |= {pod["metadata"]["name"]} if labels[ROLE] == WORKER else set()
                return
            if labels[ROLE] == LAUNCHER:
                job.launcher = pod
            if labels[ROLE] == PARTITIONER:
                job.partitioned |= status.get("phase") == "Succeeded"
            if labels[ROLE] == WORKER and is_ready(status):
                job.ready.add(pod["metadata"]["name"])
            self._go_on(key, job)

    def on_addresses(self, namespace: str, job_name: str) -> None:
        """The address file of a job is whole."""
        with self._lock:
            job = self._jobs.setdefault((namespace, job_name), Waiting())
            job.addressed = True
            self._go_on((namespace, job_name), job)

    def cleaned(self) -> int:
        """How many workers were deleted."""
        with self._lock:
            return sum(len(job.cleaned) for job in self._jobs.values())

    def _go_on(self, key: Key, job: Waiting) -> None:
        if not job.started and job.may_start(self._needs):
            job.started = True
            self._later(key, started)
        elif not (job.advanced or job.started) and job.may_advance():
            job.advanced = True
            self._later(key, advanced)

    def _later(self, key: Key, change: Callable[[Json], Json]) -> None:
        self._queues[hash(key) % THREADS].put((time.monotonic() + KUBELET_SECONDS, key, change))

    def _serve(self, due: "queue.SimpleQueue[tuple[float, Key, Callable[[Json], Json]]]") -> None:
        while True:
            at, key, change = due.get()
            time.sleep(max(0.0, at - time.monotonic()))
            launcher = self._jobs[key].launcher
            path = f"/api/v1/namespaces/{key[0]}/pods/{launcher['metadata']['name']}/status"
            body = {"status": change(launcher["status"])}
            try:
                self._api.call("PATCH", path, body, "application/merge-patch+json")
            except Exception as error:
                self.failures.append(f"{path}: {error}")


def is_ready(status: Json) -> bool:
    """Whether the pod's condition says so."""
    return any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", ()))


def advanced(status: Json) -> Json:
    """The launcher's last init container runs, the others have ended."""
    inits = status["initContainerStatuses"]
    return {
        "initContainerStatuses": [*map(_ended, inits[:-1]), {**inits[-1], "state": _running()}],
    }


def started(status: Json) -> Json:
    """The launcher's main container runs."""
    conditions = [
        each if each["type"] == "PodScheduled" else {**each, "status": "True", "lastTransitionTime": _now()}
        for each in status["conditions"]
    ]
    containers = [
        {**each, "ready": True, "started": True, "state": _running()} for each in status["containerStatuses"]
    ]
    inits = status.get("initContainerStatuses") or ()
    address = {} if status.get("podIP") else {"podIP": "10.249.0.1", "podIPs": [{"ip": "10.249.0.1"}]}
    return {
        "phase": "Running",
        "conditions": conditions,
        "containerStatuses": containers,
        **({"initContainerStatuses": [_ended(each) for each in inits]} if inits else {}),
        **address,
    }


def _ended(container: Json) -> Json:
    now = _now()
    end: dict[str, Any] = {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}
    return {**container, "ready": True, "state": {"terminated": end}}


def _running() -> Json:
    return {"running": {"startedAt": _now()}}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
