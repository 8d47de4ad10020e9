"""A user's process on this pod: its output passed on, its actual status reported, stopped with dglrun."""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from dglrun.agent import ending_signals
from dglrun.agent.exit_status import ExitStatus
from dglrun.agent.line_splitter import LineSplitter
from dglrun.contract import exitcodes
from dglrun.errors import RunError, Terminated
from dglrun.transfer.kubectl import has_reached
from dglrun.workflow.steps import Run

GRACE_SECONDS = 10.0
LAST_LINES = 20
POLL_SECONDS = 0.2
REACH_SECONDS = 900.0
"""A control plane may be away for ten minutes."""
REACH_PAUSE = 5.0


def run(step: Run, on_line: Callable[[str], None]) -> None:
    """Run a command to its end.

    One that `kubectl exec` starts on another pod is begun again as long as that does not reach the pod; such
    commands are checks, which may be repeated.

    Args:
        step: What to run.
        on_line: Called with each line of its output, besides printing it.

    Raises:
        RunError: it could not be started, or ended badly; with its own exit code, 124 after its deadline, and
            last lines.
        Terminated: we were told to end; the command and what it has started have ended.
    """
    is_exec = bool(step.via) and step.ranks is None
    deadline = time.monotonic() + REACH_SECONDS
    while True:
        code, words = _run_once(step, on_line)
        end = ExitStatus(code if code >= 0 else 128 - code)
        if end.is_good:
            return
        if not is_exec or has_reached(code, words) or time.monotonic() > deadline:
            raise RunError(f"{_title(step)} ended with {end}", end.code, words)
        print(f"dglrun: {_title(step)}: {step.pods[0]} cannot be reached; it is tried again", flush=True)
        time.sleep(REACH_PAUSE)


def _run_once(step: Run, on_line: Callable[[str], None]) -> tuple[int, str]:
    """Run it once; returns its code as Popen gives it, and its last lines."""
    tail: deque[str] = deque(maxlen=LAST_LINES)
    with _started(step) as process:
        try:
            _pass_on(process, tail, on_line, step.seconds)
            code = process.wait()
        except TimeoutError as error:
            _end(process)
            what, words = f"{_title(step)} had not ended after {step.seconds:g} s", "\n".join(tail)
            raise RunError(what, exitcodes.TIMEOUT, words) from error
    return code, "\n".join(tail)


@contextlib.contextmanager
def _started(step: Run) -> "Iterator[subprocess.Popen[bytes]]":
    """The process, ended if a signal ends us, from its first moment on."""
    process = None
    try:
        with ending_signals.put_off():  # until the process is known here: it would go on
            process = _start(step)
        yield process
    except Terminated:
        if process:
            _end(process)
        raise
    finally:
        if process and process.stdout:
            process.stdout.close()


def _title(step: Run) -> str:
    """What a step is called by: without a title its module or script."""
    return step.title or " ".join(step.argv[2:4] if step.argv[1:2] == ("-m",) else step.argv[1:2])


def _start(step: Run) -> "subprocess.Popen[bytes]":
    for folder in step.folders:
        with contextlib.suppress(OSError):  # the command says it better, if it needs the folder at all
            Path(folder).mkdir(parents=True, exist_ok=True)
    argv = (*step.via, *step.argv)
    try:
        return subprocess.Popen(
            argv,
            env={**os.environ, **step.env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
    except OSError as error:
        raise RunError(f"{argv[0]}: could not be started: {error.strerror}", exitcodes.USAGE) from error


def _pass_on(
    process: "subprocess.Popen[bytes]",
    tail: deque[str],
    on_line: Callable[[str], None],
    seconds: float | None,
) -> None:
    splitter = LineSplitter(time.monotonic())
    for block in _blocks(process, seconds):
        _show(splitter.feed(block, time.monotonic()), tail, on_line)
    _show(splitter.flush(), tail, on_line)


def _blocks(process: "subprocess.Popen[bytes]", seconds: float | None) -> Iterator[bytes]:
    """The output until the process has ended; what it has left behind may hold the pipe open for ever.

    Raises:
        TimeoutError: it had not ended after so many seconds.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    if process.stdout is None:
        raise AssertionError("Popen was given PIPE")
    fileno = process.stdout.fileno()
    os.set_blocking(fileno, False)
    with selectors.DefaultSelector() as selector:
        selector.register(fileno, selectors.EVENT_READ)
        while True:
            has_ended = process.poll() is not None
            if deadline is not None and not has_ended and time.monotonic() > deadline:
                raise TimeoutError
            if not selector.select(0 if has_ended else POLL_SECONDS):
                if has_ended:
                    return
                continue
            if not (block := os.read(fileno, 1 << 16)):
                return
            yield block


def _show(lines: list[str], tail: deque[str], on_line: Callable[[str], None]) -> None:
    for line in lines:
        print(line, flush=True)
        tail.append(line)
        on_line(line)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the process group, SIGKILL after the grace."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
