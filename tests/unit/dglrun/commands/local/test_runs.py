"""Whole runs of `dglrun local` with tiny scripts: every phase, every pod, and nothing left."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dglrun.commands.local import isolated
from dglrun.contract.names import Mode
from tests.support.dglrun_pods import ROOT
from tests.support.jobs import a_template
from tests.support.local_runs import LocalJob, finish, wait_until
from tests.support.needs import NEEDS_MPI
from tests.support.wait import wait_for

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
NOBODY = () if os.geteuid() else ("unshare", "--user")
"""Runs a command without any right of root's."""
HANG = "import time\nprint('now', flush=True)\ntime.sleep(600)"
MPI = """
import os, subprocess
from pathlib import Path
from dglrun.mpi import mpirun

# One write for each line: an unbuffered print writes piece by piece, and two ranks write at once.
say = "from mpi4py import MPI; import os, socket; w = MPI.COMM_WORLD; w.Barrier();"
say += "os.write(1, f'rank {w.rank} of {w.size} on {socket.gethostname()}{chr(10)}'.encode())"
pods = ("tiny-worker-0", "tiny-worker-1")
remote = mpirun.Remote(pods, os.environ["DGL_OPERATOR_KUBEXEC_PATH"], "eth0", slots=1)
Path("hosts").write_text(mpirun.hostfile(remote))
ranks = mpirun.Job(("python3", "-c", say), 2, remote)
raise SystemExit(subprocess.call(mpirun.argv(ranks, Path("hosts")), timeout=240))
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[LocalJob]:
    """A job; at the end no process of it may live on."""
    found = LocalJob(tmp_path)
    yield found
    wait_for("no process is left", lambda: not found.processes(), 60)


def traces(job: LocalJob) -> list[str]:
    """What of the job is seen on this machine: its bridge and its mounts."""
    links = [path.name for path in Path("/sys/class/net").iterdir() if path.name == isolated.BRIDGE]
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [*links, *(line for line in lines if str(job.folder) in line)]


@NEEDS_ROOT
def test_two_workers_pass_through_all_phases(job: LocalJob) -> None:
    """Each pod is a machine of its own; models of both come home; nothing is left but them."""
    job.write(workers=2)

    code, output = job.run()

    assert code == 0, output
    stages = re.findall(r"^dglrun local: stage (\w+)$", output, re.M)
    # A report that waits for the one before it gives way to the next: a stage in the middle may not be told.
    order = ("Partitioning", "Delivering", "Dispatching", "Training", "Collecting", "Completed")
    assert stages == [stage for stage in order if stage in stages]
    assert {"Partitioning", "Completed"} <= set(stages)
    for phase in (1, 2, 3, 4, 5):
        assert f"\nPhase {phase}/5 finished\n" in output
    for index in (0, 1):
        assert f"trains on tiny-worker-{index} ['part{index}', 'tiny.json']" in output
    assert (job.output / "model.pt").read_text() == "0"
    assert (job.output / "tiny-worker-1/model.pt").read_text() == "1"
    assert sorted(path.name for path in job.workdir.iterdir()) == [".dglrun-local", "output"]
    assert traces(job) == []


@NEEDS_ROOT
def test_a_workspace_on_the_dataset_volume_is_shared_by_all_pods(job: LocalJob) -> None:
    """No part is sent on either hop, and the models come home once, though each worker has the folder."""
    shared = job.folder / "shared"
    shared.mkdir()
    volume = {"mountPath": "/dgl_workspace", "hostPath": {"path": str(shared)}}
    job.write(workers=2, datasetVolume=volume)

    code, output = job.run()

    assert code == 0, output
    assert output.count("files in /dgl_workspace/dataset: nothing has to be sent") == 3
    for index in (0, 1):
        assert f"trains on tiny-worker-{index} ['part0', 'part1', 'tiny.json']" in output
    assert sorted(path.name for path in job.output.iterdir()) == ["model.pt"]
    assert len(list(shared.glob("dataset/part*/graph.dgl"))) == 2
    assert all(path.is_symlink() for path in (shared / "workload").iterdir())
    assert not list(shared.rglob(".dglrun-shared-*"))


@NEEDS_ROOT
def test_a_second_run_begins_where_the_first_has_failed(job: LocalJob) -> None:
    """Checkpoints in a folder of this machine outlive the pods of the first run."""
    saves = """
folder = Path(os.environ["DGL_CHECKPOINT_DIR"])
found = sorted(path.name for path in folder.iterdir())
print("begins after", found, flush=True)
(folder / "epoch-1.tmp").write_text("weights")
(folder / "epoch-1.tmp").replace(folder / "epoch-1.pt")
Path("/kept/saved-" + os.environ["RANK"]).touch()
while len(list(Path("/kept").glob("saved-*"))) < 2:
    time.sleep(0.05)
if not found:
    os._exit(3)
