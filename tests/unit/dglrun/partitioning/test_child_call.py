"""C functions in a child process."""

import os
import signal
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from dglrun.errors import BackendFailedError, Terminated
from dglrun.partitioning import child_call
from tests.cluster.daemons import running


def test_the_result_and_the_shared_array_come_back() -> None:
    """What the child writes into other memory stays its own."""
    shared, own = child_call.shared_array(3, np.int32), np.zeros(3, np.int32)

    def work() -> int:
        shared[:] = own[:] = 7
        return 41

    assert child_call.call("it", work) == 41
    assert (shared.tolist(), own.tolist()) == ([7, 7, 7], [0, 0, 0])


def test_a_killed_child_is_told_with_its_signal() -> None:
    """As the kernel does for want of memory: 128 + 9, which the job's failure policy knows."""

    def work() -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    with pytest.raises(BackendFailedError, match="METIS was ended by SIGKILL") as caught:
        child_call.call("METIS", work)

    assert caught.value.exit_code == 137


def test_a_child_that_fails_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    """An exception in it cannot come back; the log has it."""
    with pytest.raises(BackendFailedError, match="without a result"):
        child_call.call("METIS", lambda: 1 // 0)

    assert "ZeroDivisionError: " in capfd.readouterr().err


def test_no_signal_is_blocked_in_the_child() -> None:
    """METIS ends a call that fails by a SIGTERM to itself, and went on where that was blocked."""
    assert child_call.call("it", lambda: len(signal.pthread_sigmask(signal.SIG_BLOCK, ()))) == 0


@pytest.fixture
def another_thread() -> Iterator[None]:
    """As the one that shows the time."""
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    yield
    ended.set()
    thread.join()


@pytest.mark.parametrize("_", range(50))
def test_an_exception_here_kills_the_child(another_thread: None, raising: None, _: int) -> None:
    """At whatever moment it comes: a mask is no help, since the other thread takes the signal."""
    pid = child_call.shared_array(1, np.int64)

    def work() -> int:
        pid[0] = os.getpid()
        os.kill(os.getppid(), signal.SIGTERM)
        signal.pause()
        return 0

    with pytest.raises(Terminated):
        child_call.call("it", work)

    assert not running(int(pid[0]))
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
