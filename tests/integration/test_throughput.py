"""Many jobs at once: the pace of the operator on a real API server."""

import time

import pytest

from dgl_operator.runtime.kinds import Kind
from tests.integration.conftest import Submit
from tests.support.api_server import ApiServer, wait_for
from tests.support.operator_process import OperatorProcess
from tests.support.played_job import seconds_since

pytestmark = pytest.mark.integration

JOBS = 50


def test_fifty_jobs_have_their_pods_within_a_minute(
    operator: OperatorProcess, submit: Submit, api: ApiServer, namespace: str
) -> None:
    """11 objects, 1 status and 2 events each; prints the rate."""
    start = time.monotonic()
    for number in range(JOBS):
        submit(name=f"job-{number}")

    wait_for("all pods", lambda: True if len(api.list(Kind.POD, namespace).items) == 2 * JOBS else None, 60)
    wait_for("all phases", lambda: True if _pending(api, namespace) == JOBS else None, 60)

    seconds = seconds_since(start)
    print(f"{JOBS} jobs in {seconds:.1f} s: {JOBS / seconds:.1f} jobs/s, {11 * JOBS / seconds:.0f} objects/s")


def test_a_job_of_two_hundred_workers_has_them_within_half_a_minute(
    operator: OperatorProcess, submit: Submit
) -> None:
    """Created side by side; mpi-operator's default is 5 a second."""
    job = submit(workers=200).reach("Partitioning")
    start = time.monotonic()

    job.play("partitioner", "Succeeded", ip="10.9.0.2")
    job.await_workers()

    seconds = seconds_since(start)
    print(f"200 workers in {seconds:.1f} s: {200 / seconds:.0f} pods/s")
    assert seconds < 30


def _pending(api: ApiServer, namespace: str) -> int:
    return sum(job.get("status", {}).get("phase") == "Pending" for job in api.list(Kind.JOB, namespace).items)
