"""A partition that is kept on the node's disk: the first job makes it, the second one finds it and trains."""

import re

import pytest

from tests.e2e.conftest import Submit
from tests.e2e.jobs import Job, mount_in_workers, tiny
from tests.e2e.kubectl import Kubectl, Object
from tests.e2e.node_folder import NodeFolder

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

KEPT = "/kept"


def a_job(name: str, volume: NodeFolder, *flags: str) -> Object:
    """The tiny job, whose workers and partitioner mount the folder."""
    body = tiny(name, flags=("--partitions", KEPT, *flags))
    mount_in_workers(body, volume.source, KEPT)
    return body


def logs(kubectl: Kubectl, job: Job) -> tuple[str, str]:
    """Those of partitioner and launcher."""
    return kubectl.run("logs", f"{job.name}-partitioner"), kubectl.run("logs", job.launcher)


def test_the_second_job_trains_on_what_the_first_has_kept(
    kubectl: Kubectl, submit: Submit, volume: NodeFolder
) -> None:
    """It partitions nothing and shows the same quality; a third one that asks for other parts is refused."""
    cold = submit(a_job("cold", volume))
    cold.wait_phase("Completed")

    warm = submit(a_job("warm", volume))
    warm.wait_phase("Completed")

    (made, first), (found, second) = logs(kubectl, cold), logs(kubectl, warm)
    kept = re.search(rf"kept the partition as {KEPT}/([0-9a-f]{{32}})/w-[0-9a-f]{{16}}", made)
    assert kept, made
    assert f"found the partition {KEPT}/{kept[1]}" in found
    for log in (first, second):
        for worker in (0, 1):
            assert f"-worker-{worker} reads part {worker} in place: {KEPT}/{kept[1]}" in log
    assert warm.status()["partition"] == cold.status()["partition"]

    other = submit(a_job("other", volume, "--partitions", f"{KEPT}/{kept[1]}", "--balance-edges"))
    other.wait_phase("Failed")

    assert "balance_edges: expected yes, got no" in other.condition("Failed")["message"], other.story()
