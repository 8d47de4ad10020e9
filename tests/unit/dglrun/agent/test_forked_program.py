"""A fork of the agent that becomes another program: it has its order, and nothing of the agent's."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dglrun.agent import forked_program, process_group
from tests.support.dglrun_pods import ROOT
from tests.support.wait import wait_for

AGENT = """
import fcntl, os, signal, socket, sys, time
from dglrun.agent import prctl
from dglrun.agent.forked_program import ForkedProgram

lock = os.open("lock", os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_EX)
listener = socket.create_server(("127.0.0.1", 0))
signal.signal(signal.SIGTERM, lambda *_: None)
reader, writer = os.pipe2(os.O_NONBLOCK)
signal.set_wakeup_fd(writer)
keeper = ForkedProgram("program", sys.argv[1], "dglrun-keeper")
print(keeper.pid, flush=True)
"""
TELLS = """
import json, os, signal, sys
if __name__ == "__main__":
    told = {
        "order": sys.stdin.readline(),
        "files": sorted(os.readlink(f"/proc/self/fd/{each}") for each in (0, 1, 2)),
        "others": [each for each in os.listdir("/proc/self/fd") if int(each) > 3],
        "group": os.getpgid(0) == os.getpid(),
        "term": signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,
        "wakeup": signal.set_wakeup_fd(-1),
        "name": open("/proc/self/comm").read().strip(),
    }
    with open("told.part", "w") as file:
        json.dump(told, file)
    os.rename("told.part", "told")
"""


def an_agent(folder: Path, program: str, then: str, order: str = "order") -> "subprocess.Popen[str]":
    """A process with the files and signals of an agent, whose keeper is this program."""
    (folder / "program.py").write_text(program)
    argv = [sys.executable, "-c", AGENT + then, order]
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{folder}"}
    return subprocess.Popen(
        argv, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_it_has_its_order_and_nothing_of_the_agents(tmp_path: Path) -> None:
    """A lock or a connection that it held would outlive the agent's own end of them."""
    order = "x" * 100_000  # more than a pipe holds
    with an_agent(tmp_path, TELLS, "os.waitpid(keeper.pid, 0)", order) as agent:
        agent.communicate(timeout=300)

    told = json.loads((tmp_path / "told").read_text())
    assert told.pop("order") == f"{order}\n"
    assert "/dev/null" in told.pop("files")
    expected = {"others": [], "group": True, "term": True, "wakeup": -1, "name": forked_program.KEEPER}
    assert told == expected


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("pass", 0),
        ("import sys; sys.exit()", 0),
        ("import sys; sys.exit(64)", 64),
        ("import sys; sys.exit('cannot')", 70),
        ("raise ValueError('cannot')", 70),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM),
    ],
)
def test_its_end_is_the_programs(tmp_path: Path, program: str, code: int) -> None:
    """The agent tells it the launcher; what went wrong is on stderr, the agent's log."""
    then = "print(os.waitstatus_to_exitcode(os.waitpid(keeper.pid, 0)[1]), flush=True)"
    with an_agent(tmp_path, program, then) as agent:
        out, err = agent.communicate(timeout=300)

    assert int(out.split()[-1]) == code
    assert ("cannot" in err) == ("cannot" in program)


@pytest.mark.parametrize("end", ["", "sys.exit()", "raise ValueError"])
def test_what_its_threads_write_at_its_end_is_whole(tmp_path: Path, end: str) -> None:
    """However the program ends, as in an interpreter of its own; a thread may start the last one."""
    program = f"""
import os, sys, threading
def write(name, after=None):
    with open(name + ".part", "wb") as file:
        for _ in range(200):
            file.write(bytes(100_000))
    os.rename(name + ".part", name)
    if after:
        threading.Thread(target=write, args=(after,)).start()
threading.Thread(target=write, args=("first", "last")).start()
{end}
"""
    with an_agent(tmp_path, program, "os.waitpid(keeper.pid, 0)") as agent:
        agent.communicate(timeout=300)

    assert {name: (tmp_path / name).stat().st_size for name in ("first", "last")} == {
        "first": 20_000_000,
        "last": 20_000_000,
    }


def test_what_a_program_said_last_is_kept_for_the_agent(tmp_path: Path) -> None:
    """The launcher is told; the agent's log has all of it, the fork of this agent no descriptor more."""
    program = "import sys; sys.stderr.write('first\\n'); raise ValueError('cannot')"
    then = """
before = len(os.listdir("/proc/self/fd"))
heard = ForkedProgram("program", "order", "dglrun-output", is_heard=True)
os.waitpid(heard.pid, 0)
print([heard.last_words(), heard.last_words(), len(os.listdir("/proc/self/fd")) - before])
killed = ForkedProgram("program", "order", "dglrun-output", is_heard=True)
killed.kill()
os.waitpid(killed.pid, 0)
print([killed.last_words(), len(os.listdir("/proc/self/fd")) - before])
"""
    with an_agent(tmp_path, program, then) as agent:
        out, err = agent.communicate(timeout=60)

    assert out.splitlines()[1:] == ["['ValueError: cannot', '', 0]", "['', 0]"]
    assert "first\n" in err


def test_it_ends_with_the_agent(tmp_path: Path) -> None:
    """However that ends: nobody else would end it."""
    with an_agent(tmp_path, "import time; time.sleep(600)", "time.sleep(600)") as agent:
        assert agent.stdout is not None
        keeper = int(agent.stdout.readline())
        agent.kill()

    wait_for("the end of the keeper", lambda: not Path(f"/proc/{keeper}").exists(), 60)


def test_a_later_agent_ends_a_keeper_that_has_outlived_its_own(tmp_path: Path) -> None:
    """By the recorded process: its environment in /proc is that of the agent, which has no run folder."""
    stays = (
        "import os, time\nfrom dglrun.agent import prctl\n"
        "prctl._prctl(1, 0)\nos.mkdir('stays')\ntime.sleep(600)"
    )
    with an_agent(tmp_path, stays, "time.sleep(600)") as agent:
        assert agent.stdout is not None
        keeper = int(agent.stdout.readline())
        process_group.record_keeper(tmp_path, keeper)
        wait_for("a keeper that the kernel leaves alone", (tmp_path / "stays").exists, 60)
        agent.kill()

    assert process_group.end_remains(tmp_path) == (keeper,)
    assert process_group.end_remains(tmp_path) == ()


def test_another_process_with_the_number_of_a_keeper_is_left_alone(tmp_path: Path) -> None:
    """Numbers of processes are used again."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        process_group.record_keeper(tmp_path, other.pid)
        pid, started = (tmp_path / "keeper").read_text().split()
        (tmp_path / "keeper").write_text(f"{pid} {int(started) - 1}")

        assert process_group.end_remains(tmp_path) == ()
        assert other.poll() is None
        other.communicate(b"\n")
