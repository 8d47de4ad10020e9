"""How a command ends: what is expected becomes one line on stderr and an exit code, a bug its traceback.

It imports the standard library only, before the signal handlers are set: Ctrl-C is one line even while a
command's own imports run.
"""

import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from dglrun.agent.ending_signals import ENDING
from dglrun.commands.arguments import UsageError
from dglrun.contract import exitcodes
from dglrun.errors import BackendFailedError, BackendMissingError, DataError, Terminated

_IMPORT_PAUSE = 0.01
"""Seconds after which an import that a signal came in is asked for again."""
INTERNAL = "internal command, run by dglrun itself; dglrun --help lists the commands for you"


def run(name: str, work: Callable[[], int]) -> int:
    """Run a command to its end.

    Args:
        name: What its messages start with, such as `dglrun partition`.
        work: The command; returns its exit code.

    Returns:
        The exit code; 130 after SIGINT, 143 after SIGTERM.
    """
    with raising_terminated():  # around the messages, too: a second Ctrl-C must not disturb them
        try:
            return work()
        except Terminated as ended:
            return complain(name, describe_end(ended.number), 128 + ended.number)
        except Exception as error:
            code = _expected(name, error)
            if code is not None:
                return code
            traceback.print_exc()
            return complain(name, f"a bug in dglrun: {type(error).__name__}: {error}", exitcodes.SOFTWARE)


def internal(main: Callable[[list[str]], int]) -> int:
    """Run one of dglrun's own programs with the arguments of this process; refuse a person at a terminal.

    Its signals are left alone: a rank is ended by mpirun, even inside of C code, which a handler of Python
    would wait for.
    """
    # Both: mpirun gives its ranks a terminal as stdout, a pod may have one as stdin.
    if sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
        return complain("dglrun", INTERNAL, exitcodes.USAGE)
    try:
        return main(sys.argv[1:])
    except KeyboardInterrupt:
        return complain("dglrun", "interrupted", 128 + signal.SIGINT)
    except Exception as error:
        code = _expected("dglrun", error)
        if code is None:
            raise
        return code


def describe_end(number: int) -> str:
    """What a user is told of the signal."""
    return "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"


@contextmanager
def raising_terminated() -> Iterator[None]:
    """Within it SIGTERM and SIGINT raise Terminated in the main thread, once.

    One that this process was started to ignore stays ignored, as SIGINT is by a shell's background commands.
    One that comes during an import raises after it: modules in C clear an exception that comes while they
    start, or take it for another one.
    """
    came: list[int] = []

    def terminate(number: int, frame: FrameType | None) -> None:
        if _is_import(frame):
            came[:] = [number]
            if signal.SIGALRM not in before:
                before[signal.SIGALRM] = signal.signal(signal.SIGALRM, ask_again)
            signal.setitimer(signal.ITIMER_REAL, _IMPORT_PAUSE)
            return
        came.clear()
        for each in ENDING:
            signal.signal(each, signal.SIG_IGN)  # what cleans up now must not be disturbed
        raise Terminated(number)

    def ask_again(*_: object) -> None:
        for number in came:
            signal.raise_signal(number)

    raised = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    before: dict[int, Any] = {number: signal.signal(number, terminate) for number in raised}
    try:
        yield
    finally:
        if signal.SIGALRM in before:  # the work may have ended before the timer
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            raise Terminated(came[0])


def _is_import(frame: FrameType | None) -> bool:
    """Whether an import is under way in this frame or one that it was called from."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def complain(name: str, message: object, code: int) -> int:
    """Say in one line what is wrong; returns the exit code."""
    sys.stdout.flush()
    print(f"{name}: {message}", file=sys.stderr, flush=True)
    return code


@contextmanager
def naming(out: Path | None) -> Iterator[None]:
    """Within it an error of the file system that has no file, as that of a write, gets the output's name."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.filename is None and out is not None:
            raise OSError(error.errno, error.strerror or str(error), str(out)) from error
        raise


def describe(error: OSError) -> str:
    """An error of the file system: the file that it is about, and the reason."""
    reason = error.strerror or str(error)
    if error.errno == errno.EDQUOT:
        reason = f"no space left within the quota ({reason})"
    return reason if error.filename is None else f"{os.fsdecode(error.filename)}: {reason}"


def _expected(name: str, error: Exception) -> int | None:
    """Report an expected error; None for a bug."""
    if isinstance(error, UsageError):
        return complain(name, error, exitcodes.USAGE)
    if isinstance(error, DataError | BackendMissingError | BackendFailedError):
        return complain(name, error, error.exit_code)
    if isinstance(error, BrokenPipeError) and error.filename is None:
        return _without_reader()
    if isinstance(error, OSError):
        return complain(name, describe(error), exitcodes.IO)
    return None


def _without_reader() -> int:
    """The reader of stdout is gone, as in `dglrun verify ... | head`: end like any other program there.

    What stdout still holds goes nowhere, or the interpreter's last flush would complain.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 128 + signal.SIGPIPE
