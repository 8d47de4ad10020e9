"""Runs a user's training script as `__main__` and exits with the script's actual status.

`python -m dglrun.agent.script_runner train.py --lr 0.1` is `python train.py --lr 0.1`, but for its end: a DGL
client that raises, or that leaves by `sys.exit(7)`, hangs in DGL's exit barrier (docs/explanation/dglrun.md).
Here the traceback is printed, the cause is written to a file for the agent, and the process leaves when the
script's own exit handlers have run, for LAST_SECONDS at most. A good end takes the normal way, barrier
included. Spawned children (DGL's samplers) are guarded likewise.

Standard library only; nothing of the script's own view changes: sys.argv, sys.path, `__file__`, spawn.
"""

import atexit
import contextlib
import faulthandler
import gc
import importlib.machinery
import io
import json
import multiprocessing.context
import os
import signal
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from dglrun.agent import CAUSES_VARIABLE, LAST_SECONDS, STACKS_SIGNAL

WORDS = 3000
"""Characters of a traceback that are recorded."""
_BARRIER = ("dgl.distributed.dist_context", "exit_client")
"""DGL's own exit handler: it waits for clients that never come, within C code that holds the interpreter."""
_STDERR = 2
_FILES = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)


def main() -> None:
    """Run the script that the command line names."""
    argv = sys.argv[1:]
    if not argv or not Path(argv[0]).is_file():
        print(f"dglrun: no script {argv[:1]} in {Path.cwd()}", file=sys.stderr)
        sys.exit(2)
    guard_spawned()
    show_stacks_on_signal()
    try:
        run(argv)
    except SystemExit as end:
        leave_unless_good(end)
        raise
    except BaseException as error:
        _show(error)
        leave(1, _words(error))
    if os.environ.get("DGL_ROLE") == "server":
        # A server's initialize never returns: it leaves by sys.exit.
        leave(1, "the script ended without serving: it must call dgl.distributed.initialize")


def run(argv: list[str]) -> None:
    """Execute a script file as `python <argv>` does."""
    path = Path(argv[0])
    sys.argv[:] = argv
    sys.path[0] = str(path.resolve().parent)
    module = types.ModuleType("__main__")
    module.__file__ = str(path.absolute())
    module.__loader__ = importlib.machinery.SourceFileLoader("__main__", module.__file__)
    module.__dict__.update(__builtins__=sys.modules["builtins"], __cached__=None, __spec__=None)
    sys.modules["__main__"] = module
    exec(compile(path.read_bytes(), module.__file__, "exec", dont_inherit=True), module.__dict__)  # noqa: S102


def guard_spawned() -> None:
    """Let spawned processes leave at once when their target raises, DGL's samplers among them."""
    process: Any = multiprocessing.context.SpawnProcess
    start = process.start

    def guarded_start(self: Any) -> None:
        if self._target is not None and not isinstance(self._target, Guarded):
            self._target = Guarded(self._target)
        start(self)

    process.start = guarded_start


class Guarded:
    """The target of a spawned process, with the end of `main`."""

    def __init__(self, target: Callable[..., object]) -> None:
        self.target = target

    def __call__(self, *args: object, **kwargs: object) -> None:
        """Call the target."""
        show_stacks_on_signal()
        try:
            self.target(*args, **kwargs)
        except SystemExit as end:
            leave_unless_good(end)
            raise
        except BaseException as error:
            _show(error)
            leave(1, _words(error))


def show_stacks_on_signal() -> None:
    """From now on STACKS_SIGNAL makes this process write the stacks of its threads to stderr."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        faulthandler.register(STACKS_SIGNAL, file=_STDERR, all_threads=True)


def leave_unless_good(end: SystemExit) -> None:
    """Leave with the code of a SystemExit, as the interpreter reads it; return where it is 0."""
    if end.code is None or end.code == 0:
        return
    if isinstance(end.code, int):
        leave(end.code & 0xFF or 1, f"sys.exit({end.code})")
    print(end.code, file=sys.stderr)
    leave(1, f"sys.exit({end.code!r})")


def leave(code: int, words: str) -> NoReturn:
    """Record the cause, let the script's exit handlers run and its files be written, and end the process.

    What takes longer than LAST_SECONDS is cut off.
    """
    _flush((sys.stdout, sys.stderr))  # the agent takes the last lines when it sees the cause
    _record(code, words)
    _leave_in_time(code)
    _run_exit_handlers()
    _flush(each for each in gc.get_objects() if issubclass(type(each), _FILES))
    os._exit(code)


def _leave_in_time(code: int) -> None:
    """Whatever hangs from now on, the process ends; the agent's SIGTERM does not cut its time short."""
    with contextlib.suppress(ValueError):  # in another thread than the main one
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    timer = threading.Timer(LAST_SECONDS, os._exit, (code,))
    timer.daemon = True
    timer.start()
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        # C code that holds the interpreter stops every thread of Python, but not this one, whose code is 1.
        null = os.open(os.devnull, os.O_WRONLY)
        faulthandler.dump_traceback_later(LAST_SECONDS + 0.5, exit=True, file=null)


def _run_exit_handlers() -> None:
    module, name = _BARRIER
    barrier: Any = getattr(sys.modules.get(module), name, None)
    with contextlib.suppress(BaseException):
        atexit.unregister(barrier)
        atexit._run_exitfuncs()


def _flush(files: Iterable[Any]) -> None:
    for file in files:
        with contextlib.suppress(Exception):
            file.flush()


def _record(code: int, words: str) -> None:
    folder = os.environ.get(CAUSES_VARIABLE)
    if not folder:
        return
    cause = {"pid": os.getpid(), "code": code, "words": words[-WORDS:]}
    path = Path(folder, f"{os.getpid()}.json")
    try:
        path.with_suffix(".part").write_text(json.dumps(cause))
        path.with_suffix(".part").replace(path)
    except OSError as error:
        print(f"dglrun: the cause could not be recorded: {error}", file=sys.stderr)


def _show(error: BaseException) -> None:
    """Print as the interpreter would, by the script's own hook if it set one, without our frames."""
    error.__traceback__ = _own(error)
    sys.excepthook(type(error), error, error.__traceback__)


def _words(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _own(error: BaseException) -> types.TracebackType | None:
    frames = error.__traceback__
    while frames and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return frames


if __name__ == "__main__":
    # As a module of its own name: what is pickled for spawned processes must be found there again.
    from dglrun.agent import script_runner  # noqa: PLW0406

    script_runner.main()
