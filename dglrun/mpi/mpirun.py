"""The mpirun command: on this machine, or on pods through an exec script instead of ssh; and its run.

Written for Open MPI 4.1 (Debian 12). Facts behind the settings: without interface settings ranks can hang
on addresses that several pods share; with tree spawn the workers would need the exec script themselves;
binding to cores fails or piles up ranks in containers; cross-memory attach needs ptrace rights; a rank that
waits must not burn the CPU quota that another one needs.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from dglrun import cgroup
from dglrun.agent import ending_signals, prctl
from dglrun.contract import exitcodes
from dglrun.errors import BackendMissingError

WORLD_SIZE = "DGLRUN_WORLD_SIZE"
"""Variable by which mpirun's ranks are told how many they are; what MPI says must agree."""
RANK_ENV = {"OMP_NUM_THREADS": "1"}
"""What every rank gets: its parallelism is the ranks."""
INTERFACE = r"^[A-Za-z0-9_.:/,@-]+$"
"""A network interface: mpirun hands it to the agent in a line for a shell, between double quotes."""
KEEP_FREED = {"MALLOC_MMAP_THRESHOLD_": str(1 << 25), "MALLOC_TRIM_THRESHOLD_": str(1 << 28)}
"""glibc keeps freed blocks for the next round of an exchange instead of asking the kernel for zeroed pages
again: a tenth of a load's CPU time, for ranks whose peak comes later, in the partitioner."""
GRACE = 15.0
"""Seconds that mpirun has to end its ranks after SIGTERM."""


@dataclass(frozen=True)
class Remote:
    """Where ranks run if not on this machine.

    Attributes:
        hosts: Names that the agent understands (pods), in the order of the ranks.
        agent: Executable called as `agent <host> <command...>`, such as kubexec.sh.
        interface: Network interface of the pods, by name or CIDR.
        slots: Ranks on each host.

    Raises:
        ValueError: the interface is none.
    """

    hosts: tuple[str, ...]
    agent: str
    interface: str = "eth0"
    slots: int = 1

    def __post_init__(self) -> None:
        if not re.fullmatch(INTERFACE, self.interface):
            raise ValueError(
                f"interface: expected a name or a network such as 10.0.0.0/8, got {self.interface!r}"
            )


@dataclass(frozen=True)
class Job:
    """One mpirun.

    Attributes:
        program: What every rank runs, absolute paths.
        ranks: How many.
        remote: Other machines; None: this one.
        cwd: Working directory of the ranks.
        env: Names of variables given on to remote ranks, with their values.
        attached: Whether the streams to remote machines stay open for the daemons there. Then one that
            cannot start, or cannot reach mpirun, ends it at once with its words, but so does a broken stream.
    """

    program: tuple[str, ...]
    ranks: int
    remote: Remote | None = None
    cwd: str = "/"
    env: Mapping[str, str] = field(default_factory=lambda: RANK_ENV)
    attached: bool = False


def trial(remote: Remote, env: Mapping[str, str] = RANK_ENV) -> Job:
    """What shows within a second or two whether ranks can be started on all hosts.

    To be run before a long job: a detached daemon that fails says nothing, and mpirun waits for it.
    """
    return Job(("true",), len(remote.hosts), remote, env=env, attached=True)


def hostfile(remote: Remote) -> str:
    """Open MPI's hostfile."""
    return "".join(f"{host} slots={remote.slots}\n" for host in remote.hosts)


def argv(job: Job, hostfile_path: Path | None = None, cpus: int | None = None) -> tuple[str, ...]:
    """The command line.

    Args:
        job: What to run.
        hostfile_path: Where `hostfile` was written, for remote ranks.
        cpus: Slots of this machine; None: the CPU limit of this container.
    """
    slots = _slots(job, cpus)
    command = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "-np", str(job.ranks)]
    command += ["--mca", "btl_vader_single_copy_mechanism", "none"]
    command += ["--mca", "mpi_yield_when_idle", "1"]
    if job.ranks > slots:
        command.append("--oversubscribe")
    command += _places(job.remote, hostfile_path)
    if job.attached:
        command += ["--mca", "orte_leave_session_attached", "1"]
    command += ["-wdir", job.cwd]
    for name, value in sorted({**job.env, WORLD_SIZE: str(job.ranks)}.items()):
        command += ["-x", f"{name}={value}"]
    return (*command, *job.program)


def _slots(job: Job, cpus: int | None) -> int:
    if job.remote is not None:
        return job.remote.slots * len(job.remote.hosts)
    return cpus if cpus is not None else max(1, int(cgroup.cpu_limit()))


def _places(remote: Remote | None, hostfile_path: Path | None) -> list[str]:
    if remote is None:
        # ob1 by name: to probe for the fabrics that other layers want takes 0.2 s of every start.
        return ["--mca", "pml", "ob1", "--mca", "btl", "self,vader", "--mca", "oob_tcp_if_include", "lo"]
    return [
        *("--hostfile", str(hostfile_path)),
        *("--mca", "plm_rsh_agent", remote.agent, "--mca", "plm_rsh_no_tree_spawn", "1"),
        *("--mca", "btl_tcp_if_include", remote.interface),
        *("--mca", "oob_tcp_if_include", remote.interface),
        *("--mca", "orte_keep_fqdn_hostnames", "1"),
    ]


def require(package: str | None = "mpi4py") -> None:
    """Refuse to go on without Open MPI.

    Args:
        package: The Python package that the ranks need, too.

    Raises:
        BackendMissingError: there is no mpirun on PATH, or no such package.
    """
    lacking = [] if shutil.which("mpirun") else ["mpirun"]
    lacking += [package] if package and find_spec(package) is None else []
    if lacking:
        raise BackendMissingError(
            f"distributed partitioning needs {' and '.join(lacking)}, not found here; install "
            "(Debian) openmpi-bin python3-mpi4py"
        )


def run(command: Sequence[str], deadline: float) -> int:
    """Run mpirun to its end.

    A failed rank ends all: ranks are started by `python3 -m mpi4py`, which aborts them, and mpirun gives
    the rank's own code, 128 + n where signal n ended it. An exception in this process, such as Terminated,
    ends mpirun and the ranks before it goes on; so does its own end by SIGKILL.

    Args:
        command: From `argv`.
        deadline: Seconds; then mpirun and all ranks are ended.

    Returns:
        mpirun's exit code; 124 after the deadline.
    """
    process = None
    try:
        with ending_signals.put_off():  # until mpirun is known here: this process would go on without it
            process = _start(command)
        code = process.wait(deadline)
    except subprocess.TimeoutExpired:
        print(f"dglrun: mpirun had not ended after {deadline:g} s", file=sys.stderr, flush=True)
        return exitcodes.TIMEOUT
    finally:
        if process and process.poll() is None:
            _end(process)
    return code if code >= 0 else 128 - code


def _start(command: Sequence[str]) -> "subprocess.Popen[bytes]":
    """Start mpirun so that the kernel sends it SIGTERM when this process ends, however that happens.

    mpirun then ends its ranks. Where mpirun itself was killed, Open MPI ends them: they miss its daemon.
    """
    parent = os.getpid()

    def end_with_parent() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # or ours would put it off past the start of mpirun
        prctl.end_with_parent(signal.SIGTERM)
        if os.getppid() != parent:  # it ended before the kernel was told
            os._exit(exitcodes.SIGTERM)

    # The function takes no lock that another thread, such as the one that shows the time, may hold.
    # A group of its own: Ctrl-C reaches this process alone, which ends mpirun and says so once.
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        preexec_fn=end_with_parent,  # noqa: PLW1509
        process_group=0,
    )


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
