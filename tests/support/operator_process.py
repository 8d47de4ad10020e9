"""The operator as a process: the real entry point under an account that holds its rules and nothing else."""

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from tests.cluster.images import IMAGE
from tests.cluster.other import pulled
from tests.support.compiled import COMPILED, compile_modules
from tests.support.wait import wait_for

ROOT = Path(__file__).parents[2]
ALLOCATOR = {"PYTHONMALLOC": "malloc", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
"""As its image has it."""


class OperatorProcess:
    """One run of `python -m dgl_operator`.

    Attributes:
        log: Its standard error.
    """

    def __init__(self, kubeconfig: Path, namespace: str, log: Path, *flags: str) -> None:
        self.log = log
        self._health, self._metrics = _free_ports()
        argv = [
            *(sys.executable, "-m", "dgl_operator", "--namespace", namespace, "--log-format", "plain"),
            *(f"--{name}-image={pulled(IMAGE[name].tag)}" for name in ("watcher-loop", "kubectl-download")),
            *("--health-probe-bind-address", f"127.0.0.1:{self._health}"),
            *("--metrics-bind-address", f"127.0.0.1:{self._metrics}", *flags),
        ]
        path = os.pathsep.join([str(ROOT / "operator"), str(ROOT)])
        environment = {
            **os.environ,
            **ALLOCATOR,
            **COMPILED,
            "KUBECONFIG": str(kubeconfig),
            "PYTHONPATH": path,
        }
        compile_modules(ROOT / "operator", ROOT / "dglrun")
        with log.open("ab") as file:
            self._process = subprocess.Popen(argv, env=environment, stderr=file, stdout=file)

    def wait_ready(self) -> "OperatorProcess":
        """Wait until it watches; a process that ended instead is an error with its log."""
        wait_for("operator ready", lambda: self._is_ready() or None, 120)
        return self

    def wait_idle(self) -> None:
        """Wait until it has looked at everything that it knows of."""
        wait_for("operator idle", lambda: True if self._value("queue_depth") == 0 else None, 120)

    def reconciles(self) -> int:
        """How many looks it has taken."""
        return int(self._value("reconcile_seconds_count"))

    def errors(self) -> int:
        """How many looks failed and were tried again."""
        return int(self._value("reconcile_errors_total"))

    def kill(self) -> None:
        """End it as a lost node does."""
        self._process.kill()
        self._process.wait(60)

    def stop(self) -> int:
        """End it as the kubelet does; returns its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(60)

    @property
    def pid(self) -> int:
        """Its process ID."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it is alive."""
        return self._process.poll() is None

    def memory_mib(self) -> float:
        """Its resident memory, 0 once it has ended."""
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
        except OSError:
            return 0.0
        sizes = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")]
        return sizes[0] / 1024 if sizes else 0.0

    def poll(self) -> int | None:
        """Its exit code, None while it runs."""
        return self._process.poll()

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of a probe."""
        return _get(f"http://127.0.0.1:{self._health}{path}")

    def metrics(self) -> str:
        """All metrics.

        Raises:
            OSError: it gave no answer, or another than 200.
        """
        status, text = _get(f"http://127.0.0.1:{self._metrics}/metrics")
        if status != 200:
            raise OSError(f"/metrics: {status}: {text[:200]}")
        return text

    def _value(self, name: str) -> float:
        lines = [line for line in self.metrics().splitlines() if line.startswith(f"dgl_operator_{name} ")]
        return float(lines[0].split()[1])

    def _is_ready(self) -> bool:
        if not self.is_running:
            raise AssertionError(f"operator ended with {self._process.returncode}:\n{self.log.read_text()}")
        try:
            return self.get("/readyz")[0] == 200
        except OSError:
            return False


def _get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - http on this machine
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def _free_ports() -> tuple[int, int]:
    """Two different ones: the first is held until the second is known."""
    with socket.socket() as one, socket.socket() as other:
        for listener in (one, other):
            listener.bind(("127.0.0.1", 0))
        return one.getsockname()[1], other.getsockname()[1]
