"""watcher-loop as a process: environment in, exit code, log and termination message out."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dglrun.contract.hostfile import Host
from tests.support import fake_api_server
from tests.support.fake_api_server import NAMESPACE, ApiServer
from tests.support.wait import read_until
from tests.unit.dglrun.pod_waiter import builders

ROOT = Path(__file__).parents[4]

# The mounts of a pod (service account, termination log) lie elsewhere in a test; all else is the program.
START = """
import runpy, sys
from pathlib import Path
import dglrun.kube.access as access
access.ACCOUNT = Path(sys.argv[1])
import dglrun.pod_waiter.program as program
program.main.__defaults__ = (Path(sys.argv[1]) / "termination-log",)
runpy.run_module("dglrun.pod_waiter", run_name="__main__")
"""


class Watcher:
    """A running watcher-loop."""

    def __init__(self, server: ApiServer, folder: Path, mode: str, **env: str) -> None:
        self.file = folder / "hostfile"
        self.file.touch()
        self.termination_log = folder / "termination-log"
        self.termination_log.touch()
        server.access()
        (folder / "namespace").write_text(NAMESPACE)
        self.process = subprocess.Popen(
            [sys.executable, "-c", START, str(folder)],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "KUBERNETES_SERVICE_HOST": "127.0.0.1",
                "KUBERNETES_SERVICE_PORT": str(server.port),
                "NAMESPACE": NAMESPACE,
                "WATCHERFILE": str(self.file),
                "WATCHERMODE": mode,
                **env,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, seconds: float = 120) -> tuple[int, str, str]:
        """Exit code, stdout and stderr."""
        out, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, out, err


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    with fake_api_server.running(tmp_path, tls=True) as running:
        (tmp_path / "ca.crt").write_bytes((tmp_path / "server.crt").read_bytes())
        yield running


def test_the_launcher_is_released_when_all_workers_are_ready(server: ApiServer, tmp_path: Path) -> None:
    """Twelve workers become Ready one after the other; the watcher ends with 0 after the last."""
    hosts = builders.workers(12)
    watcher = Watcher(server, tmp_path, "ready", WATCHER_EXPECTED="12")
    builders.publish(watcher.file, hosts)
    for host in hosts[:11]:
        server.put_pod(host.name, **builders.ready(host.ip))
    server.put_pod(hosts[11].name, **builders.unready(hosts[11].ip))
    read_until(watcher.process, "11 of 12 ready")

    assert watcher.process.poll() is None
    server.put_pod(hosts[11].name, **builders.ready(hosts[11].ip))
    code, out, err = watcher.end()

    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "watcher-loop: 12 of 12 ready"
    assert watcher.termination_log.read_text() == ""


@pytest.mark.parametrize("start", [(), builders.workers(2)])
def test_an_unfinished_file_is_read_again(server: ApiServer, tmp_path: Path, start: tuple[Host, ...]) -> None:
    """An empty or short hostfile never starts a training."""
    hosts = builders.workers(3)
    builders.make_ready(server, hosts)
    watcher = Watcher(server, tmp_path, "ready", WATCHER_EXPECTED="3")
    builders.publish(watcher.file, start)
    read_until(watcher.process, f"{len(start)} of 3 lines")

    builders.publish(watcher.file, hosts)

    assert watcher.end()[0] == 0


def test_a_file_that_does_not_match_the_live_pods_is_waited_out(server: ApiServer, tmp_path: Path) -> None:
    """The mounted copy may be older than the pods: the line must hold the pod's own IP."""
    hosts = builders.workers(2)
    builders.make_ready(server, hosts)
    watcher = Watcher(server, tmp_path, "ready", WATCHER_EXPECTED="2")
    builders.publish(watcher.file, (hosts[0], Host("10.9.9.9", 30050, "job-worker-1", 1)))
    read_until(watcher.process, "1 of 2 ready")

    assert watcher.process.poll() is None
    builders.publish(watcher.file, hosts)

    assert watcher.end()[0] == 0


def test_a_failed_partitioner_ends_the_wait_with_its_words(server: ApiServer, tmp_path: Path) -> None:
    """Exit 75 at once; pod, container, code and last log lines are on stderr and in the termination log."""
    watcher = Watcher(server, tmp_path, "finished", WATCHER_EXPECTED="1")
    builders.publish(watcher.file, (Host("10.0.0.1", 30050, "job-partitioner"),))
    server.put_pod("job-partitioner", phase="Running", podIP="10.0.0.1")
    read_until(watcher.process, "0 of 1 finished")

    server.put_pod("job-partitioner", **builders.failed(3, "no such column: label"))
    code, _, err = watcher.end()

    words = "pod job-partitioner failed: container main exited with 3 (Error): no such column: label"
    assert (code, err) == (75, f"watcher-loop: {words}\n")
    assert watcher.termination_log.read_text() == words


def test_a_partitioner_that_succeeded_releases_the_launcher(server: ApiServer, tmp_path: Path) -> None:
    """The partfile comes late, and the pod is deleted right after its success."""
    watcher = Watcher(server, tmp_path, "finished", WATCHER_EXPECTED="1")
    server.put_pod("job-partitioner", phase="Running", podIP="10.0.0.1")
    read_until(watcher.process, "0 of 1 lines")
    builders.publish(watcher.file, (Host("10.0.0.1", 30050, "job-partitioner"),))
    read_until(watcher.process, "0 of 1 finished")

    server.put_pod("job-partitioner", phase="Succeeded", podIP="10.0.0.1")
    server.delete_pod("job-partitioner")

    assert watcher.end()[0] == 0


