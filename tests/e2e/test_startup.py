"""The launcher starts when all is there, not before, and without waiting for a ConfigMap refresh."""

from datetime import datetime

import pytest

from tests.e2e.conftest import Submit
from tests.e2e.figures import Figures
from tests.e2e.jobs import Job, main_container, moment, tiny
from tests.e2e.kubectl import Object
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e

LIMIT = 5.0
"""Seconds from the last Ready worker to the start of dglrun (issue: at most 5 s)."""


def ready_since(pod: Object) -> datetime | None:
    """When a pod became Ready, None while it is not."""
    conditions = pod.get("status", {}).get("conditions", [])
    times = [c["lastTransitionTime"] for c in conditions if c["type"] == "Ready" and c["status"] == "True"]
    return moment(times[0]) if times else None


def launcher_started(job: Job) -> datetime | None:
    """When the launcher's main container started, None before."""
    pod = job.kubectl.get("pod", job.launcher) or {}
    for status in pod.get("status", {}).get("containerStatuses", []):
        state = status["state"].get("running") or status["state"].get("terminated")
        if status["name"] == "main" and state and state.get("startedAt"):
            return moment(state["startedAt"])
    return None


def last_ready(job: Job, workers: int) -> datetime | None:
    """When the last worker became Ready, None before."""
    pods = [job.kubectl.get("pod", job.worker(index)) for index in range(workers)]
    times = [ready_since(pod) for pod in pods if pod]
    return max(t for t in times if t) if len(times) == workers and all(times) else None


def test_the_launcher_starts_at_most_5_s_after_the_last_worker_is_ready(
    submit: Submit, measured: Figures
) -> None:
    """The kubelet syncs the hostfile at once, since the operator touches the waiting pod."""
    job = submit(tiny("latency", "--do", "hang", "--seconds", "30"))

    ready = wait_for("all workers Ready", lambda: last_ready(job, 2), 180)
    started = wait_for("launcher started", lambda: launcher_started(job), 60)

    took = (started - ready).total_seconds()
    assert 0 <= took <= LIMIT, job.story()
    measured.add("launch-latency", took, "s", "last worker Ready → dglrun starts in the launcher")


def test_a_slow_worker_holds_the_launcher_back(submit: Submit, measured: Figures) -> None:
    """One worker takes 20 s in an init container of its own: no half-written hostfile is started on."""
    body = tiny("slow")
    spec = body["spec"]["dglReplicaSpecs"]["Worker"]["template"]["spec"]
    slow = {"name": "slow", "command": ["sh", "-c", "case $(hostname) in *-1) sleep 20;; esac"]}
    spec["initContainers"] = [{**slow, "image": spec["containers"][0]["image"]}]
    job = submit(body)

    ready = wait_for("all workers Ready", lambda: last_ready(job, 2), 180)
    started = wait_for("launcher started", lambda: launcher_started(job), 60)
    job.wait_phase("Completed")

    took = (started - ready).total_seconds()
    assert 0 <= took <= LIMIT, job.story()
    measured.add("launch-latency-slow", took, "s", "the same with one worker 20 s slower")


def test_a_worker_that_runs_but_is_not_ready_holds_the_launcher_back(submit: Submit) -> None:
    """Ready is the condition, not the phase: the launcher waits for the probe."""
    body = tiny("unready")
    main_container(body, "Worker")["readinessProbe"] = {
        "exec": {"command": ["test", "-e", "/tmp/ready"]},
        "periodSeconds": 1,
    }
    job = submit(body)
    wait_for(
        "both workers running",
        lambda: job.status().get("replicaStatuses", {}).get("Worker", {}).get("running") == 2 or None,
        180,
    )
    job.kubectl.exec(job.worker(0), "touch", "/tmp/ready", container="main")
    wait_for("worker 0 Ready", lambda: ready_since(job.kubectl.get("pod", job.worker(0)) or {}), 60)

    held = launcher_started(job)
    job.kubectl.exec(job.worker(1), "touch", "/tmp/ready", container="main")
    ready = wait_for("all workers Ready", lambda: last_ready(job, 2), 60)
    started = wait_for("launcher started", lambda: launcher_started(job), 60)

    assert held is None
    assert 0 <= (started - ready).total_seconds() <= LIMIT
    job.wait_phase("Completed")
