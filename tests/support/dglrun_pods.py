"""Pods as folders of this machine: everything of dglrun is real but kubectl and the API server.

The stand-in for kubectl runs `exec` locally in the pod's folder, without any way in between that knows of
dglrun; so connections, agents, signals, files and exit codes are the real ones.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dglrun.contract import version
from tests.support.wait import wait_for

ROOT = Path(__file__).parents[2]

ENDING_SECONDS = 30.0
"""Until a dglrun that a failed test has left running has ended what it started."""

MAIN: tuple[str, ...] = ("-m", "tests.support.dglrun_main")

OLDER_AGENTS = """
import runpy
from dglrun.workflow.worker_connection import WorkerConnection
WorkerConnection.sends_output = False
runpy.run_module("tests.support.dglrun_main", run_name="__main__", alter_sys=True)
"""
"""A launcher whose agents do not send the output, as those of release 0.2."""

KUBECTL = """#!/bin/sh
# exec -i -n NAMESPACE POD -c CONTAINER -- COMMAND...
root=$(dirname "$0")
[ "$1" = exec ] || exit 64
pod=$5; container=$7; shift 8
echo "$pod $container $*" | head -n 1 >>"$root/execs"
[ -e "$root/$pod" ] || { echo "Error from server (NotFound): pods \\"$pod\\" not found" >&2; exit 1; }
cd "$root/$pod" || exit 1
export TMPDIR="$root/tmp.$pod" && mkdir -p "$TMPDIR"
[ ! -x "$root/before_exec" ] || "$root/before_exec" "$pod" "$@" || exit 1
[ ! -x "$root/wrap" ] || exec "$root/wrap" "$pod" "$@"
exec "$@"
"""


@dataclass
class Pods:
    """The pods of one job below a folder.

    Attributes:
        root: A folder for each pod, the stand-in for kubectl, the API server's state.
        job: The job's name.
        workers: How many workers there are.
    """

    root: Path
    job: str = "job"
    workers: int = 2
    ips: tuple[str, ...] = ()
    _started: list[subprocess.Popen[str]] = field(default_factory=list)
    _main: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for pod in (f"{self.job}-launcher", f"{self.job}-partitioner", *self.names):
            (self.root / pod).mkdir(parents=True)
        (self.root / "shm").mkdir()
        (self.root / "termination-log").touch()
        kubectl = self.root / "kubectl"
        kubectl.write_text(KUBECTL)
        kubectl.chmod(0o755)
        self.write_cluster()

    @property
    def names(self) -> tuple[str, ...]:
        """The workers' names."""
        return tuple(f"{self.job}-worker-{index}" for index in range(self.workers))

    @property
    def launcher(self) -> Path:
        """The launcher's folder."""
        return self.root / f"{self.job}-launcher"

    def worker(self, index: int) -> Path:
        """A worker's folder."""
        return self.root / self.names[index]

    def write_cluster(self, **changed: dict[str, Any] | None) -> None:
        """Say what the API server knows; pods set to None do not exist."""
        watcher = {"name": "watcher-loop-partitioner", "state": {"running": {"startedAt": "now"}}}
        launcher = {"initContainerStatuses": [watcher], "podIP": "127.0.0.1"}
        pods: dict[str, dict[str, Any] | None] = {f"{self.job}-launcher": {"phase": "Pending", **launcher}}
        for index, name in enumerate(self.names):
            ip = self.ips[index] if self.ips else "127.0.0.1"
            pods[name] = {"phase": "Running", "podIP": ip}
        pods.update({name.replace("_", "-"): status for name, status in changed.items()})
        part = self.root / "cluster.part"
        part.write_text(json.dumps(pods))
        part.replace(self.root / "cluster.json")

    def lose(self, index: int, **status: Any) -> None:
        """End all processes of a worker and take its disk; its pod is gone, unless a status is given."""
        name = self.names[index]
        self.write_cluster(**{name: status or None})
        # One that is not gone yet may still write, or start another: the folder would stay.
        wait_for(f"the end of all in {name}", lambda: not self._kill(name))
        for path in (self.root / name, self.root / f"tmp.{name}"):
            shutil.rmtree(path, ignore_errors=True)

    def _kill(self, name: str) -> list[int]:
        """End the processes of a pod; returns those that were there."""
        found = []
        for pid in self.processes():
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/cwd").readlink().name == name:
                    os.kill(pid, signal.SIGKILL)
                    found.append(pid)
        return found

    def replace(self, index: int, uid: str) -> None:
        """Another pod takes the place of a worker that was lost."""
        self.worker(index).mkdir()
        ready = [{"type": "Ready", "status": "True"}]
        ip = self.ips[index] if self.ips else "127.0.0.1"
        new = {"phase": "Running", "podIP": ip, "uid": uid, "conditions": ready}
        self.write_cluster(**{self.names[index]: new})

    def environment(self, phase: str | None = None, **more: str) -> dict[str, str]:
        """What the operator sets in a pod."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("DGL_")}
        found = {
            **kept,
            "PYTHONPATH": str(ROOT),
            "DGL_OPERATOR_ENV": "1",
            "DGL_OPERATOR_JOB_NAME": self.job,
            "DGL_OPERATOR_CONTRACT_VERSION": str(version.CURRENT),
            "DGL_OPERATOR_NAMESPACE": "tests",
            "DGL_OPERATOR_IMAGE": "registry.example.org/job:1",
            "DGL_OPERATOR_NUM_WORKERS": str(self.workers),
            "DGL_OPERATOR_WORKER_CONTAINER": "main",
            "DGL_OPERATOR_KUBECTL_PATH": str(self.root / "kubectl"),
            "DGL_OPERATOR_REPORT": f"{self.job}-report",
            **more,
        }
        return found | ({"DGL_OPERATOR_PHASE_ENV": phase} if phase else {})

    @contextmanager
    def started(
        self, *args: str, phase: str | None = None, where: str = "launcher", **env: str
    ) -> Iterator[subprocess.Popen[str]]:
        """`dglrun <args>` in a pod; ended if it still runs."""
        argv = [sys.executable, *(self._main or MAIN), str(self.root), *args]
        process = subprocess.Popen(
            argv,
            cwd=self.root / f"{self.job}-{where}",
            env=self.environment(phase, **env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            process.terminate()  # a dglrun that is just killed leaves what it has started, such as mpirun
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(ENDING_SECONDS)
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()

    def run(self, *args: str, phase: str | None = None, where: str = "launcher", **env: str) -> "Done":
        """`dglrun <args>` in a pod, to its end."""
        with self.started(*args, phase=phase, where=where, **env) as process:
            return self.finish(process)

    def finish(self, process: subprocess.Popen[str], seconds: float = 240) -> "Done":
        """Wait for the end of a started dglrun; its output goes on where `read_until` stopped."""
        start = time.monotonic()
        output = _rest(process, seconds)
        process.wait(ENDING_SECONDS)
        message = (self.root / "termination-log").read_text()
        return Done(process.returncode, output, message, time.monotonic() - start)

    def give_partition(self, parts: int | None = None, graph: str = "tiny") -> None:
        """A partition folder in the launcher's dataset volume, in form only."""
        folder = self.launcher / "dataset"
        write_partition(folder, self.workers if parts is None else parts, graph)

    def script(self, text: str, name: str = "train.py") -> str:
        """A script that every pod can run; returns its path."""
        path = self.root / name
        path.write_text(text)
        return str(path)

    def reports(self) -> list[dict[str, Any]]:
        """The progress that was reported, in order."""
        return [json.loads(item["progress.json"]) for item in self._reported() if "progress.json" in item]

    def quality(self) -> dict[str, Any] | None:
        """The partition's quality that was reported, if any."""
        found = [json.loads(item["partition.json"]) for item in self._reported() if "partition.json" in item]
        return found[-1] if found else None

    def _reported(self) -> list[dict[str, str]]:
        """What was written into the report; of a line that is being written nothing."""
        path = self.root / "reports"
        whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
        return [json.loads(line)["data"] for line in whole.splitlines()]

    def processes(self) -> dict[int, str]:
        """Living processes of the agents below the root, by pid."""
        found = {}
        for path in Path("/proc").iterdir():
            if path.name.isdigit() and (line := _command_line(path)) and self._is_ours(path, line):
                found[int(path.name)] = line
        return found

    def have_older_agents(self) -> None:
        """Let the output be asked for by kubectl: the agents do not send it."""
        main = self.root / "older_agents.py"
        main.write_text(OLDER_AGENTS)
        self._main = (str(main),)

    def stop_api_server(self) -> None:
        """Refuse each exec from now on, and know of no pod."""
        (self.root / "cluster.json").write_text("the API server is away")
        refuse = self.root / "before_exec"
        refuse.write_text('#!/bin/sh\necho "connection refused" >&2; exit 1\n')
        refuse.chmod(0o755)

    def put_proxies(self) -> None:
        """Let the launcher reach agents through proxies, whose connections can be broken."""
        wrap = self.root / "wrap"
        wrap.write_text(
            '#!/bin/sh\npod=$1; shift\ncase "$*" in *dglrun.agent) ;; *) exec "$@" ;; esac\n'
            f'exec {sys.executable} -m tests.support.tcp_proxy "{self.root}/proxy.$pod" "$@"\n'
        )
        wrap.chmod(0o755)

    def break_connection(self, index: int) -> None:
        """Break the connection to a worker's agent, as a network does that loses its state."""
        os.kill(int((self.root / f"proxy.{self.names[index]}").read_text()), signal.SIGUSR1)

    def agent_pid(self, index: int) -> int:
        """The process of a worker's agent."""
        (lock,) = (self.root / f"tmp.{self.names[index]}").glob("dglrun-agent-*/lock")
        return int(lock.read_text())

    def _is_ours(self, path: Path, line: str) -> bool:
        try:
            inside = (path / "cwd").readlink().is_relative_to(self.root)
        except OSError:
            return False
        return inside and "dglrun_main" not in line


