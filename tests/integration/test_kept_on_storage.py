"""Jobs whose partition is kept on a real S3 server, which may be away, refuse them, or lack the bucket."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dglrun_pods import ROOT, Done, Pods
from tests.support.s3_server import S3Server, s3_server
from tests.support.wait import read_until

pytestmark = pytest.mark.integration

PLACES = ("--workspace", "ws", "--dataset-dir", "dataset", "--shm-dir", "../shm")
KEPT = ("--partitions", "s3://data/kept")
PARTITION = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from tests.support.dglrun_pods import write_partition
print("partitions now", flush=True)
write_partition(Path("ws/dataset"), 2)
while Path("../held").exists():
    pass
"""
TRAIN = """
import os, sys, time
from pathlib import Path
if os.environ["DGL_ROLE"] == "server":
    while not Path("../over").exists():
        time.sleep(0.05)
    sys.exit()
part = int(os.environ["RANK"])
print("rank", part, "has", sorted(path.name for path in Path("ws/workload").iterdir()), flush=True)
Path("../over").touch()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[S3Server]:
    """A server of this test alone; it has bucket `data`."""
    (tmp_path / "server").mkdir()
    with s3_server(tmp_path / "server") as found:
        found.make_bucket("data")
        yield found


@pytest.fixture
def pods(tmp_path: Path) -> Pods:
    """Two workers, nothing partitioned yet."""
    return Pods(tmp_path / "pods")


def partitioner(pods: Pods, *more: str) -> tuple[str, ...]:
    """The partitioner's command line."""
    script = pods.script(PARTITION, "partition.py")
    flags = ("-g", "tiny", "--num-partitions", "2", *PLACES, "--verify", "never", *KEPT)
    return (*flags, "--partition-entry-point", script, *more)


def partition(pods: Pods, environ: dict[str, str], *more: str) -> Done:
    """Run the partitioner's part."""
    return pods.run(*partitioner(pods, *more), phase="Partitioner", where="partitioner", **environ)


def train(pods: Pods, environ: dict[str, str]) -> Done:
    """Run the launcher's part."""
    (pods.root / "over").unlink(missing_ok=True)
    return pods.run("-g", "tiny", "--train-entry-point", pods.script(TRAIN), *PLACES, *KEPT, **environ)


def test_the_second_job_partitions_nothing_and_each_worker_fetches_its_part(
    server: S3Server, pods: Pods
) -> None:
    """From the store, with sums, and no other part; the launcher's disk has none."""
    first = partition(pods, server.environ())
    shutil.rmtree(pods.root / "job-partitioner/ws")

    second = partition(pods, server.environ())
    trained = train(pods, server.environ())

    assert (first.code, second.code, trained.code) == (0, 0, 0), first.output + second.output + trained.output
    assert "partitions now" in first.output
    assert "partitions now" not in second.output
    for part in (0, 1):
        assert f"job-worker-{part} has part {part} from s3://data/kept: " in trained.output
        assert f"rank {part} has ['part{part}', 'tiny.json', 'tiny.kept.json']" in trained.output
        assert not (pods.worker(part) / f"ws/workload/part{part}").is_symlink()
    assert not list((pods.launcher / "dataset").glob("part*"))


def test_a_server_that_comes_back_costs_time_alone(server: S3Server, pods: Pods) -> None:
    """It is killed between the look and the writing."""
    (pods.root / "held").touch()
    with pods.started(
        *partitioner(pods), phase="Partitioner", where="partitioner", **server.environ()
    ) as process:
        read_until(process, "partitions now")
        server.kill()
        (pods.root / "held").unlink()
        read_until(process, "Phase 2/5")
        server.start()
        done = pods.finish(process)

    assert done.code == 0, done.output
    assert "kept the partition as s3://data/kept/" in done.output
    assert train(pods, server.environ()).code == 0


@pytest.mark.parametrize(
    ("more", "flags", "words"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, (), "refuses the credentials"),
        ({}, ("--partitions", "s3://missing/kept"), "expected a bucket, which must exist, found none"),
        ({"AWS_CA_BUNDLE": ""}, (), "certificate"),
    ],
    ids=["credentials", "bucket", "certificate"],
)
def test_a_store_that_refuses_is_one_line(
    server: S3Server, pods: Pods, more: dict[str, str], flags: tuple[str, ...], words: str
) -> None:
    """Before anything is partitioned, with exit code 77, and no secret in it."""
    done = partition(pods, {**server.environ(), **more}, *flags)

    assert done.code == 77, done.output
    assert "partitions now" not in done.output
    assert "a-secret-of-the-tests" not in done.output
    told = (
        done.message.splitlines()
    )  # which step it was, how long it takes where it is slow, and what is wrong
    assert [line for line in told if words in line] == told[-1:]


def test_a_store_that_stays_away_is_one_line(server: S3Server, pods: Pods) -> None:
    """After the time that was given, before anything is partitioned."""
    server.kill()

    done = partition(pods, server.environ(), "--start-timeout", "3")

    assert done.code == 77, done.output
    assert "partitions now" not in done.output
    assert "does not answer" in done.message
