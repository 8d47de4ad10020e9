"""A preempted worker in each example mode: the same attempt and nearly the same model for one part moved.

`make preempt` runs it, the gate does not: each example trains twice, once undisturbed, at the same time. Rows
are kept in build/ for runs of single examples; with DGL_OPERATOR_WRITE_FIGURES=1 the table is renewed as soon
as all of them are of one state of the product.
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.conftest import Submit
from tests.e2e.jobs import Job, example, main_container, set_flag
from tests.e2e.kubectl import Object
from tests.e2e.test_examples import trained
from tests.e2e.test_replacement import (
    SENT,
    STARTED,
    check_replaced,
    check_same_attempt,
    evict,
    log_of,
)
from tests.support import measured
from tests.support.wait import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]

TABLE = measured.TABLES["preempted"]
MODES = ("dist-parmetis-homogeneous", "dist-parmetis", "parmetis", "chunked-dgl-api", "dgl-api")
EPOCHS = "3"
CLOSE = 0.01
"""How far the accuracy of a job that lost a worker may be from that of one that did not."""
NEAR = 0.1
"""How far what was moved may be from the part: the log rounds, and files beside the part are sent, too."""
UNITS = {"MB": 1e6, "GB": 1e9}
BEGIN = 900.0
"""Seconds to wait for an epoch, or for the training to start again, while two jobs share a node."""
RECEIVED = re.compile(r"bytes received from other ranks: ([\d, ]+)")
GOES_ON = re.compile(r"rank \d+ goes on after epoch (\d+)")
CHECKPOINTS = "/dgl_workspace/checkpoints"
"""Where the launcher keeps them."""


KEPT_ROWS = measured.ROOT / "build" / "preempted.json"


PRODUCT = ("dglrun", "operator", "images", "manifests")


@pytest.fixture(scope="module")
def rows() -> Iterator[dict[str, tuple[object, ...]]]:
    """The table's rows, by example, with those that earlier runs of the same product have kept."""
    before = json.loads(KEPT_ROWS.read_text()) if KEPT_ROWS.exists() else {}
    measured_product = product()
    found = before["rows"] if before.get("product") == measured_product else {}
    yield found
    if product() != measured_product:
        print("the product has changed meanwhile: no row is kept", flush=True)
        return
    KEPT_ROWS.parent.mkdir(exist_ok=True)
    KEPT_ROWS.write_text(json.dumps({"product": measured_product, "rows": found}))
    if found.keys() == set(MODES) and os.environ.get(measured.WRITE) == "1":
        measured.write(TABLE.name, [found[name] for name in MODES])


def product() -> str:
    """The last commit of what the images are made of, and what has been changed since."""
    return git("log", "-1", "--format=%h", "--", *PRODUCT) + git("diff", "HEAD", "--", *PRODUCT)


def git(*argv: str) -> str:
    """What git says of this checkout."""
    return subprocess.run(
        ("git", *argv), capture_output=True, text=True, cwd=measured.ROOT, check=True
    ).stdout


def an_example(name: str, job: str) -> Object:
    """An example whose checkpoints are kept as soon as they are there; undisturbed, it keeps its workers."""
    body = example(name, job)
    main_container(body, "Launcher")["args"].insert(0, "--checkpoint-interval=1")
    set_flag(body, "--num-epochs", EPOCHS)
    body["spec"]["cleanPodPolicy"] = "Running" if job.startswith("preempted") else "None"
    return body


@pytest.mark.parametrize("name", MODES)
def test_a_preempted_worker_costs_no_accuracy(
    submit: Submit, rows: dict[str, tuple[object, ...]], name: str
) -> None:
    """Completed in the same attempt; a part that the workers make anew brings no more bytes than it has."""
    beside = submit(an_example(name, f"undisturbed-{name}"))
    job = submit(an_example(name, f"preempted-{name}"))
    wait_for("checkpoints of both ranks", lambda: has_checkpoints(job), BEGIN)
    start = time.monotonic()
    evict(job, 1)

    wait_for("both trainers again", trains_again(job), BEGIN)
    again = time.monotonic() - start

    (accuracy, _, log), (expected, *_) = trained(job), trained(beside)
    part, moved, epoch = size_of_part(beside, 1), bytes_moved(name, job, log), epoch_of(log)
    load = f"{os.getloadavg()[1]:.1f}"
    row = (name, expected, accuracy, epoch + 1, f"{part:,}", f"{moved:,}", f"{again:.0f} s", load)
    print(f"\n{measured.row(TABLE.columns)}\n{measured.row(row)}", flush=True)
    assert 0 < moved <= part * (1 + NEAR)
    assert name.startswith("dist-") or moved >= part * (1 - NEAR)
    assert abs(accuracy - expected) <= CLOSE
    rows[name] = row


def has_checkpoints(job: Job) -> bool:
    """Whether the launcher keeps one of each rank; a job that has ended before fails at once."""
    if job.phase() != "Training":
        assert job.phase() not in ("Completed", "Failed"), f"over too early:\n{job.story()}"
        return False
    found = job.kubectl.exec(
        job.launcher, "find", "/dgl_workspace", "-path", f"{CHECKPOINTS}/*.pt", container="main"
    )
    return all(f"/rank-{rank}/epoch-" in found for rank in (0, 1))


def trains_again(job: Job) -> Callable[[], bool]:
    """Whether the trainers of both workers have been started a second time."""

    def look() -> bool:
        is_over = job.phase() == "Completed"  # before the log, which then is whole
        found = len(STARTED.findall(log_of(job))) >= 4
        assert found or not is_over, f"Completed without the replacement:\n{job.story()}"
        return found

    return look


def epoch_of(log: str) -> int:
    """The epoch after which both ranks have gone on."""
    found = GOES_ON.findall(log)
    assert len(found) == 2, log[-3000:]
    assert len(set(found)) == 1, found
    return int(found[0])


def size_of_part(job: Job, worker: int) -> int:
    """Bytes of a worker's part."""
    folder = f"/dgl_workspace/workload/part{worker}"
    return int(job.kubectl.exec(job.worker(worker), "du", "-sbL", folder, container="main").split()[0])


def bytes_moved(name: str, job: Job, log: str) -> int:
    """What the new worker got: what the launcher has sent to it, or what MPI has brought."""
    if not name.startswith("dist-"):
        check_replaced(job, log)
        number, unit = [size for size, pod in SENT.findall(log) if pod == job.worker(1)][-1].split()
        return int(float(number) * UNITS[unit])
    check_same_attempt(job)
    (received,) = RECEIVED.findall(log)
    return int(received.split(", ")[1])
