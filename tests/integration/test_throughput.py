"""Many jobs at once: the pace of the operator on a real API server."""

import time

import pytest

from dgl_operator.runtime.kinds import Kind
from tests.e2e.figures import Figures
from tests.integration.conftest import Submit
from tests.support.api_client import ApiServer
from tests.support.operator_process import OperatorProcess
from tests.support.played_job import seconds_since
from tests.support.wait import wait_for

pytestmark = pytest.mark.integration

JOBS = 50


def test_fifty_jobs_have_their_pods_within_a_minute(
    operator: OperatorProcess, submit: Submit, api: ApiServer, namespace: str, measured: Figures
) -> None:
    """11 objects, a status and two events each."""
    measured.add("operator-idle", operator.memory_mib(), "MiB", "operator's memory without a job")
    start = time.monotonic()
    for number in range(JOBS):
        submit(name=f"job-{number}")

    wait_for("all pods", lambda: True if len(api.list(Kind.POD, namespace)) == 2 * JOBS else None, 60)
    wait_for("all phases", lambda: True if _pending(api, namespace) == JOBS else None, 60)

    seconds = seconds_since(start)
    measured.add(
        "operator-jobs", JOBS / seconds, "/s", f"jobs submitted and provided with pods, {JOBS} at once"
    )
    measured.add("operator-50-jobs", operator.memory_mib(), "MiB", f"operator's memory with {JOBS} jobs")


def test_a_job_of_two_hundred_workers_has_them_within_half_a_minute(
    operator: OperatorProcess, submit: Submit, measured: Figures
) -> None:
    """Created side by side; mpi-operator's default is 5 a second."""
    job = submit(workers=200).reach("Partitioning")
    start = time.monotonic()

    job.play("partitioner", "Succeeded", ip="10.9.0.2")
    job.await_workers()

    seconds = seconds_since(start)
    measured.add("operator-workers", 200 / seconds, "/s", "worker pods created, 200 of one job")
    assert seconds < 30


def _pending(api: ApiServer, namespace: str) -> int:
    return sum(job.get("status", {}).get("phase") == "Pending" for job in api.list(Kind.JOB, namespace))
