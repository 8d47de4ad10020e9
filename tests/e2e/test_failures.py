"""Whatever breaks inside a job ends it as Failed, with the true cause, within 10 s of the event."""

import re
import time

import pytest

from tests.e2e.conftest import Submit
from tests.e2e.figures import Figures
from tests.e2e.jobs import Job, main_container, moment, tiny
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e

LIMIT = 10.0
"""Seconds from the event to the Failed condition (issue: within 10 s)."""


def wait_for_log(job: Job, text: str, seconds: float = 180) -> None:
    """Wait until the launcher has printed a text."""

    def look() -> str | None:
        phase = job.phase()
        assert phase != "Failed", job.story()
        if phase != "Training":
            return None
        log = job.kubectl.logs(job.launcher, "main")
        return log if text in log else None

    wait_for(f"{text!r} in the log of {job.launcher}", look, seconds)


def failed_within(job: Job, since: float) -> tuple[float, str]:
    """Seconds from `since` (epoch) until the job was seen Failed, and the condition's message."""
    wait_for(f"{job.name} Failed", lambda: job.condition("Failed") or None, 60)
    took = time.time() - since
    assert job.phase() == "Failed", job.story()
    assert took <= LIMIT, f"took {took:.1f} s\n{job.story()}"
    return took, job.condition("Failed")["message"]


def process_on(job: Job, worker: int, role: str) -> int:
    """The process id of a server or trainer on a worker, found by its environment."""
    script = (
        "for p in /proc/[0-9]*; do tr '\\0' '\\n' < $p/environ 2>/dev/null | grep -qx DGL_ROLE=$1 && "
        "tr '\\0' ' ' < $p/cmdline | grep -q train_tiny && echo ${p#/proc/}; done; true"
    )
    found = job.kubectl.exec(job.worker(worker), "sh", "-c", script, "sh", role, container="main").split()
    assert found, f"no {role} on {job.worker(worker)}"
    return min(int(pid) for pid in found)


@pytest.mark.parametrize(("do", "code"), [("raise", 1), ("exit", 7)])
def test_a_rank_that_raises_or_leaves_fails_the_job(
    submit: Submit, measured: Figures, do: str, code: int
) -> None:
    """DGL would hang in its exit barrier; the job ends naming worker, rank and exit code."""
    job = submit(tiny(f"rank-{do}", "--do", do, "--rank", "1"))
    wait_for_log(job, f"rank 1 does {do}")

    took, message = failed_within(job, time.time())

    assert f"{job.worker(1)}" in message
    assert "rank 1" in message
    assert re.search(rf"\b{code}\b", message)
    if do == "raise":
        assert "RuntimeError: told to raise" in message
    measured.add(f"fail-{do}", took, "s", f"one rank does `{do}` → Failed")


@pytest.mark.parametrize("role", ["client", "server"])
def test_a_killed_trainer_or_server_fails_the_job(submit: Submit, measured: Figures, role: str) -> None:
    """SIGKILL to one process on a worker is told as the cause, with the code 137."""
    job = submit(tiny(f"kill-{role}", "--do", "hang"))
    wait_for_log(job, "rank 1 does hang")
    pid = process_on(job, 1, role)

    job.kubectl.exec(job.worker(1), "sh", "-c", f"kill -9 {pid}", container="main")
    took, message = failed_within(job, time.time())

    assert job.worker(1) in message
    assert ("server" if role == "server" else "trainer") in message
    assert "137" in message or "SIGKILL" in message
    what = "server" if role == "server" else "trainer"
    measured.add(f"fail-kill-{what}", took, "s", f"a {what} is killed → Failed")


def test_a_partitioner_that_exits_3_fails_the_job_with_3(submit: Submit, measured: Figures) -> None:
    """The partition script's own exit code and words arrive in the condition."""
    body = tiny("partitioner-3")
    main_container(body, "Worker")["env"] = [{"name": "TINY_PARTITION_EXIT", "value": "3"}]
    job = submit(body)
    job.wait_phase("Failed")

    message = job.condition("Failed")["message"]
    pod = job.kubectl.get("pod", f"{job.name}-partitioner")

    assert pod is not None
    wait_for("the partitioner's final phase", lambda: _is_left(job), 60)
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    took = moment(job.condition("Failed")["lastTransitionTime"]) - moment(ended["finishedAt"])
    assert ended["exitCode"] == 3
    assert "partition_tiny: leaving as told" in message
    assert "exit code 3:" in message
    assert took.total_seconds() <= LIMIT
    measured.add("fail-partitioner", took.total_seconds(), "s", "partitioner ends with 3 → Failed")


def _is_left(job: Job) -> bool | None:
    """Whether the failed partitioner is still there, with its log, when its pod's phase follows."""
    pod = job.kubectl.get("pod", f"{job.name}-partitioner")
    assert pod is not None, "the partitioner was deleted with its log"
    assert "deletionTimestamp" not in pod["metadata"]
    return True if pod["status"]["phase"] == "Failed" else None


def test_a_corrupted_copy_fails_the_job(submit: Submit, measured: Figures) -> None:
    """A partition that is not what it was when its delivery began is never trained on."""
    body = tiny("corrupted")
    launcher = main_container(body, "Launcher")
    launcher["args"] = ["/scripts/corrupting_kubectl.sh", "dglrun", *launcher["args"]]
    launcher["command"] = ["sh"]
    job = submit(body)
    job.wait_phase("Failed")

    message = job.condition("Failed")["message"]
    pod = job.kubectl.get("pod", f"{job.name}-partitioner")

    assert pod is not None
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    took = moment(job.condition("Failed")["lastTransitionTime"]) - moment(ended["finishedAt"])
    assert ended["exitCode"] == 74
    assert "changed while it was sent" in message
    assert took.total_seconds() <= LIMIT
    assert job.condition("Partitioned").get("status") != "True"
    measured.add("fail-corrupted", took.total_seconds(), "s", "a copy arrives corrupted → Failed")


def test_a_sampler_that_is_killed_fails_the_job(submit: Submit) -> None:
    """Samplers are children of the trainers; one that dies is a failure, too."""
    job = submit(tiny("kill-sampler", "--do", "hang", flags=("--num-samplers", "1")))
    wait_for_log(job, "rank 1 does hang")
    script = (
        "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null | "
        "grep -q 'multiprocessing.spawn import spawn_main' && echo ${p#/proc/}; done; true"
    )
    pids = job.kubectl.exec(job.worker(0), "sh", "-c", script, container="main").split()
    assert pids

    job.kubectl.exec(job.worker(0), "sh", "-c", f"kill -9 {pids[0]}", container="main")
    _took, message = failed_within(job, time.time())

    assert job.worker(0) in message
    assert "sampler" in message
