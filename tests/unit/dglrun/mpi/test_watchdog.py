"""When a rank that waits gives up, and when a rank tells that it works."""

import subprocess
import sys

import pytest

from tests.support.commands import run_program

BEGIN = """
import os, sys, time
from dglrun.mpi.watchdog import Watchdog

class Heard:
    def __init__(self, times):
        self.times, self.beats = times, 0
    def beat(self):
        self.beats += 1
    def heard(self):
        self.times -= 1
        return self.times >= 0

def until(look):
    end = time.monotonic() + 30
    while not look() and time.monotonic() < end:
        time.sleep(0.01)
    return look()

"""


def ended(script: str) -> "subprocess.CompletedProcess[str]":
    """A watchdog ends its process, so each has one of its own."""
    return run_program((sys.executable, "-c", BEGIN + script), seconds=60)


@pytest.mark.parametrize(("times", "least"), [(0, 0.4), (3, 0.7)])
def test_a_wait_lasts_from_the_last_time_that_others_were_heard(times: int, least: float) -> None:
    """They are asked a quarter of the time after the last answer."""
    script = (
        f"dog, began = Watchdog(0.4, 7, Heard({times})), time.monotonic()\n"
        "def leave(code): print(code, time.monotonic() - began, flush=True); os.kill(os.getpid(), 9)\n"
        "os._exit = leave\n"
        "with dog.waiting(): time.sleep(30)"
    )

    told = ended(script)

    code, seconds = told.stdout.split()
    assert code == "124"
    assert float(seconds) > least
    assert told.stderr == "rank 7: waited more than 0.4 s for the other ranks\n"


def test_a_rank_that_computes_tells_so() -> None:
    """By the CPU time of its process."""
    script = (
        "pulse = Heard(0); dog, end = Watchdog(0.4, 0, pulse), time.monotonic() + 20\n"
        "while not pulse.beats and time.monotonic() < end: pass\n"
        "sys.exit(pulse.beats == 0)"
    )

    assert ended(script).returncode == 0


def test_a_rank_that_moves_bytes_tells_so() -> None:
    """As one that writes to a slow disk, which takes hardly any CPU time."""
    script = (
        "import dglrun.mpi.watchdog as module; module._SHARE = 1000\n"
        "pulse, data = Heard(0), bytes(1 << 20); dog = Watchdog(0.4, 0, pulse)\n"
        "sink = open(os.devnull, 'wb', buffering=0)\n"
        "sys.exit(not until(lambda: sink.write(data) and pulse.beats))"
    )

    assert ended(script).returncode == 0


def test_a_rank_that_waits_does_not_whatever_it_uses() -> None:
    """Else two ranks that wait for each other would do so for ever."""
    script = (
        "pulse = Heard(10); dog, end = Watchdog(0.4, 0, pulse), time.monotonic() + 20\n"
        "with dog.waiting():\n"
        "    while pulse.times >= 1 and time.monotonic() < end: pass\n"
        "sys.exit(pulse.beats or pulse.times >= 1)"
    )

    assert ended(script).returncode == 0


def test_a_rank_that_sleeps_does_not() -> None:
    """As one that hangs in a read; its thread looks at it again and again."""
    script = (
        "import dglrun.mpi.watchdog as module; looks = []\n"
        "done = module._Work.is_done\n"
        "module._Work.is_done = lambda self, now: looks.append(done(self, now)) or looks[-1]\n"
        "pulse = Heard(0); dog = Watchdog(0.4, 0, pulse)\n"
        "sys.exit(not until(lambda: len(looks) > 3) or any(looks[1:]))"
    )

    assert ended(script).returncode == 0


def test_a_rank_that_was_stopped_waits_again() -> None:
    """As with a paused container: it has heard nothing of the others, who may have worked."""
    script = (
        "import types; import dglrun.mpi.watchdog as module\n"
        "real, stopped = time.monotonic, [0.0]\n"
        "asked = []\n"
        "clock = lambda: asked.append(1) or real() + stopped[0]\n"
        "module.time = types.SimpleNamespace(monotonic=clock, process_time=time.process_time)\n"
        "dog = Watchdog(1.5, 0)\n"
        "def leave(code): print(real() - went_on, flush=True); os.kill(os.getpid(), 9)\n"
        "os._exit = leave\n"
        "with dog.waiting():\n"
        "    until(lambda: len(asked) > 6)  # it looks\n"
        "    went_on, stopped[0] = real(), 60.0\n"
        "    time.sleep(30)"
    )

    assert float(ended(script).stdout) >= 1.5
