"""The control plane goes away under a job that trains."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster import daemons, kube
from tests.cluster.daemons import Daemon
from tests.cluster.places import Places
from tests.e2e.conftest import Submit
from tests.e2e.jobs import Job, tiny
from tests.e2e.kubectl import Kubectl
from tests.e2e.test_failures import wait_for_log
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e

LEASE = 10
"""Seconds without a heartbeat after which workers stop; the outage is longer."""
OUTAGE = 3 * LEASE


@contextmanager
def without_api_server() -> Iterator[None]:
    """Kill the API server of our own node; start it again, as its node's kubelet would."""
    places = Places.here()
    if not (pid := daemons.recorded(places).get("apiserver")):
        pytest.skip("needs the one-node cluster: its API server is killed")
    daemon = Daemon("apiserver", daemons.command_line(pid))
    daemons.kill([pid])
    try:
        yield
    finally:
        daemons.start(daemon, places)
        wait_for("the API server", lambda: kube.succeeds(places, "get", "--raw", "/readyz"), 120)
        kubectl = Kubectl(f"after-outage-{uuid.uuid4().hex[:8]}")
        kubectl.run("create", "namespace", kubectl.namespace)
        # Its watches are up to a minute late: later tests would wait for it in vain.
        wait_for("the controllers", lambda: kubectl.get("serviceaccount", "default"), 180)
        kubectl.run("delete", "namespace", kubectl.namespace, "--wait=false")


def launcher_log(job: Job) -> str:
    """The launcher's log as the node has it, without the API server's help."""
    pod = job.kubectl.namespace + "_" + job.launcher
    files = (Places.here().state / "podlogs").glob(f"{pod}_*/main/*.log")
    return "".join(path.read_text() for path in files)


def test_a_training_goes_on_while_the_api_server_is_away(submit: Submit) -> None:
    """It is killed for longer than the workers' lease; the training ends meanwhile, its model comes home."""
    job = submit(tiny("outage", "--do", "hang", "--seconds", str(OUTAGE), flags=("--lease", str(LEASE))))
    wait_for_log(job, "rank 1 does hang")

    with without_api_server():
        wait_for(
            "the end of the training",
            lambda: "all 2 trainers have ended well" in launcher_log(job),
            OUTAGE + 60,
        )
    job.wait_phase("Completed", seconds=120)

    assert "model.pt" in job.kubectl.logs(job.launcher, "main")
