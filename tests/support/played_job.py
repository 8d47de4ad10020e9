"""A job whose pods nobody runs: no scheduler takes them, and the test plays the kubelet."""

import time
from collections.abc import Callable
from typing import Any

from dgl_operator.runtime.cluster import ClusterBusy, NotFound
from dgl_operator.runtime.kinds import Json, Kind
from dglrun.contract.names import Mode
from tests.support.api_client import ApiServer
from tests.support.jobs import a_pod_status, a_raw_job, ended, running, waiting
from tests.support.wait import wait_for

SCHEDULER = "played-by-the-test"


def a_played_job(name: str = "sage", *, workers: int = 2, mode: Mode = Mode.DGL_API, **spec: Any) -> Json:
    """A job as a user submits it, with pods that stay where they are."""
    raw = a_raw_job(name, workers=workers, mode=mode, **spec)
    for role in raw["spec"]["dglReplicaSpecs"].values():
        role["template"] = {"spec": {**role["template"]["spec"], "schedulerName": SCHEDULER}}
    return {**raw, "metadata": {"name": name}}


class PlayedJob:
    """Steps of one job's life; each returns when the API server has it."""

    def __init__(self, api: ApiServer, namespace: str, body: Json) -> None:
        self.api = api
        self.namespace = namespace
        self.name = body["metadata"]["name"]
        specs = body["spec"]["dglReplicaSpecs"]
        self.workers = specs["Worker"]["replicas"] if "Worker" in specs else 0
        api.call("POST", Kind.JOB.path(namespace), body)

    @property
    def raw(self) -> Json:
        """The job as it is now."""
        found = self.api.get(Kind.JOB, self.namespace, self.name)
        assert found is not None, f"{self.name} is gone"
        return found

    @property
    def status(self) -> Json:
        """Its status."""
        return dict(self.raw.get("status") or {})

    def condition(self, kind: str) -> Json:
        """One of its conditions, empty while it has none of this type."""
        return next((each for each in self.status.get("conditions", []) if each["type"] == kind), {})

    def await_phase(self, phase: str, seconds: float = 60.0) -> Json:
        """Wait for a phase; a final one that is another ends the wait."""

        def look() -> Json | None:
            status = self.status
            if status.get("phase") in ("Completed", "Failed") and status["phase"] != phase:
                raise AssertionError(f"expected {phase}, got {status['phase']}: {status.get('message')}")
            return status if status.get("phase") == phase else None

        return wait_for(f"{self.name} {phase}", look, seconds)

    def await_pods(self, *suffixes: str) -> None:
        """Wait until the job has just these pods."""
        wanted = {f"{self.name}-{suffix}" for suffix in suffixes}
        wait_for(f"pods {sorted(wanted)}", lambda: True if self.pods() == wanted else None)

    def pods(self) -> set[str]:
        """Names of its pods."""
        return {pod["metadata"]["name"] for pod in self.api.list(Kind.POD, self.namespace, self.name)}

    def play(self, suffix: str, phase: str, **given: Any) -> None:
        """Report a pod's status as its kubelet would."""
        status = reported(phase, **given)
        path = Kind.POD.path(self.namespace, f"{self.name}-{suffix}") + "/status"
        wait_for(f"{suffix} played", lambda: self._patch(path, {"status": status}))

    def launcher_waits(self) -> None:
        """Its first watcher runs."""
        init = [
            ended("kubectl-download"),
            running("watcher-loop-partitioner"),
            waiting("watcher-loop-worker"),
        ]
        self.play("launcher", "Pending", ip="10.9.0.1", containers=[waiting()], init=init)

    def reach(self, phase: str, seconds: float = 60.0) -> "PlayedJob":
        """Play the job up to a phase, waiting so long for each; a Failed one has failed in its training."""
        if phase == "Failed":
            self.reach("Training", seconds).play("launcher", "Failed", ip="10.9.0.1")
            self.await_phase(phase, seconds)
            return self
        steps: dict[str, Callable[[], object]] = {
            "Pending": lambda: None,
            "Starting": self.launcher_waits,
            "Partitioning": lambda: self.play("partitioner", "Running", ip="10.9.0.2"),
            "Partitioned": lambda: self.play("partitioner", "Succeeded", ip="10.9.0.2"),
            "Training": self.train,
            "Completed": lambda: self.play("launcher", "Succeeded", ip="10.9.0.1"),
        }
        for name, step in steps.items():
            step()
            self.await_phase(name, seconds)
            if name == "Partitioned":
                self.await_workers()
            if name == phase:
                return self
        raise ValueError(phase)

    def complete(self, seconds: float = 60.0) -> None:
        """Play it to Completed as its pods go on, whatever phases its status shows meanwhile."""
        self.launcher_waits()
        for phase in ("Running", "Succeeded"):
            self.play("partitioner", phase, ip="10.9.0.2")
        self._ready_workers()
        for phase in ("Running", "Succeeded"):
            self.play("launcher", phase, ip="10.9.0.1")
        self.await_phase("Completed", seconds)

    def await_workers(self) -> None:
        """Wait until all worker pods exist."""
        wanted = {f"{self.name}-worker-{index}" for index in range(self.workers)}
        wait_for("workers", lambda: True if wanted <= self.pods() else None)

    def train(self) -> None:
        """Make the workers Ready and start the launcher's main container."""
        self._ready_workers()
        wait_for(
            "workers ready", lambda: True if self.condition("WorkersReady").get("status") == "True" else None
        )
        self.play("launcher", "Running", ip="10.9.0.1")

    def _ready_workers(self) -> None:
        for index in range(self.workers):
            self.play(f"worker-{index}", "Running", ip=f"10.9.1.{index}", ready=True)

    def delete(self) -> None:
        """Delete the job as kubectl does."""
        self.api.call("DELETE", f"{Kind.JOB.path(self.namespace, self.name)}?propagationPolicy=Background")

    def delete_pod(self, suffix: str) -> None:
        """Delete one of its pods."""
        self.api.call("DELETE", Kind.POD.path(self.namespace, f"{self.name}-{suffix}"))

    def _patch(self, path: str, body: Json) -> Json | None:
        try:
            return self.api.call("PATCH", path, body, "application/merge-patch+json")
        except (NotFound, ClusterBusy):
            return None


def reported(phase: str, **given: Any) -> Json:
    """A pod's status, with all that the API server demands of it."""
    status = a_pod_status(phase, **given)
    for key in ("containerStatuses", "initContainerStatuses"):
        status[key] = [_whole(each) for each in status[key]]
    status["conditions"] = [
        {**each, "lastTransitionTime": "2026-11-21T11:30:00Z"} for each in status["conditions"]
    ]
    return status


def versions(objects: dict[tuple[str, str], Json]) -> dict[tuple[str, str], tuple[str, str]]:
    """UID and resourceVersion of each object: equal before and after means that nobody wrote."""
    return {
        key: (item["metadata"]["uid"], item["metadata"]["resourceVersion"]) for key, item in objects.items()
    }


def seconds_since(start: float) -> float:
    """Time on the clock that the waits use."""
    return time.monotonic() - start


def _whole(container: Json) -> Json:
    """What the API server demands beside the state."""
    return {
        "image": "x",
        "imageID": "x",
        "ready": "running" in container["state"],
        "restartCount": 0,
        **container,
    }
