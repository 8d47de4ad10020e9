"""The mpirun command, on this machine and over pods, and how it ends."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dglrun.mpi import mpirun
from tests.cluster.daemons import running
from tests.support.dglrun_pods import ROOT
from tests.support.needs import NEEDS_MPI
from tests.support.wait import wait_for


def wait_until_gone(processes: Path) -> None:
    """Wait for the end of the two processes that left a file each: mpirun signals them and does not wait."""
    pids = [int(path.name) for path in processes.iterdir()]
    assert len(pids) == 2
    wait_for("the end of both ranks", lambda: not any(map(running, pids)))


@pytest.mark.mpi
@NEEDS_MPI
@pytest.mark.parametrize(("ending", "code"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", 137)])
def test_a_failed_rank_ends_all_with_its_code(ending: str, code: int) -> None:
    """The other rank waits in a barrier that never completes."""
    script = (
        f"import os, sys; from mpi4py import MPI; MPI.COMM_WORLD.rank and {ending}; MPI.COMM_WORLD.Barrier()"
    )
    job = mpirun.Job((sys.executable, "-m", "mpi4py", "-c", script), 2)

    assert mpirun.run(mpirun.argv(job), 300) == code


@pytest.mark.mpi
@NEEDS_MPI
def test_a_deadline_ends_every_rank(tmp_path: Path) -> None:
    """124, and no process stays."""
    for deadline in (3, 15, 60):  # on a busy machine ranks may take longer to start
        ranks = tmp_path / str(deadline)  # one that starts late does not count in the next turn
        ranks.mkdir()
        script = f"import os, time; open(f'{ranks}/{{os.getpid()}}', 'w').close(); time.sleep(600)"
        job = mpirun.Job((sys.executable, "-c", script), 2)

        assert mpirun.run(mpirun.argv(job), deadline) == 124
        if len(list(ranks.iterdir())) == 2:
            break
    wait_until_gone(ranks)


@pytest.mark.mpi
@NEEDS_MPI
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_every_rank(tmp_path: Path, number: signal.Signals) -> None:
    """As when the pod is deleted in the midst of a partition, or by Ctrl-C."""
    rank = f"import os, time; open(f'{tmp_path}/{{os.getpid()}}', 'w').close(); time.sleep(600)"
    job = f"mpirun.Job((sys.executable, '-c', {rank!r}), 2)"
    script = (
        "import sys; from dglrun.commands import program; from dglrun.mpi import mpirun;"
        f" sys.exit(program.run('test', lambda: mpirun.run(mpirun.argv({job}), 500)))"
    )
    started = subprocess.Popen((sys.executable, "-c", script), cwd=ROOT)
    wait_for("both ranks", lambda: len(list(tmp_path.iterdir())) == 2, 120)

    started.send_signal(number)

    assert started.wait(120) == 128 + number
    wait_until_gone(tmp_path)


RANKS = """
import os, sys, time
from mpi4py import MPI
open(f"{sys.argv[1]}/{os.getpid()}", "w").close()
time.sleep(600)
"""


@pytest.mark.mpi
@NEEDS_MPI
def test_sigkill_leaves_no_rank(tmp_path: Path) -> None:
    """Who is killed cannot tell mpirun, so the kernel does."""
    job = f"mpirun.Job((sys.executable, '-m', 'mpi4py', '-c', {RANKS!r}, {str(tmp_path)!r}), 2)"
    script = f"import sys; from dglrun.mpi import mpirun; sys.exit(mpirun.run(mpirun.argv({job}), 500))"
    started = subprocess.Popen((sys.executable, "-c", script), cwd=ROOT, start_new_session=True)
    wait_for("both ranks", lambda: len(list(tmp_path.iterdir())) == 2, 120)
    (child,) = Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split()

    started.kill()

    assert started.wait(120) != 0
    wait_until_gone(tmp_path)
    wait_for("the end of mpirun", lambda: not running(int(child)))


def test_the_command_for_pods_uses_the_agent_and_the_interface(tmp_path: Path) -> None:
    """No ssh, no tree spawn, one interface, absolute paths."""
    remote = mpirun.Remote(("job-worker-0", "job-worker-1"), "/etc/dgl/kubexec.sh", "eth0", slots=2)
    job = mpirun.Job(("/usr/bin/python3", "-m", "x"), 4, remote)

    argv = " ".join(mpirun.argv(job, tmp_path / "hosts"))

    assert mpirun.hostfile(remote) == "job-worker-0 slots=2\njob-worker-1 slots=2\n"
    for setting in (
        f"--hostfile {tmp_path}/hosts",
        "--allow-run-as-root",
        "--mca plm_rsh_agent /etc/dgl/kubexec.sh",
        "--mca plm_rsh_no_tree_spawn 1",
        "--mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0",
        "-np 4",
        "-x DGLRUN_WORLD_SIZE=4 -x OMP_NUM_THREADS=1 /usr/bin/python3 -m x",
    ):
        assert setting in argv
    assert "--oversubscribe" not in argv


@pytest.mark.parametrize(("cpus", "oversubscribed"), [(4, False), (2, True)])
def test_more_ranks_than_processors_are_allowed(cpus: int, oversubscribed: bool) -> None:
    """Open MPI refuses them otherwise."""
    argv = mpirun.argv(mpirun.Job(("x",), 4), cpus=cpus)

    assert ("--oversubscribe" in argv) is oversubscribed