"""
    (job.folder / "volume").mkdir()
    worker = a_template(volumeMounts=[{"name": "kept", "mountPath": "/kept"}])
    worker["spec"]["volumes"] = [{"name": "kept", "hostPath": {"path": f"{job.folder}/volume"}}]
    job.write("--checkpoints=/kept", workers=2, more=saves, worker=worker)

    failed, first = job.run()
    code, second = job.run()

    assert (failed, code) == (3, 0), first + second
    assert set(re.findall(r"begins after (.*)", first)) == {"[]"}
    assert set(re.findall(r"begins after (.*)", second)) == {"['epoch-1.pt']"}


@NEEDS_ROOT
def test_a_pod_sees_nothing_of_the_others_and_leaves_nothing_on_the_machine(job: LocalJob) -> None:
    """Not their processes and addresses; what it writes outside its mounts goes with it."""
    probe = (
        "names = [p.read_bytes() for p in Path('/proc').glob('[0-9]*/cmdline')]\n"
        "print('others:', sum(b'--train-entry-point' in name for name in names), flush=True)\n"
        "Path('/etc/of-the-pod').write_text('x')\n"
        "print('hosts:', 'tiny-worker-0' in Path('/etc/hosts').read_text(), flush=True)\n"
        "print('bridge:', 'dgl0' in Path('/proc/net/dev').read_text(), flush=True)\n"
    )
    with tempfile.NamedTemporaryFile(dir="/tmp") as of_the_machine:
        job.write(
            workers=1, more=probe + f"print('tmp:', Path('{of_the_machine.name}').exists(), flush=True)"
        )
        code, output = job.run()

    assert code == 0, output
    for expected in ("others: 0", "hosts: True", "bridge: False", "tmp: False"):
        assert expected in output
    assert not Path("/etc/of-the-pod").exists()
    assert traces(job) == []


@NEEDS_ROOT
def test_a_worker_whose_own_command_ends_is_a_lost_pod(job: LocalJob) -> None:
    """Its processes end with it, and the launcher says which pod it was."""
    wait = "while [ ! -e end ]; do sleep 0.1; done; exit 3"
    worker = a_template(command=["sh", "-c", wait])
    job.write("--lease=10", worker=worker, more="Path('end').touch()\ntime.sleep(600)")

    code, output = job.run()

    assert code == 75, output
    assert "pod tiny-worker-0 has ended: container main exited with 3" in output


@NEEDS_ROOT
def test_a_pod_that_comes_or_goes_does_not_change_the_address_of_the_api_server() -> None:
    """A bridge takes the lowest of its pods': when that pod went, the others sent to nobody for a minute."""
    code = (
        "import subprocess\n"
        "from dglrun.commands.local import isolated\n"
        "assert isolated.enter(True)\n"
        "isolated.Sandboxes(True, None)\n"
        "run = lambda *words: subprocess.run(('ip', *words), check=True)\n"
        "run('link', 'add', 'low', 'address', '02:00:00:00:00:01', 'type', 'veth', 'peer', 'name', 'end')\n"
        "run('link', 'set', 'low', 'master', isolated.BRIDGE)\n"
        "run('-brief', 'link', 'show', isolated.BRIDGE)\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    assert isolated.hardware_address(isolated.API_SERVER) in done.stdout.split()


@pytest.mark.parametrize(
    ("ip", "expected"), [("10.201.0.1", "02:00:0a:c9:00:01"), ("10.201.4.250", "02:00:0a:c9:04:fa")]
)
def test_a_pod_that_replaces_another_has_its_hardware_address(ip: str, expected: str) -> None:
    """It has the IP of the other, which others have noted together with that address."""
    assert isolated.hardware_address(ip) == expected


@NEEDS_ROOT
def test_a_failing_trainer_gives_the_run_its_code(job: LocalJob) -> None:
    """The words of the launcher stand in the log."""
    job.write(workers=2, more="os._exit(7) if os.environ['RANK'] == '1' else time.sleep(600)")

    code, output = job.run()

    assert code == 7
    assert "tiny-worker-1: trainer 0 (rank 1) ended with exit code 7" in output
    assert "dglrun local: failed: tiny-launcher has ended with 7" in output


@pytest.mark.parametrize("isolation", [pytest.param((), marks=NEEDS_ROOT), ("--no-isolation",)], ids=str)
def test_a_failing_partition_script_ends_the_run_before_the_workers(
    job: LocalJob, isolation: tuple[str, ...]
) -> None:
    """With its own code."""
    job.write()
    (job.folder / "code/part.py").write_text("raise SystemExit(9)")

    code, output = job.run(*isolation)

    assert code == 9
    assert "dglrun local: failed: tiny-partitioner has ended with 9" in output
    assert "worker" not in output.replace("--num-workers", "")


@pytest.mark.parametrize("flags", [(), ("--no-isolation",)], ids=str)
def test_one_worker_needs_no_namespaces(job: LocalJob, flags: tuple[str, ...]) -> None:
    """And no root; paths of the workspace are found in the pod's folder."""
    job.write("--output-dir=/dgl_workspace/output")

    code, output = job.run(*flags, before=() if flags else NOBODY)

    assert code == 0, output
    assert "trains on " in output
    assert (job.output / "model.pt").read_text() == "0"


def test_two_workers_without_root_are_refused(job: LocalJob) -> None:
    """In one line that says how."""
    job.write(workers=2)

    code, output = job.run(before=NOBODY)

    assert code == 2
    assert "Worker.replicas: expected 1 without namespaces, got 2: run as root, where" in output


@pytest.mark.parametrize("isolation", [pytest.param((), marks=NEEDS_ROOT), ("--no-isolation",)], ids=str)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=str)
def test_a_signal_ends_everything(
    job: LocalJob, isolation: tuple[str, ...], number: signal.Signals, code: int
) -> None:
    """The launcher ends its run first, as when the kubelet deletes it."""
    job.write(more=HANG)

    with job.started(*isolation) as process:
        wait_until(process, "now")
        process.send_signal(number)
        ended, output = finish(process)

    assert ended == code
    assert "nothing was left running" in output


