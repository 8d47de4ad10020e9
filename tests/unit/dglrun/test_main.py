"""The process `dglrun`: Ctrl-C from its first line on."""

import os
import random
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dglrun.contract import env, version
from tests.support.dglrun_pods import ROOT
from tests.support.heterographs import a_toy

COUNTING = """
import os, signal, sys
moment, seen = int(sys.argv.pop(1)), 0
def count(*_):
    global seen
    seen += 1
    if seen == moment:
        os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
from dglrun.__main__ import main
sys.addaudithook(count)
code = main()
if not moment:
    print(seen, file=sys.stderr)
sys.exit(code)
"""
"""Sends itself SIGINT at a moment of its run: at each import, open, compile and the like there is one."""


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """A command that imports much and writes nothing."""
    folder = tmp_path_factory.mktemp("graph")
    source = a_toy(parts=2).write(folder / "in")
    out = str(folder / "out")
    return ("partition", "--in-dir", str(source), "--out-dir", out, "--num-parts", "2", "--dry-run")


def test_ctrl_c_is_one_line_at_any_moment(command: tuple[str, ...], tmp_path: Path) -> None:
    """No traceback of an import that was under way."""
    # Compiled modules of these runs alone: with those of the tests beside them, each run had other moments.
    own = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}

    def run(moment: int) -> subprocess.CompletedProcess[str]:
        """Run dglrun, interrupted at that moment; 0: not at all."""
        program = (sys.executable, "-c", COUNTING, str(moment), *command)
        return subprocess.run(
            program, capture_output=True, text=True, cwd=ROOT, env=own, check=False, timeout=300
        )

    run(0)  # compiles
    whole = run(0)
    moments = range(1, int(whole.stderr.split()[-1]) + 1)
    drawn = (1, 2, *random.SystemRandom().sample(moments, 4), moments[-1])

    ended = {moment: run(moment) for moment in drawn}

    assert whole.returncode == 0
    for moment, done in ended.items():
        assert (moment, done.returncode) == (moment, 130)
        assert re.fullmatch(r"dglrun( partition)?: interrupted\n", done.stderr), f"{moment}: {done.stderr}"
        assert not Path(command[4]).exists()


HANDLING = """
import signal, sys
signal.signal(signal.SIGINT, getattr(signal, sys.argv.pop(1)))
from dglrun.__main__ import main
main()
print(repr(signal.getsignal(signal.SIGINT)), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("before", "command", "after"),
    [
        ("SIG_IGN", "help", "Handlers.SIG_IGN"),
        ("SIG_IGN", "supervise", "Handlers.SIG_IGN"),
        ("default_int_handler", "help", "function _end"),
        ("default_int_handler", "supervise", "built-in function default_int_handler"),
    ],
)
def test_the_handling_of_ctrl_c(before: str, command: str, after: str) -> None:
    """What is ignored stays so; an exception ends the start of an agent, which has files to remove."""
    refused = {**os.environ, env.CONTRACT_VERSION: str(version.CURRENT + 2)}
    done = subprocess.run(
        (sys.executable, "-c", HANDLING, before, command),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=refused,
        cwd=ROOT,
        check=False,
        timeout=300,
    )

    assert after in done.stderr


BACKGROUND = """
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
from dglrun.commands import program
with program.raising_terminated():
    signal.raise_signal(signal.SIGINT)
    try:
        signal.raise_signal(signal.SIGTERM)
    except program.Terminated as ended:
        print(ended.number)
print(repr(signal.getsignal(signal.SIGINT)))
"""


def test_what_is_ignored_stays_ignored_in_a_command() -> None:
    """Ctrl-C is meant for the command in the foreground, not for one that a script has left running."""
    argv = (sys.executable, "-c", BACKGROUND)
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, check=False, timeout=300)

    assert done.stdout == f"{signal.SIGTERM.value}\n<Handlers.SIG_IGN: 1>\n", done.stderr


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_line_and_its_end_are_one_write_where_output_is_not_buffered(stream: str) -> None:
    """PYTHONUNBUFFERED is set in each pod, where others write to the same log and would come in between."""
    argv = {"stdout": ("--version",), "stderr": ("partition", "--num-part")}[stream]
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # each write is a packet
    with here, there:
        others = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: there}
        env = {**os.environ, "PYTHONUNBUFFERED": "1"}
        subprocess.run((sys.executable, "-m", "dglrun", *argv), cwd=ROOT, env=env, check=False, **others)  # type: ignore[call-overload]
        there.close()
        packets = list(iter(lambda: here.recv(1 << 16), b""))

    assert packets
    assert all(packet.endswith(b"\n") for packet in packets), packets
