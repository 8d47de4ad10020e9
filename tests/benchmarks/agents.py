"""Many agents on one machine: what the launcher needs for them. `make bench ONLY=agents`; needs root.

`dglrun local` runs a job whose trainers only wait, each worker in namespaces of its own. CPU of the start is
that of all processes of the run (launcher, agents, stand-ins for kubectl and kubelet) while phase 4 lasts.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from dglrun.contract import names
from tests.support.local_runs import PARTITION
from tests.support.measured import TABLES, row
from tests.support.wait import wait_for

ROOT = Path(__file__).parents[2]
WORKERS = 100
HELD_SECONDS = 10.0
SECONDS = 600

TRAIN = """
import os, time
from pathlib import Path

if os.environ["DGL_ROLE"] == "client":
    print("waits for the benchmark", flush=True)
while not Path("code/go").exists():
    time.sleep(0.5)
os._exit(0)
"""


@dataclass(frozen=True)
class Sample:
    """The launcher while the training runs.

    Attributes:
        rss: Resident memory, bytes.
        peak: Its maximum since the start.
        threads: How many.
        kubectls: Processes of kubectl's stand-in, of all pods.
        cpu_share: CPU-seconds of the launcher in a second of the training.
    """

    rss: int
    peak: int
    threads: int
    kubectls: int
    cpu_share: float


@dataclass(frozen=True)
class Start:
    """The start of the agents (phase 4): wall and CPU seconds of all of it, and of the launcher."""

    wall: float
    cpu: float
    launcher_cpu: float


def rows(workers: int = WORKERS, held: float = HELD_SECONDS) -> Iterator[Sequence[str]]:
    """Measure once; the rows of the table.

    Args:
        workers: How many.
        held: For so many seconds the training is watched.

    Raises:
        SystemExit: the run fails.
    """
    if os.geteuid() != 0:
        raise SystemExit("agents: expected root: each worker needs namespaces of its own")
    with tempfile.TemporaryDirectory() as folder:
        start, sample = _measured(Path(folder), workers, held)
    yield ["workers, each with an agent, a server and a trainer", str(workers), ""]
    yield ["launcher's memory in training (most since its start)", _mib(sample.rss, sample.peak), "≤ 300 MiB"]
    yield ["launcher's threads", str(sample.threads), "≤ 250"]
    yield ["kubectl processes while training", str(sample.kubectls), "0"]
    yield ["CPU for each agent to start, all processes", f"{start.cpu / workers:.3f} s", "≤ 0.15 s"]
    yield ["of it a Python of this machine that does nothing", f"{_cpu_of_python():.3f} s", ""]
    yield ["of it in the launcher and its kubectl", f"{start.launcher_cpu / workers:.3f} s", ""]
    yield ["all agents started", f"{start.wall:.1f} s", ""]
    yield ["launcher's CPU in a second of training", f"{sample.cpu_share:.3f} s", ""]


def main(argv: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=WORKERS)
    args = parser.parse_args(argv)
    print(TABLES["agents"].head)
    for cells in rows(args.workers):
        print(row(cells), flush=True)
    return 0


def _measured(folder: Path, workers: int, held: float) -> tuple[Start, Sample]:
    _write_job(folder, workers)
    argv = [sys.executable, "-m", "dglrun", "local", "job.yaml", "--workdir", "run"]
    argv += ["--mount", "code:/dgl_workspace/code"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        argv, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            return _watch(process, folder, workers, held)
        finally:
            process.terminate()


def _cpu_of_python() -> float:
    """CPU-seconds of an interpreter's start and end, site packages' hooks included: the least of ten."""
    found = []
    for _ in range(10):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", ""], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


def _write_job(folder: Path, workers: int) -> None:
    code = folder / "code"
    code.mkdir()
    (code / "part.py").write_text(PARTITION)
    (code / "train.py").write_text(TRAIN)
    flags = ["--graph-name=agents", f"--num-partitions={workers}", "--verify=never"]
    flags += ["--partition-entry-point=code/part.py", "--train-entry-point=code/train.py"]
    launcher = {"name": "main", "image": "none", "command": ["dglrun"], "args": flags}
    roles = {"Launcher": (1, launcher), "Worker": (workers, {"name": "main", "image": "none"})}
    specs = {
        role: {"replicas": replicas, "template": {"spec": {"containers": [main]}}}
        for role, (replicas, main) in roles.items()
    }
    body = {"kind": names.KIND, "metadata": {"name": "agents"}, "spec": {"dglReplicaSpecs": specs}}
    (folder / "job.yaml").write_text(yaml.safe_dump(body))


def _watch(process: "subprocess.Popen[str]", folder: Path, workers: int, held: float) -> tuple[Start, Sample]:
    seen: list[str] = []
    _read_until(process, "Phase 4/5: ", seen)
    launcher = _launcher(process.pid)
    began, before, own = time.monotonic(), _cpu_of_all(process.pid), _cpu(launcher)
    _read_until(process, "Phase 4/5 finished", seen)
    wall, cpu = time.monotonic() - began, _cpu_of_all(process.pid) - before
    start = Start(wall, cpu, _cpu(launcher) - own)
    for _ in range(workers):
        _read_until(process, "waits for the benchmark", seen)
    sample = _sample(launcher, held)
    (folder / "code/go").touch()
    rest = process.communicate(timeout=SECONDS)[0]
    if process.returncode != 0:
        raise SystemExit(f"agents: the run has ended with {process.returncode}:\n{rest[-3000:]}")
    return start, sample


def _read_until(process: "subprocess.Popen[str]", text: str, seen: list[str]) -> None:
    for line in process.stdout or ():
        seen.append(line)
        if text in line:
            return
    raise SystemExit(f"agents: expected {text!r} in the output, got:\n{''.join(seen[-50:])}")


def _sample(launcher: int, held: float) -> Sample:
    """Look at the launcher and all processes for some seconds."""
    began, before = time.monotonic(), _cpu(launcher)
    kubectls = 0

    def is_over() -> bool:
        nonlocal kubectls
        kubectls = max(kubectls, sum("exec_client.py" in line for line in _command_lines().values()))
        return time.monotonic() - began >= held

    wait_for("the end of the watch", is_over, 10 * held + 60)
    share = (_cpu(launcher) - before) / (time.monotonic() - began)
    status = Path(f"/proc/{launcher}/status").read_text()
    found = {
        key: int(re.findall(rf"^{key}:\s+(\d+)", status, re.M)[0]) for key in ("VmRSS", "VmHWM", "Threads")
    }
    return Sample(found["VmRSS"] << 10, found["VmHWM"] << 10, found["Threads"], kubectls, share)


def _launcher(run: int) -> int:
    """The process of dglrun in the launcher's pod: the partitioner has ended by now."""
    lines = _command_lines()
    (found,) = [pid for pid in _descendants(run) if "-m dglrun --graph-name=agents" in lines.get(pid, "")]
    return found


def _cpu_of_all(run: int) -> float:
    """CPU-seconds of a run's processes, those that have ended included."""
    return sum(_cpu(pid) for pid in (run, *_descendants(run)))


def _descendants(run: int) -> list[int]:
    """Processes below one; also those that a process 1 of a pod has adopted."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        if (fields := _stat(int(path.name))) is not None:
            children.setdefault(int(fields[1]), []).append(int(path.name))
    found, left = list[int](), [run]
    while left:
        left += (below := children.get(left.pop(), []))
        found += below
    return found


def _cpu(pid: int) -> float:
    """User and system seconds of a process and of its children that have ended."""
    fields = _stat(pid)
    return 0.0 if fields is None else sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _command_lines() -> dict[int, str]:
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            found[int(path.name)] = (
                (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            )
        except OSError:
            continue
    return found


def _mib(size: int, peak: int) -> str:
    return f"{size >> 20} ({peak >> 20}) MiB"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