@NEEDS_ROOT
def test_what_a_killed_run_leaves_is_removed_by_the_next(job: LocalJob) -> None:
    """The kernel ends its pods; files of theirs are all that is left, and the output is kept."""
    job.write(more=HANG)
    with job.started() as process:
        wait_until(process, "now")
        process.kill()
        process.wait()
        wait_for("all its processes have ended", lambda: not job.processes())
    assert (job.workdir / "pods").exists()
    assert traces(job) == []
    (job.output / "model.pt").write_text("earlier")
    job.write()

    code, output = job.run()

    assert code == 0, output
    assert "removed the files of an earlier run" in output
    assert (job.workdir / "output.1/model.pt").read_text() == "earlier"
    assert not (job.workdir / "pods").exists()


def test_a_second_run_in_the_same_folder_is_refused(job: LocalJob) -> None:
    """Its output would mix with the first one's."""
    job.write(more=HANG)

    with job.started("--no-isolation") as process:
        wait_until(process, "now")
        code, output = job.run("--no-isolation")
        process.terminate()
        finish(process)

    assert code == 2
    assert "another run uses" in output


def test_a_folder_of_something_else_is_refused(job: LocalJob) -> None:
    """Nothing in it is touched."""
    job.write()
    job.workdir.mkdir()
    (job.workdir / "pods").write_text("mine")

    code, output = job.run()

    assert code == 2
    assert "expected an empty folder or one of an earlier run" in output
    assert (job.workdir / "pods").read_text() == "mine"


@pytest.mark.parametrize("isolation", [pytest.param((), marks=NEEDS_ROOT), ("--no-isolation",)], ids=str)
def test_skip_trains_in_the_launcher_alone(job: LocalJob, isolation: tuple[str, ...]) -> None:
    """Its output comes home, too."""
    launcher = a_template(command=["dglrun"], args=["--train-entry-point=code/skip.py"])
    job.write(mode=Mode.SKIP, launcher=launcher)
    (job.folder / "code/skip.py").write_text(
        "import os\nfrom pathlib import Path\nPath(os.environ['DGL_OUTPUT_DIR'], 'm').write_text('s')\n"
    )

    code, output = job.run(*isolation)

    assert code == 0, output
    assert (job.output / "m").read_text() == "s"


@NEEDS_ROOT
@NEEDS_MPI
def test_mpi_ranks_of_dist_parmetis_run_on_the_workers(job: LocalJob) -> None:
    """Started by kubexec.sh from the launcher, without a partitioner; they meet over the pods' network."""
    launcher = a_template(command=["python3", "code/mpi.py"])
    job.write(workers=2, mode=Mode.DIST_PARMETIS, launcher=launcher)
    (job.folder / "code/mpi.py").write_text(MPI)

    code, output = job.run()

    assert code == 0, output
    assert "tiny-partitioner" not in output
    assert sorted(re.findall(r"^rank (\d) of 2 on (\S+)$", output, re.M)) == [
        ("0", "tiny-worker-0"),
        ("1", "tiny-worker-1"),
    ]


@NEEDS_ROOT
def test_keep_keeps_the_pods_files(job: LocalJob) -> None:
    """Each worker's part, for whoever looks for a mistake."""
    job.write()

    code, output = job.run("--keep")

    assert code == 0, output
    assert (job.workdir / "pods/tiny-worker-0/volumes/workspace/workload/tiny.json").exists()


def test_a_mount_that_is_not_there_is_refused(job: LocalJob) -> None:
    """Before any pod is made."""
    job.write()

    code, output = job.run("--mount", "/nowhere:/data")

    assert (code, "got /nowhere" in output) == (2, True)
