"""Processes that do the agent's work beside its loop: forks of the agent that become another program.

One keeps a worker's checkpoints while the others train, and goes on when those are ended, since what they
wrote last is still to be kept; one sends the output home. Another interpreter would cost 70 ms of CPU on each
worker, a quarter of an agent's start. They end with the agent.
"""

import contextlib
import os
import runpy
import signal
import sys
import threading
from pathlib import Path

from dglrun.agent import prctl
from dglrun.contract import exitcodes

KEEPER, SENDER = "dglrun-keeper", "dglrun-output"
"""Names of the processes, as ps and /proc show them beside the agent's command line."""
_FIRST_INHERITED = 3
_WORDS = 1 << 16
"""Bytes of what a program has said last."""


class ForkedProgram:
    """A program that has been started.

    Args:
        module: The program, a module with `__main__`; its output on stderr goes to the agent's log.
        order: The line that it reads from stdin.
        name: Of the process.
        is_heard: Whether its stderr is kept for `last_words` instead.

    Raises:
        OSError: it could not be started.
    """

    def __init__(self, module: str, order: str, name: str, is_heard: bool = False) -> None:
        stdin = os.memfd_create("order")  # a pipe holds 64 KiB before anybody reads
        self._words: int | None = None
        try:
            self._words = os.memfd_create("words") if is_heard else None
            os.write(stdin, order.encode() + b"\n")
            os.lseek(stdin, 0, os.SEEK_SET)
            sys.stderr.flush()
            agent = os.getpid()
            self.pid = os.fork()  # the agent has one thread only: no lock is held in the child
            if self.pid == 0:
                _become(module, name, stdin, self._words, agent)
        except OSError:
            self._forget_words()
            raise
        finally:
            os.close(stdin)

    def kill(self) -> None:
        """End it; whatever it was sending is not seen by anybody."""
        self._forget_words()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def last_words(self) -> str:
        """The last line that an ended program has written to stderr, once; the agent's log has all of it."""
        if self._words is None:
            return ""
        size = os.fstat(self._words).st_size
        said = os.pread(self._words, _WORDS, max(0, size - _WORDS)).decode(errors="replace")
        self._forget_words()
        sys.stderr.write(said)
        return (said.strip().splitlines() or [""])[-1].strip()

    def _forget_words(self) -> None:
        if self._words is not None:
            os.close(self._words)
            self._words = None


def _become(module: str, name: str, stdin: int, stderr: int | None, agent: int) -> None:
    """Run the program in the child, which never returns into the agent's loop."""
    code = exitcodes.SOFTWARE
    try:
        _let_go_of_agent(stdin, stderr, agent)
        prctl.set_name(name)
        sys.argv = [module]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = exitcodes.OK
    except SystemExit as end:
        code = _code(end.code)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        try:
            _finish()
        finally:
            os._exit(code)  # the agent's exit handlers and open files are not this process's


def _finish() -> None:
    """Do what an interpreter does at its end: wait for the program's threads, and write out its output.

    No exit handler is called: those of the agent are among them.
    """
    while left := [each for each in threading.enumerate() if _is_waited_for(each)]:
        for thread in left:  # which may start others
            thread.join()
    for file in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            file.flush()


def _is_waited_for(thread: threading.Thread) -> bool:
    return thread is not threading.current_thread() and not thread.daemon


def _code(end: object) -> int:
    """The exit code of what a program has given to sys.exit."""
    if end is None or isinstance(end, int):
        return end or exitcodes.OK
    sys.stderr.write(f"{end}\n")
    return exitcodes.SOFTWARE


def _let_go_of_agent(stdin: int, stderr: int | None, agent: int) -> None:
    """Have nothing of the agent's: its connections, its lock and its handling of signals."""
    prctl.end_with_parent(signal.SIGKILL)
    if os.getppid() != agent:  # it ended before the kernel knew that this one has to end with it
        os._exit(exitcodes.UNAVAILABLE)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    os.setpgid(0, 0)
    os.dup2(stdin, 0)
    if stderr is not None:
        os.dup2(stderr, 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    # The agent's objects for them live on, unused, until this process ends: none closes a number twice.
    for file in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if file >= _FIRST_INHERITED:
            with contextlib.suppress(OSError):  # that of the listing itself
                os.close(file)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - open as long as the process
