"""`dglrun local` with --partitions: whole jobs that keep a partition, find it, and make another one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.jobs import a_template
from tests.support.local_runs import LocalJob
from tests.support.wait import wait_for
from tests.unit.dglrun.commands.local.test_runs import NEEDS_ROOT

MADE = "print('partitions now', flush=True)\n"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[LocalJob]:
    """A job; at the end no process of it may live on."""
    found = LocalJob(tmp_path)
    yield found
    wait_for("no process is left", lambda: not found.processes(), 60)


def run(job: LocalJob, changed: str = "") -> str:
    """A job whose workers, and so its partitioner, mount one folder; returns its log."""
    mount = {"name": "kept", "mountPath": "/kept"}
    worker = a_template(volumeMounts=[mount])
    folder = {"path": str(job.folder / "kept"), "type": "DirectoryOrCreate"}
    worker["spec"]["volumes"] = [{"name": "kept", "hostPath": folder}]
    job.write("--partitions=/kept", workers=2, worker=worker)
    script = job.folder / "code/part.py"
    script.write_text(MADE + script.read_text() + changed)
    code, output = job.run()
    assert code == 0, output
    return output


@NEEDS_ROOT
def test_a_job_keeps_its_partition_for_those_that_make_the_same(job: LocalJob) -> None:
    """Cold, warm, another script: made, found, made; each pod is a machine of its own."""
    logs = (run(job), run(job), run(job, changed="# another\n"))

    assert ["partitions now" in log for log in logs] == [True, False, True]
    for log in logs:
        for worker in (0, 1):
            assert f"trains on tiny-worker-{worker} ['part{worker}', 'tiny.json', 'tiny.kept.json']" in log
            assert f"tiny-worker-{worker} reads part {worker} in place: /kept/" in log
    assert len(list((job.folder / "kept").glob("*/manifest.json"))) == 2