def test_a_worker_that_vanishes_ends_the_wait(server: ApiServer, tmp_path: Path) -> None:
    """A deleted worker is a loss, even when it was Ready, and even when a new one takes its name."""
    hosts = builders.workers(2)
    watcher = Watcher(server, tmp_path, "ready", WATCHER_EXPECTED="2")
    server.put_pod("job-worker-0", **builders.ready(hosts[0].ip))
    server.put_pod("job-worker-1", **builders.unready(hosts[1].ip))
    builders.publish(watcher.file, hosts)
    read_until(watcher.process, "1 of 2 ready")

    server.delete_pod("job-worker-0")
    server.put_pod("job-worker-0", uid="another", **builders.ready(hosts[0].ip))
    code, _, err = watcher.end()

    assert code == 75
    assert "pod job-worker-0 vanished" in err


def test_an_api_server_that_restarts_is_waited_out(server: ApiServer, tmp_path: Path) -> None:
    """Cut watches and a spell of 503 delay the wait and change nothing else."""
    hosts = builders.workers(1)
    watcher = Watcher(server, tmp_path, "ready", WATCHER_EXPECTED="1")
    builders.publish(watcher.file, hosts)
    server.wait_for_request("watch=1")
    server.break_next(503, times=3)
    server.forget_history()

    builders.make_ready(server, hosts)

    assert watcher.end()[0] == 0


@pytest.mark.parametrize("lines", [0, 2])
def test_pods_that_never_appear_end_the_wait(server: ApiServer, tmp_path: Path, lines: int) -> None:
    """Neither a file that stays empty nor a line without a pod is waited for without end."""
    watcher = Watcher(server, tmp_path, "ready", WATCHER_EXPECTED="2", WATCHER_APPEAR_TIMEOUT_SECONDS="1")
    builders.publish(watcher.file, builders.workers(lines))

    code, _, err = watcher.end()

    assert code == 124
    assert "not all pods appeared within 1 s" in err


def test_403_is_waited_out(server: ApiServer, tmp_path: Path) -> None:
    """The Role comes after the pods: the wait goes on while the API server refuses, and ends well after."""
    hosts = builders.workers(2)
    builders.make_ready(server, hosts)
    server.forbid(hosts[1].name)
    watcher = Watcher(server, tmp_path, "ready", WATCHER_EXPECTED="2")
    builders.publish(watcher.file, hosts)
    read_until(watcher.process, "1 of 2 ready")
    server.wait_for_request("job-worker-1", times=2)

    assert watcher.process.poll() is None
    server.allow(hosts[1].name)

    code, _, err = watcher.end()
    assert (code, err) == (0, "")


def test_a_malformed_file_is_named_with_its_line(server: ApiServer, tmp_path: Path) -> None:
    """A shifted column is an error, never a host."""
    watcher = Watcher(server, tmp_path, "ready", WATCHER_EXPECTED="1")
    fresh = tmp_path / "fresh"
    fresh.write_text(" 30050 job-worker-0 slots=1\n")
    fresh.rename(watcher.file)

    code, _, err = watcher.end()

    assert code == 65
    assert "line 1: expected an IPv4 address" in err


def test_more_lines_than_expected_are_an_error(server: ApiServer, tmp_path: Path) -> None:
    """The file and the job must agree about the number of workers."""
    watcher = Watcher(server, tmp_path, "ready", WATCHER_EXPECTED="2")
    builders.publish(watcher.file, builders.workers(3))

    code, _, err = watcher.end()

    assert code == 65
    assert "expected 2 lines, found 3" in err


def test_a_wrong_environment_is_told_line_by_line(server: ApiServer, tmp_path: Path) -> None:
    """Exit 2, as for any wrong usage."""
    watcher = Watcher(server, tmp_path, "done")

    code, _, err = watcher.end()

    assert code == 2
    assert "WATCHERMODE: expected ready or finished, got 'done'" in err


def test_sigterm_ends_it_at_once(server: ApiServer, tmp_path: Path) -> None:
    """A deleted launcher does not wait out its grace period."""
    watcher = Watcher(server, tmp_path, "ready", WATCHER_EXPECTED="1")
    builders.publish(watcher.file, builders.workers(1))
    server.wait_for_request("watch=1")

    watcher.process.send_signal(signal.SIGTERM)
    code, _, err = watcher.end()

    assert (code, err) == (143, "watcher-loop: ended by a signal\n")


def test_hundreds_of_workers_are_watched_in_little_memory(server: ApiServer, tmp_path: Path) -> None:
    """300 watches over TLS at once: it ends with 0 and stays below 100 MB."""
    hosts = builders.workers(300)
    builders.make_ready(server, hosts[:299])
    watcher = Watcher(server, tmp_path, "ready", WATCHER_EXPECTED="300")
    builders.publish(watcher.file, hosts)
    read_until(watcher.process, "299 of 300 ready")

    status = Path(f"/proc/{watcher.process.pid}/status").read_text()
    peak = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
    builders.make_ready(server, hosts)

    assert watcher.end()[0] == 0
    assert peak < 100_000
