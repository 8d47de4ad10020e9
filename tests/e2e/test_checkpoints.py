"""A job whose launcher is lost goes on, in its next attempt, where its checkpoints are."""

import pytest

from tests.e2e.conftest import Submit
from tests.e2e.jobs import Job, main_container, mount_in_workers, tiny
from tests.e2e.kubectl import Refused
from tests.e2e.node_folder import NodeFolder
from tests.support.wait import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

HELD = 3
"""The epoch after which the first attempt waits (tests/e2e/scripts/train_resuming.py)."""


def kept(job: Job) -> set[str]:
    """The files that lie on the volume, as a worker sees them."""
    found = job.kubectl.exec(
        job.worker(0), "find", "/kept", "-type", "f", "-name", "epoch-*", container="main"
    )
    prefix = f"/kept/{job.kubectl.namespace}/{job.name}/"
    return {line.removeprefix(prefix) for line in found.split()}


def test_the_next_attempt_goes_on_from_the_checkpoints(submit: Submit, volume: NodeFolder) -> None:
    """All pods are made anew; what the ranks had saved on the volume is back before they train."""
    body = tiny("resumes", flags=("--checkpoints", "/kept", "--checkpoint-interval", "2"))
    args = main_container(body, "Launcher")["args"]
    args[args.index("/scripts/train_tiny.py")] = "/scripts/train_resuming.py"
    body["spec"]["runPolicy"] = {"backoffLimit": 1}
    mount_in_workers(body, volume.source, "/kept")
    job = submit(body)
    job.wait_phase("Training")
    wanted = {f"rank-{rank}/epoch-{epoch}.pt" for rank in (0, 1) for epoch in range(1, HELD + 1)}

    def all_kept() -> bool:
        assert job.phase() == "Training", job.story()
        try:
            return kept(job) >= wanted
        except Refused:  # the folder comes with the first file
            return False

    wait_for("all checkpoints on the volume", all_kept, 120)
    before = job.kubectl.get("pod", job.launcher)
    assert before is not None

    job.kubectl.run("delete", "pod", job.launcher, "--wait=false", "--grace-period=1")
    job.wait_phase("Completed")

    log = job.kubectl.logs(job.launcher, "main")
    after = job.kubectl.get("pod", job.launcher)
    assert after is not None
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert job.status()["attempt"] >= 1
    assert f"brought back {len(wanted)} checkpoint files" in log
    for rank in (0, 1):
        assert f"[worker-{rank} trainer 0] rank {rank} of 400 nodes begins after epoch {HELD}" in log
