"""The stand-in for kubectl: streams, exit codes and refusals pass through it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dglrun.commands.local import exec_client, exec_server
from dglrun.commands.local.exec_server import ExecRefused, ExecServer
from dglrun.transfer import kubectl
from dglrun.transfer.kubectl import Kubectl


@pytest.fixture
def kube(tmp_path: Path) -> Iterator[Path]:
    """A folder with kubectl, whose server runs commands in the folder `pod`."""
    (tmp_path / "pod").mkdir()
    folder = tmp_path / ("long-" * 40)
    folder.mkdir()

    def run(pod: str, container: str, argv: list[str]) -> tuple[list[str], dict[str, str], str | None]:
        if (pod, container) != ("pod", "main"):
            raise ExecRefused(f'Error from server (NotFound): pods "{pod}" not found')
        return argv, {"PATH": os.environ["PATH"], "OF_POD": "yes"}, str(tmp_path / "pod")

    for name, text in exec_server.programs(sys.executable, str(folder)).items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    server = ExecServer(folder, run)
    yield folder
    server.close()


def execute(
    kube: Path, *command: str, pod: str = "pod", said: str = ""
) -> "subprocess.CompletedProcess[str]":
    """As dglrun calls kubectl."""
    argv = Kubectl(str(kube / "kubectl"), "default").exec(pod, "main", *command)
    return subprocess.run(argv, input=said, capture_output=True, text=True, timeout=60, check=False)


def test_streams_and_exit_code_pass_through(kube: Path) -> None:
    """Both ways, with the pod's environment and folder, and not the caller's."""
    done = execute(kube, "sh", "-c", 'cat; echo "$OF_POD $HOME"; pwd >&2; exit 7', said="hello\n")

    assert (done.returncode, done.stdout) == (7, "hello\nyes \n")
    assert done.stderr.endswith("/pod\ncommand terminated with exit code 7\n")


def test_arguments_are_no_shells(kube: Path) -> None:
    """Quotes, blanks, dollars, lines and an empty word arrive as they are."""
    words = ["a b", "$HOME", "'\"", "two\nlines", "", "--"]

    done = execute(kube, sys.executable, "-c", "import sys; print(sys.argv[1:])", *words)

    assert done.stdout == f"{words}\n"


def test_a_process_that_a_signal_ended_gives_the_shells_code(kube: Path) -> None:
    """As kubectl does."""
    assert execute(kube, "sh", "-c", "kill -9 $$").returncode == 137


def test_a_program_that_is_not_there_is_127(kube: Path) -> None:
    """And named."""
    done = execute(kube, "no-such-program")

    assert done.returncode == 127
    assert "no-such-program" in done.stderr


def test_an_unknown_pod_is_refused_in_kubectls_words(kube: Path) -> None:
    """Which are those of an API server."""
    done = execute(kube, "true", pod="other")

    assert (done.returncode, done.stderr) == (1, 'Error from server (NotFound): pods "other" not found\n')


def test_without_its_server_it_is_a_connection_that_may_come_back(kube: Path) -> None:
    """As when an API server restarts."""
    (kube / "exec.sock").unlink()

    done = execute(kube, "true")

    assert done.returncode == 1
    assert not kubectl.has_reached(done.returncode, done.stderr)


def test_many_commands_run_at_the_same_time(kube: Path) -> None:
    """Each waits for a file that the last one makes."""
    wait = ("sh", "-c", 'echo up; read -r line; exit "$line"')
    argv = Kubectl(str(kube / "kubectl"), "default").exec("pod", "main", *wait)
    pipe = subprocess.PIPE
    started = [subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) for _ in range(8)]

    assert [process.stdout.readline() for process in started if process.stdout] == ["up\n"] * 8
    codes = [process.communicate(f"{code}\n") and process.returncode for code, process in enumerate(started)]

    assert codes == list(range(8))


@pytest.mark.parametrize(
    "argv",
    [
        ["get", "pods"],
        ["exec", "pod"],
        ["exec", "pod", "--"],
        ["exec", "a", "b", "--", "true"],
        ["exec", "-t", "a", "--", "b"],
    ],
)
def test_other_commands_of_kubectl_are_refused(argv: list[str]) -> None:
    """There is nothing else behind it."""
    assert exec_client.parse(argv) is None


def test_the_flags_of_kubexec_are_understood() -> None:
    """Long ones, and a container behind the pod."""
    line = ["exec", "--namespace", "ns", "pod", "-c", "main", "--", "/bin/sh", "-c", "a -i b"]

    assert exec_client.parse(line) == {
        "namespace": "ns",
        "pod": "pod",
        "container": "main",
        "command": ["/bin/sh", "-c", "a -i b"],
    }
