"""A C function called in a child process, so that a signal ends it at once.

METIS runs for minutes without a look at signals: Python's handlers wait until it returns, and while it runs
it has handlers of its own for SIGTERM and SIGABRT, which a thread would not survive. A child process can be
killed. It shares this process's memory as it is (fork copies only what is written to), so the arguments
need no copy; the result must lie in shared memory (`shared_array`).
"""

import mmap
import os
import signal
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from dglrun.agent import ending_signals, prctl
from dglrun.agent.ending_signals import ENDING
from dglrun.arrays import Array
from dglrun.errors import BackendFailedError


def shared_array(rows: int, dtype: type[np.signedinteger[Any]]) -> Array:
    """Zeros, shape (rows,), rows > 0, that a child of this process can fill."""
    return np.frombuffer(mmap.mmap(-1, rows * np.dtype(dtype).itemsize), dtype)


def call(name: str, work: Callable[[], int]) -> int:
    """Call `work` in a child process and wait for it.

    An exception in this process, such as Terminated, kills the child first.

    Args:
        name: What the user knows it by.
        work: Returns a small number; may write into shared arrays.

    Returns:
        What `work` returned.

    Raises:
        BackendFailedError: the child was ended by a signal, most likely for want of memory.
    """
    reading, writing = os.pipe()
    parent, child = os.getpid(), None
    try:
        with ending_signals.put_off():  # until the child is known here: it would go on
            child = os.fork()
            if child == 0:
                _run_child(work, writing, parent)
            os.close(writing)
        answer = os.read(reading, 32)
    except BaseException:
        if child is not None:
            os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.close(reading)
        status = os.waitpid(child, 0)[1] if child is not None else 0
    if not answer:
        raise _failed(name, os.waitstatus_to_exitcode(status))
    return int(answer)


def _run_child(work: Callable[[], int], writing: int, parent: int) -> NoReturn:
    """Die with the parent, even if it is killed; nothing of Python's own clean-up runs here."""
    try:
        # Ctrl-C reaches the child too and is the parent's to answer. Ignored, not blocked: METIS ends a call
        # that fails by a SIGTERM to itself, for which it sets a handler.
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)
        prctl.end_with_parent(signal.SIGKILL)
        if os.getppid() == parent:
            os.write(writing, str(work()).encode())
    except BaseException:  # it cannot come back: who reads the log needs it
        os.write(2, traceback.format_exc().encode(errors="backslashreplace"))
    finally:
        os._exit(0)


def _failed(name: str, code: int) -> BackendFailedError:
    if code < 0:
        error = BackendFailedError(
            f"{name} was ended by {signal.Signals(-code).name}; SIGKILL usually means too little memory"
        )
        error.exit_code = 128 - code
        return error
    return BackendFailedError(f"{name} ended without a result")
