"""`dglrun local` as a process, with scripts in the place of DGL's."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dglrun.contract.names import Mode
from tests.support.jobs import a_raw_job, a_template
from tests.support.wait import read_until

ROOT = Path(__file__).parents[2]

PARTITION = """
import argparse
from pathlib import Path
from tests.support.dglrun_pods import write_partition

parser = argparse.ArgumentParser()
for flag in ("--graph_name", "--workspace", "--rel_data_path"):
    parser.add_argument(flag)
parser.add_argument("--num_parts", type=int)
flags = parser.parse_args()
write_partition(Path(flags.workspace, flags.rel_data_path), flags.num_parts, flags.graph_name)
"""

TRAIN = """
import os, socket, time
from pathlib import Path

if os.environ["DGL_ROLE"] == "server":
    while not Path("trained").exists():
        time.sleep(0.05)
    os._exit(0)
assert Path(__file__).resolve().parent == Path("code").absolute()
part = sorted(path.name for path in Path("workload").iterdir())
print("trains on", socket.gethostname(), part, flush=True)
Path(os.environ["DGL_OUTPUT_DIR"], "model.pt").write_text(os.environ["RANK"])
{more}
Path("trained").touch()
os._exit(0)
"""

OWN_NETWORK = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
"""Runs without namespaces share the port of DGL's server: each has a loopback interface of its own here."""

FLAGS = ("--graph-name=tiny", "--partition-entry-point=code/part.py", "--train-entry-point=code/train.py")


@dataclass
class LocalJob:
    """A job's YAML and scripts in a folder.

    Attributes:
        folder: Where they lie.
    """

    folder: Path

    @property
    def workdir(self) -> Path:
        """The folder of its runs."""
        return self.folder / "run"

    @property
    def output(self) -> Path:
        """What a run leaves."""
        return self.workdir / "output"

    def write(
        self, *flags: str, workers: int = 1, more: str = "", mode: Mode = Mode.DGL_API, **spec: Any
    ) -> None:
        """Write a job that passes through all phases within seconds.

        Args:
            flags: More of dglrun's.
            workers: How many.
            more: Lines at the end of each trainer.
            mode: The partition mode.
            spec: More keys of the job's spec, or `launcher` and `worker`, the templates.
        """
        (self.folder / "code").mkdir(exist_ok=True)
        (self.folder / "code/part.py").write_text(PARTITION)
        (self.folder / "code/train.py").write_text(TRAIN.format(more=more))
        args = [*FLAGS, f"--num-partitions={workers}", "--verify=never", *flags]
        launcher = spec.pop("launcher", None) or a_template(command=["dglrun"], args=args)
        self.put(a_raw_job("tiny", workers=workers, mode=mode, launcher=launcher, **spec))

    def put(self, body: dict[str, Any]) -> None:
        """Write the job's YAML."""
        (self.folder / "job.yaml").write_text(yaml.safe_dump(body))

    @contextmanager
    def started(self, *flags: str, before: Sequence[str] = ()) -> Iterator[subprocess.Popen[str]]:
        """The run as a process; killed if it still runs at the end."""
        code = f"{self.folder}/code:/dgl_workspace/code"
        before = before if os.geteuid() else (*OWN_NETWORK, *before)
        argv = [*before, sys.executable, "-m", "dglrun", "local", "job.yaml", "--workdir", str(self.workdir)]
        process = subprocess.Popen(
            [*argv, "--mount", code, *flags],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()

    def run(self, *flags: str, before: Sequence[str] = ()) -> tuple[int, str]:
        """The run to its end; returns its exit code and its output."""
        with self.started(*flags, before=before) as process:
            return finish(process)

    def processes(self) -> list[str]:
        """Command lines of this machine's processes that run in a pod of the job, or make one."""
        found = []
        for path in Path("/proc").iterdir():
            if path.name.isdigit() and (line := self._of_run(path)):
                found.append(line)
        return found

    def _of_run(self, path: Path) -> str:
        try:
            line = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            variables = (path / "environ").read_bytes()
            mounts = (path / "mountinfo").read_text()
        except OSError:  # it has ended meanwhile
            return ""
        is_plain = f"{self.workdir}/".encode() in variables
        return line if is_plain or f"{self.workdir}/" in mounts else ""


def finish(process: "subprocess.Popen[str]", seconds: float = 300) -> tuple[int, str]:
    """Wait for the end of a started run; returns its exit code and the rest of its output."""
    output = process.communicate(timeout=seconds)[0]
    return process.returncode, output


def wait_until(process: "subprocess.Popen[str]", text: str) -> str:
    """Read the output up to a line with `text`."""
    return read_until(process, text)
