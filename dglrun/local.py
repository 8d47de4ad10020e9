"""A process of the user on this pod: its output passed on, its end told truly, ended when we are."""

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from dglrun.contract import exitcodes
from dglrun.contract.env import OUTPUT_DIR
from dglrun.outcome import RunError, Terminated
from dglrun.steps import Run
from dglrun.supervise.ends import End
from dglrun.supervise.lines import Splitter

GRACE_SECONDS = 10.0
LAST_LINES = 20
POLL_SECONDS = 0.2


def run(step: Run, on_line: Callable[[str], None]) -> None:
    """Run a command to its end.

    Args:
        step: What to run.
        on_line: Called with each line of its output, besides printing it.

    Raises:
        RunError: it could not be started, or ended badly; with its own exit code and last lines.
        Terminated: we were told to end; the command and what it has started have ended.
    """
    try:
        process = _start(step)
    except OSError as error:
        raise RunError(f"{step.argv[0]}: could not be started: {error.strerror}", exitcodes.USAGE) from error
    tail: deque[str] = deque(maxlen=LAST_LINES)
    try:
        _pass_on(process, tail, on_line)
        code = process.wait()
    except Terminated:
        _end(process)
        raise
    finally:
        if process.stdout:
            process.stdout.close()
    end = End(code if code >= 0 else 128 - code)
    if not end.is_good:
        by_command = " ".join(step.argv[2:4] if step.argv[1:2] == ("-m",) else step.argv[1:2])
        raise RunError(f"{step.title or by_command} ended with {end}", end.code, "\n".join(tail))


def _start(step: Run) -> "subprocess.Popen[bytes]":
    if output := step.env.get(OUTPUT_DIR):
        with contextlib.suppress(OSError):  # the script says it better, if it needs the folder at all
            Path(output).mkdir(parents=True, exist_ok=True)
    return subprocess.Popen(
        step.argv,
        env={**os.environ, **step.env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        process_group=0,
    )


def _pass_on(process: "subprocess.Popen[bytes]", tail: deque[str], on_line: Callable[[str], None]) -> None:
    splitter = Splitter(time.monotonic())
    for block in _blocks(process):
        _show(splitter.feed(block, time.monotonic()), tail, on_line)
    _show(splitter.flush(), tail, on_line)


def _blocks(process: "subprocess.Popen[bytes]") -> Iterator[bytes]:
    """The output until the process has ended; what it has left behind may hold the pipe open for ever."""
    if process.stdout is None:
        raise AssertionError("Popen was given PIPE")
    fileno = process.stdout.fileno()
    os.set_blocking(fileno, False)
    with selectors.DefaultSelector() as selector:
        selector.register(fileno, selectors.EVENT_READ)
        while True:
            has_ended = process.poll() is not None
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
