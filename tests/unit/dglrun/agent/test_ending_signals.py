"""Signals that are put off for a moment."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from dglrun.agent import ending_signals
from dglrun.errors import Terminated
from tests.support.dglrun_pods import ROOT


def test_the_handler_runs_at_the_end_of_the_block(raising: None) -> None:
    """Also where another thread takes the signal."""
    done = []

    def block() -> None:
        with ending_signals.put_off():
            in_another_thread(lambda: os.kill(os.getpid(), signal.SIGTERM))
            done.append("the whole block")

    with pytest.raises(Terminated):
        block()

    assert done


def test_the_handlers_come_back(raising: None) -> None:
    """Of both signals, after an error too."""
    before = [signal.getsignal(each) for each in ending_signals.ENDING]

    with pytest.raises(OSError, match="full"), ending_signals.put_off():
        raise OSError("full")

    assert [signal.getsignal(each) for each in ending_signals.ENDING] == before


def test_another_thread_has_nothing_to_put_off() -> None:
    """Python runs handlers in the main thread only, and lets no other set them."""
    before = signal.getsignal(signal.SIGTERM)

    def work() -> None:
        with ending_signals.put_off():
            found.append(signal.getsignal(signal.SIGTERM))

    found: list[object] = []
    in_another_thread(work)

    assert found == [before]


AT_A_LINE = """
import os, signal, sys
from dglrun.agent import ending_signals
lines = 0
def at_a_line(frame, event, _):
    global lines
    if frame.f_code.co_filename == ending_signals.__file__ and event == "line":
        lines += 1
        if lines == int(sys.argv[1]):
            os.kill(os.getpid(), signal.SIGTERM)
    return at_a_line
def leave(number, _):
    sys.exit(128 + number)
if sys.argv[2] == "a handler":
    signal.signal(signal.SIGTERM, leave)
sys.settrace(at_a_line)
with ending_signals.put_off():
    pass
sys.settrace(None)
sys.exit(0 if lines >= int(sys.argv[1]) else 99)
"""


@pytest.mark.parametrize(("disposition", "code"), [("the default", -signal.SIGTERM), ("a handler", 143)])
def test_no_signal_is_lost_at_whatever_line_it_comes(disposition: str, code: int) -> None:
    """At the end of the block, too, where one handler is back and the other is not."""
    codes: list[int] = []
    while 99 not in codes:
        argv = (sys.executable, "-c", AT_A_LINE, str(len(codes) + 1), disposition)
        codes.append(subprocess.run(argv, cwd=ROOT, check=False).returncode)

    assert len(codes) > 10
    assert set(codes[:-1]) == {code}


def in_another_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