@dataclass(frozen=True)
class Done:
    """How a dglrun has ended."""

    code: int
    output: str
    message: str
    seconds: float


def write_partition(folder: Path, parts: int, graph: str = "tiny") -> None:
    """A partition folder with the names of DGL's, and made-up content that differs from part to part."""
    folder.mkdir(parents=True, exist_ok=True)
    config: dict[str, Any] = {"graph_name": graph, "num_parts": parts}
    for part in range(parts):
        names = ("node_feat.dgl", "edge_feat.dgl", "graph.dgl")
        (folder / f"part{part}").mkdir(exist_ok=True)
        for name in names:
            (folder / f"part{part}" / name).write_bytes(f"{part} {name}\n".encode() * 1000)
        keys = ("node_feats", "edge_feats", "part_graph")
        config[f"part-{part}"] = {key: f"part{part}/{name}" for key, name in zip(keys, names, strict=True)}
    (folder / f"{graph}.json").write_text(json.dumps(config))


def _rest(process: subprocess.Popen[str], seconds: float) -> str:
    """Read to the end, through the buffer that `read_until` has filled: communicate() would pass it by."""
    stream, found = process.stdout, list[str]()
    assert stream
    reader = threading.Thread(target=lambda: found.append(stream.read()), daemon=True)
    reader.start()
    reader.join(seconds)
    if reader.is_alive():
        raise subprocess.TimeoutExpired(process.args, seconds)
    return found[0]


def _command_line(path: Path) -> str:
    try:
        return (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
