"""Attempts, deadlines, suspension and time to live against a real API server."""

import json

import pytest

from dgl_operator.runtime.kinds import Json, Kind
from dglrun.contract import names
from tests.integration.conftest import Start, Submit
from tests.support.api_client import ApiServer
from tests.support.jobs import ended
from tests.support.operator_process import OperatorProcess
from tests.support.played_job import PlayedJob
from tests.support.wait import wait_for

pytestmark = pytest.mark.integration


def attempts(api: ApiServer, job: PlayedJob) -> set[str]:
    """Attempts that the job's pods belong to."""
    pods = api.list(Kind.POD, job.namespace, job.name)
    return {pod["metadata"]["labels"][names.LABEL_ATTEMPT] for pod in pods}


def await_attempt(job: PlayedJob, number: int) -> Json:
    """Wait until the pods of an attempt are wanted."""

    def look() -> Json | None:
        status = job.status
        records = status.get("attempts") or [{"number": -1}]
        return status if records[-1]["number"] == number else None

    return wait_for(f"attempt {number} of {job.name}", look, 90.0)


def edit(job: PlayedJob, **run_policy: object) -> None:
    """Change the job's run policy as a user does."""
    path = Kind.JOB.path(job.namespace, job.name)
    job.api.call("PATCH", path, {"spec": {"runPolicy": run_policy}}, "application/merge-patch+json")


def test_a_job_that_loses_a_worker_is_completed_by_its_next_attempt(
    operator: OperatorProcess, submit: Submit, api: ApiServer
) -> None:
    """All pods are new, and what the first attempt has reached is not taken for theirs."""
    job = submit().reach("Training")

    job.delete_pod("worker-1")
    await_attempt(job, 1)
    job.await_pods("launcher", "partitioner")

    assert attempts(api, job) == {"1"}
    job.reach("Completed")
    status = job.status
    assert (status["attempt"], status["restarts"]["disruptions"]) == (1, 1)
    assert [each["reason"] for each in status["attempts"]] == ["PodLost", "LauncherSucceeded"]


def uid_of(api: ApiServer, job: PlayedJob, suffix: str) -> str | None:
    """The identity of a pod, None while there is none."""
    pods = {pod["metadata"]["name"]: pod for pod in api.list(Kind.POD, job.namespace, job.name)}
    pod = pods.get(f"{job.name}-{suffix}")
    return pod["metadata"]["uid"] if pod else None


def test_a_worker_that_is_lost_in_the_training_is_replaced_within_the_attempt(
    operator: OperatorProcess, submit: Submit, api: ApiServer
) -> None:
    """The launcher has said that it goes on: the others stay, and the loss is counted."""
    job = submit().reach("Training")
    report = Kind.CONFIG_MAP.path(job.namespace, names.report(job.name))
    said = {"progress.json": json.dumps({"stage": "Training", "replaces": True, "epoch": 3, "loss": "0.25"})}
    api.call("PATCH", report, {"data": said}, "application/merge-patch+json")
    wait_for("the report in the status", lambda: (job.status.get("progress") or {}).get("replaces"))
    before, launcher = uid_of(api, job, "worker-1"), uid_of(api, job, "launcher")

    job.delete_pod("worker-1")
    wait_for("another worker", lambda: uid_of(api, job, "worker-1") not in (None, before) or None)
    job.play("worker-1", "Running", ip="10.9.1.9", ready=True)
    wait_for("nobody is missed", lambda: not job.status["attempts"][-1].get("lostWorkers") or None)
    job.play("launcher", "Succeeded", ip="10.9.0.1")
    job.await_phase("Completed")

    assert uid_of(api, job, "launcher") == launcher
    status = job.status
    assert (status["attempt"], status["restarts"]["workers"]) == (0, 1)
    assert (status["progress"]["epoch"], status["progress"]["loss"]) == (3, "0.25")


def test_an_operator_that_is_killed_between_two_attempts_goes_on(
    operator: OperatorProcess, submit: Submit, api: ApiServer, start: Start
) -> None:
    """What it must know stands in the status."""
    job = submit(runPolicy={"backoffLimit": 1}).reach("Training")
    job.play("launcher", "Failed", containers=[ended(code=7)])
    wait_for("the first attempt's end", lambda: job.status.get("attempt") or None)
    operator.kill()

    start()

    await_attempt(job, 1)
    job.await_pods("launcher", "partitioner")
    assert attempts(api, job) == {"1"}
    assert job.status["restarts"]["failures"] == 1


def test_suspend_and_resume(operator: OperatorProcess, submit: Submit, api: ApiServer) -> None:
    """The pods go and come; `kubectl wait --for=condition=Suspended` works."""
    job = submit().reach("Training")

    edit(job, suspend=True)
    job.await_phase("Suspended")
    job.await_pods()

    assert job.condition("Suspended")["status"] == "True"
    assert "startTime" not in job.status
    edit(job, suspend=False)
    await_attempt(job, 1)
    job.await_pods("launcher", "partitioner")
    assert job.condition("Suspended")["status"] == "False"
    assert job.status["startTime"]


def test_a_job_that_cannot_start_fails(operator: OperatorProcess, submit: Submit) -> None:
    """No scheduler takes its pods."""
    job = submit(runPolicy={"startDeadlineSeconds": 2})

    job.await_phase("Failed")

    assert job.condition("Failed")["reason"] == "StartDeadlineExceeded"
    assert f"pod {job.name}-launcher" in job.status["message"]
    job.await_pods()


def test_a_job_that_takes_too_long_fails(operator: OperatorProcess, submit: Submit) -> None:
    """The deadline is set while it trains."""
    job = submit().reach("Training")

    edit(job, activeDeadlineSeconds=1)
    job.await_phase("Failed")

    assert job.condition("Failed")["reason"] == "DeadlineExceeded"


def test_an_ended_job_is_deleted_with_all_that_it_owns(
    operator: OperatorProcess, submit: Submit, api: ApiServer, namespace: str
) -> None:
    """By the operator and the garbage collector."""
    job = submit(runPolicy={"ttlSecondsAfterFinished": 1}).reach("Starting")
    job.play("launcher", "Succeeded", ip="10.9.0.1")

    def is_gone() -> bool | None:
        return True if api.get(Kind.JOB, namespace, job.name) is None else None

    wait_for("the job is gone", is_gone, 60.0)

    wait_for("its pods are gone", lambda: True if not api.list(Kind.POD, namespace, job.name) else None, 60.0)


def test_a_job_of_another_controller_is_left_alone(
    operator: OperatorProcess, submit: Submit, namespace: str
) -> None:
    """While the one beside it goes on."""
    other = submit(name="other", runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"})

    submit().await_phase("Pending")
    operator.wait_idle()

    assert (other.status, other.pods()) == ({}, set())
