"""Jobs in a queue of the real Kueue: admission, preemption, resumption, flavors, and the quota at the end."""

from collections.abc import Iterator

import pytest

from dgl_operator.api import kueue as queued
from dgl_operator.runtime.kinds import Json, Kind
from tests.integration.conftest import Start, Submit
from tests.support.api_client import ApiServer
from tests.support.kueue_manager import Kueue, is_served, kueue, remove_leftovers
from tests.support.played_job import PlayedJob, a_played_job
from tests.support.wait import wait_for

pytestmark = pytest.mark.integration

QUEUE, URGENT = "of-the-test", "urgent-of-the-test"
PODS_OF_ONE_JOB = 4
"""Launcher, partitioner, two workers: the quota is for one job."""
TOLERATION = {"key": "spot", "operator": "Exists", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def manager(api: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kueue]:
    """A running Kueue with a quota for one job, and a class that may preempt."""
    with kueue(api, tmp_path_factory.mktemp("kueue")) as running:
        flavor = {"nodeLabels": {"pool": "spot"}, "tolerations": [TOLERATION]}
        running.put_quota(QUEUE, PODS_OF_ONE_JOB, flavor)
        running.put_priority(URGENT, 1000)
        yield running
        print(running.log.read_text()[-8000:])


@pytest.fixture
def queue(manager: Kueue, namespace: str) -> Kueue:
    """A queue of the test's namespace."""
    manager.put_local_queue("mine", QUEUE, namespace)
    return manager


def a_queued_job(name: str, **labels: str) -> Json:
    body = a_played_job(name)
    labels = {queued.QUEUE_NAME: "mine", **labels}
    return {**body, "metadata": {**body["metadata"], "labels": labels}}


def workload(job: PlayedJob) -> Json:
    found = job.api.get(Kind.WORKLOAD, job.namespace, queued.workload_name(job.name))
    assert found is not None
    return found


def says(job: PlayedJob, kind: str) -> tuple[str, str]:
    """Status and reason of a condition of its Workload."""
    found = workload(job).get("status", {}).get("conditions", [])
    return next(((each["status"], each["reason"]) for each in found if each["type"] == kind), ("", ""))


def await_suspended(job: PlayedJob, reason: str) -> Json:
    """Wait until the job has no pods, for this reason."""

    def look() -> Json | None:
        found = job.condition("Suspended")
        return found if (found.get("status"), found.get("reason")) == ("True", reason) else None

    return wait_for(f"{job.name} {reason}", look)


def test_a_job_of_a_queue_waits_where_there_is_no_kueue(api: ApiServer, start: Start, submit: Submit) -> None:
    """It says so, has no pods, and the operator goes on with others."""
    remove_leftovers(api)
    if is_served(api):
        pytest.fail("Kueue is installed already: these tests bring their own")
    start("--kueue=true")

    job = submit(a_queued_job("sage"))
    wait_for("Blocked", lambda: job.condition("Blocked").get("reason") == "KueueNotInstalled" or None)

    assert job.status["phase"] == "Suspended"
    assert job.pods() == set()
    submit(name="free").reach("Starting")


def test_kueue_admits_preempts_and_resumes_a_job(
    queue: Kueue, api: ApiServer, start: Start, submit: Submit
) -> None:
    """The quota is for one job: an urgent one takes it and gives it back at its end."""
    start("--kueue=true")
    low = submit(a_queued_job("low")).reach("Training")
    launcher = api.get(Kind.POD, low.namespace, "low-launcher")
    assert launcher is not None
    assert launcher["spec"]["nodeSelector"] == {"pool": "spot"}
    assert TOLERATION in launcher["spec"]["tolerations"]
    wait_for("the quota in use", lambda: queue.usage(QUEUE).get("pods") == str(PODS_OF_ONE_JOB) or None)

    urgent = submit(a_queued_job("urgent", **{queued.PRIORITY_CLASS: URGENT}))
    await_suspended(low, "Evicted")
    low.await_pods()
    urgent.reach("Training")
    assert says(low, "QuotaReserved")[0] == "False"
    assert (says(low, "Evicted"), says(urgent, "Admitted")[0]) == (("True", "Preempted"), "True")

    urgent.play("launcher", "Succeeded", ip="10.9.0.1")
    urgent.await_phase("Completed")
    wait_for("Finished", lambda: says(urgent, "Finished") == ("True", "Succeeded") or None)
    low.reach("Completed")

    status = low.status
    assert (status["attempt"], status["restarts"]["suspensions"]) == (1, 1)
    assert "Preempted" in status["attempts"][0]["message"]
    wait_for("the quota free again", lambda: queue.usage(QUEUE).get("pods") == "0" or None)


def test_a_job_that_is_deactivated_has_no_pods_until_it_is_activated_again(
    queue: Kueue, start: Start, submit: Submit
) -> None:
    """By `spec.active` of its Workload, as Kueue's own tools do it; a failure is a Finished Workload too."""
    start("--kueue=true")
    job = submit(a_queued_job("sage")).reach("Partitioning")

    activate(job, is_active=False)
    await_suspended(job, "Evicted")
    job.await_pods()
    wait_for("the quota free again", lambda: queue.usage(QUEUE).get("pods") == "0" or None)
    activate(job, is_active=True)
    job.await_phase("Pending")
    job.reach("Failed")

    wait_for("Finished", lambda: says(job, "Finished") == ("True", "Failed") or None)


def activate(job: PlayedJob, *, is_active: bool) -> None:
    """Stop or go on with a Workload as a person does."""
    path = Kind.WORKLOAD.path(job.namespace, queued.workload_name(job.name))
    job.api.call("PATCH", path, {"spec": {"active": is_active}}, "application/merge-patch+json")
