"""A worker that is lost in the training is replaced alone: the same attempt, the same model."""

import json
import re
import time

import pytest

from tests.e2e.conftest import Submit
from tests.e2e.figures import Figures
from tests.e2e.jobs import Job, example, tiny
from tests.e2e.test_examples import WITHIN, trained
from tests.support.wait import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

AGAIN = 180.0
"""Seconds to wait for the training to start again; how long it takes is a figure, not a verdict."""
STARTED = re.compile(r"\[worker-(\d+) trainer 0\] started")
SENT = re.compile(r"^sent \d+ files, ([\d.]+ \wB) to (\S+) in ", re.MULTILINE)


def log_of(job: Job) -> str:
    """What the launcher has printed, nothing while it has not begun."""
    assert job.phase() != "Failed", job.story()
    return job.kubectl.logs(job.launcher, "main") if job.phase() in ("Training", "Completed") else ""


def uid_of(job: Job, worker: int) -> str:
    """The identity of a worker's pod."""
    pod = job.kubectl.get("pod", job.worker(worker))
    assert pod is not None
    uid: str = pod["metadata"]["uid"]
    return uid


def wait_for_trainers(job: Job, count: int, seconds: float) -> None:
    """Wait until so many trainers have been started, those of earlier trainings included."""
    wait_for(
        f"{count} starts of trainers", lambda: len(STARTED.findall(log_of(job))) >= count or None, seconds
    )


def evict(job: Job, worker: int) -> None:
    """Evict a worker through the API, as a drain of its node and a preemption do."""
    place = f"/api/v1/namespaces/{job.kubectl.namespace}/pods/{job.worker(worker)}/eviction"
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": job.worker(worker)}}
    job.kubectl.run("create", "--raw", place, "-f", "-", stdin=json.dumps(body))


def check_same_attempt(job: Job) -> None:
    """One loss, which has cost no attempt."""
    status = job.status()
    restarts = status["restarts"]
    assert (status.get("attempt", 0), len(status["attempts"])) == (0, 1)
    assert (restarts["workers"], restarts["disruptions"], restarts["failures"]) == (1, 0, 0)
    assert status["attempts"][0].get("lostWorkers", []) == []


def check_replaced(job: Job, log: str) -> None:
    """The same attempt, one loss, and only the lost part moved twice."""
    check_same_attempt(job)
    sent = [(pod, size) for size, pod in SENT.findall(log)]
    assert sorted(pod for pod, _ in sent) == [job.worker(0), job.worker(1), job.worker(1)], sent
    assert len({size for pod, size in sent if pod == job.worker(1)}) == 1, sent


def test_a_worker_that_is_deleted_in_the_training_costs_neither_attempt_nor_accuracy(
    submit: Submit, measured: Figures, accuracies: dict[str, list[float]]
) -> None:
    """Training starts again on the same parts, and its model is as good, within three points."""
    job = submit(example("dgl-api", "replaced", extra_args=("--", "--seed", "0")))
    wait_for("the first epoch", lambda: "rank 1, epoch 0" in log_of(job) or None, 300)
    before = uid_of(job, 1)

    job.kubectl.run("delete", "pod", job.worker(1), "--wait=false")
    start = time.monotonic()
    wait_for_trainers(job, 4, AGAIN)
    took = time.monotonic() - start
    new = uid_of(job, 1)

    accuracy, _majority, log = trained(job)
    assert new != before
    check_replaced(job, log)
    if not accuracies.get("dgl-api"):  # this file alone
        undisturbed, *_ = trained(submit(example("dgl-api", "undisturbed", extra_args=("--", "--seed", "0"))))
        accuracies["dgl-api"] = [undisturbed]
    assert abs(accuracy - accuracies["dgl-api"][0]) <= WITHIN, accuracies
    progress = job.status()["progress"]
    assert (progress["stage"], progress["epoch"]) == ("Completed", 4)
    assert float(progress["loss"]) > 0
    measured.add("replace-worker", took, "s", "a worker is deleted in the training → all trainers run again")


def test_a_worker_that_is_evicted_in_the_training_is_replaced(submit: Submit) -> None:
    """Through the API, as a drain of its node does; the training is held until both have begun again."""
    go = "/dgl_workspace/go"
    job = submit(tiny("evicted", "--do", "hang", "--until", go))
    wait_for("both ranks at work", lambda: log_of(job).count("does hang") >= 2 or None, 180)
    before = uid_of(job, 1)

    evict(job, 1)
    wait_for("both ranks at work again", lambda: log_of(job).count("does hang") >= 4 or None, AGAIN)
    new = uid_of(job, 1)
    for worker in (0, 1):
        job.kubectl.exec(job.worker(worker), "touch", go, container="main")
    job.wait_phase("Completed")

    assert new != before
    check_replaced(job, job.kubectl.logs(job.launcher, "main"))
