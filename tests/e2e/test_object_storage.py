"""Jobs whose graph, partition, checkpoints and model are all on a real S3 server, as the page says."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import storage_jobs
from tests.e2e.conftest import Submit
from tests.e2e.figures import Figures
from tests.e2e.jobs import Job
from tests.e2e.kubectl import Kubectl, Refused
from tests.e2e.node_folder import NodeFolder
from tests.e2e.storage_jobs import CREATE, LIMIT, Store, other_options, until_training, without_partitioning
from tests.support.wait import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1200)]


@pytest.fixture
def store(kubectl: Kubectl, volume: NodeFolder, tmp_path: Path) -> Iterator[Store]:
    """A server with the example's graph."""
    with storage_jobs.store(kubectl, volume, tmp_path) as found:
        yield found


def partitioned(job: Job) -> str:
    """The log of the partitioner."""
    return job.kubectl.run("logs", f"{job.name}-partitioner", "--all-containers")


def kept_by(job: Job) -> str | None:
    """The folder of the partition that this job has made, or that another one has made meanwhile."""
    try:
        log = partitioned(job)
    except Refused:  # it has not begun
        return None
    said = re.search(r"kept the (?:partition as|same partition meanwhile:) s3://\S+?/(\w{32}/w-\w{16})", log)
    return said[1] if said else None


def test_everything_is_on_s3_and_partitioned_once(
    store: Store, volume: NodeFolder, submit: Submit, measured: Figures
) -> None:
    """Two cold jobs at once keep one partition, a warm one begins at once, other options make another one."""
    store.run(CREATE)
    cold = [store.job(seed) for seed in (1, 2)]
    for job in cold:
        job.wait_phase("Completed", seconds=600)

    warm, ready = store.job(3), submit(without_partitioning(volume))
    for job in (warm, ready):
        job.wait_phase("Training", "Completed")
    other = submit(other_options())
    for job in (warm, ready):
        job.wait_phase("Completed", seconds=600)

    (fingerprint,) = {Path(kept_by(job) or "nothing").parts[0] for job in cold}
    assert f"found the partition s3://dgl/partitions/{fingerprint}" in partitioned(warm)
    assert "it is made and kept" not in partitioned(warm)
    for job in (*cold, warm):
        require_all_on_s3(store, job)
    another = Path(wait_for("a partition with other options", lambda: kept_by(other), 120)).parts[0]
    verified = store.dglrun("partitions", "verify", "s3://dgl/partitions")
    assert {line.split(":")[0] for line in verified.splitlines() if ": OK" in line} == {fingerprint, another}
    assert len({fingerprint, another}) == 2
    record(measured, until_training(cold[0]), until_training(warm), until_training(ready))


def require_all_on_s3(store: Store, job: Job) -> None:
    """Each rank's newest checkpoint and the model are in the bucket, and each worker fetched its own part."""
    log = job.kubectl.logs(job.launcher, "main")
    assert all(f"{job.worker(part)} has part {part} from s3://dgl/partitions" in log for part in (0, 1)), log
    names = store.pod.objects()
    ranks = f"checkpoints/{store.kubectl.namespace}/{job.name}/rank-"
    assert {f"{ranks}{rank}/epoch-2.pt" for rank in (0, 1)} <= set(names), names
    assert f"models/{job.name}/dglrun-output.json" in names


def record(measured: Figures, cold: float, warm: float, ready: float) -> None:
    """Keep the figures; a kept partition delays the training by no more than it may."""
    told = "everything on S3, from apply to the training"
    measured.add("kept-cold", cold, "s", f"{told}: two jobs that partition at once")
    measured.add("kept-warm", warm, "s", f"{told}: partition found")
    measured.add("kept-ready", ready, "s", "beside it: nothing on S3, a partition that costs nothing")
    assert warm - ready <= LIMIT
