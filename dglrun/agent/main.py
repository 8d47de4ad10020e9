"""What `dglrun supervise` does on a worker, at the other end of the launcher's `kubectl exec -i`.

`start` reads a spec as one line on stdin, prepares the worker, leaves a supervisor behind that no longer
depends on the stream, and becomes a view of it. `show` is a view only.
"""

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from dglrun.agent import attach, host_info, prctl, process_group, single_instance
from dglrun.agent.daemon import Daemon
from dglrun.agent.spec import Spec, SpecError, decode
from dglrun.contract import exitcodes, version


def start(folder: Path) -> int:
    """Start a supervisor in a run folder and show it; returns the exit code."""
    if refused := version.refusal(os.environ, version.JOB_IMAGE):  # the launcher's image may be another one
        _say({"kind": "refused", "what": refused})
        return exitcodes.CONTRACT
    try:
        spec = decode(_line())
        lock, before, notes = single_instance.acquire(folder, Path(spec.shm))
        _prepare(spec)
    except (SpecError, single_instance.StillRunningError, host_info.HostError, OSError) as error:
        _say({"kind": "refused", "what": str(error)})
        return exitcodes.UNAVAILABLE
    listener = attach.listen(folder)
    for note in notes:
        _say({"kind": "note", "text": note})
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        _leave_behind(spec, folder, lock, listener, before)
    os.waitpid(child, 0)
    os.close(lock)
    listener.close()
    return show(folder)


def show(folder: Path) -> int:
    """Show the running supervisor's events until it ends; returns the exit code."""
    try:
        connection = attach.connect(folder)
    except OSError as error:
        _say({"kind": "gone", "what": f"no supervisor runs on this worker: {error}"})
        return exitcodes.LOST
    with connection:
        attach.relay(connection)
    return exitcodes.OK


def _line() -> str:
    """One line of stdin, byte by byte: what follows is for the view."""
    found = bytearray()
    while (byte := os.read(0, 1)) not in (b"", b"\n"):
        found += byte
    return found.decode()


def _prepare(spec: Spec) -> None:
    """Make the worker ready; nothing is started if anything is amiss.

    Raises:
        HostError: an address or a port is not what the run needs.
        OSError: a file cannot be written.
    """
    for folder in spec.folders:
        Path(folder).mkdir(parents=True, exist_ok=True)
    for path, text in spec.files.items():
        part = Path(f"{path}.part")
        part.write_text(text)
        part.replace(path)
    host_info.interface_of(spec.ip)
    host_info.require_free(spec.ports)


def _leave_behind(
    spec: Spec, folder: Path, lock: int, listener: socket.socket, before: frozenset[str]
) -> None:
    """Become the supervisor: own session, no stream, no parent that counts."""
    try:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        _drop_streams(folder)
        single_instance.record_holder(lock)
        prctl.adopt_orphans()
        Daemon(spec, folder, listener, before).run()
        single_instance.release(folder)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        process_group.signal_all(signal.SIGKILL)
        os._exit(exitcodes.SOFTWARE)
    os._exit(0)


def _drop_streams(folder: Path) -> None:
    """Let go of the stream's pipes; what the supervisor itself has to say goes to its log."""
    null = os.open(os.devnull, os.O_RDWR)
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for target, source in ((0, null), (1, log), (2, log)):
        os.dup2(source, target)
    os.close(null)
    os.close(log)


def _say(record: dict[str, Any]) -> None:
    print(json.dumps(record), flush=True)
