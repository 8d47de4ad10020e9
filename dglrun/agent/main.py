"""What `python -m dglrun.agent` does on a worker, at the other end of the launcher's `kubectl exec -i`.

It reads a spec and the run's keys, a line each, prepares the worker, leaves an agent behind that no longer
depends on the stream, and says on which port that one listens. The stream then ends.
"""

import json
import os
import signal
import socket
import ssl
import sys
from pathlib import Path
from typing import Any

from dglrun.agent import host_info, prctl, process_group, run_folder, single_instance, tls
from dglrun.agent.daemon import Daemon
from dglrun.agent.spec import Spec, SpecError, decode
from dglrun.contract import exitcodes, version

_REFUSALS = (SpecError, tls.KeysError, single_instance.StillRunningError, host_info.HostError, OSError)


def start() -> int:
    """Leave an agent behind and say where it listens; returns the exit code."""
    if refused := version.refusal(os.environ, version.JOB_IMAGE):  # the launcher's image may be another one
        _say({"kind": "refused", "what": refused, "code": exitcodes.CONTRACT})
        return exitcodes.CONTRACT
    try:
        spec, keys = decode(_line()), tls.decode(_line())
        context = tls.server_context(keys)
        folder = run_folder.find()
        lock, before, notes = single_instance.acquire(folder, Path(spec.shm))
        _prepare(spec)
        listener = socket.create_server((spec.ip, 0))
    except _REFUSALS as error:
        _say({"kind": "refused", "what": str(error), "code": exitcodes.UNAVAILABLE})
        return exitcodes.UNAVAILABLE
    for note in notes:
        _say({"kind": "note", "text": note})
    sys.stdout.flush()  # the child would write what is left in the buffer a second time
    # No thread runs yet. The child forks again, so that the agent has no parent here to wait for it.
    child = os.fork()
    if child == 0:
        _leave_behind(spec, folder, lock, listener, context, before)
    os.waitpid(child, 0)
    _say({"kind": "listening", "port": listener.getsockname()[1]})
    return exitcodes.OK


def _line() -> str:
    """One line of stdin."""
    return sys.stdin.readline()


def _prepare(spec: Spec) -> None:
    """Make the worker ready; nothing is started if anything is amiss.

    Raises:
        HostError: an address or a port is not what the run needs.
        OSError: a file cannot be written.
    """
    for folder in spec.folders:
        Path(folder).mkdir(parents=True, exist_ok=True)
    for path, text in spec.files.items():
        part = Path(f"{path}.{os.urandom(4).hex()}.part")  # other workers may share the folder
        try:
            part.write_text(text)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    host_info.interface_of(spec.ip)
    host_info.require_free(spec.ports)


def _leave_behind(
    spec: Spec,
    folder: Path,
    lock: int,
    listener: socket.socket,
    context: ssl.SSLContext,
    before: frozenset[str],
) -> None:
    """Become the agent: own session, no stream, no parent that counts."""
    try:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        _drop_streams(folder)
        single_instance.record_holder(lock)
        prctl.adopt_orphans()
        Daemon(spec, folder, listener, context, before).run()
        single_instance.release(folder)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        process_group.signal_all(signal.SIGKILL)
        os._exit(exitcodes.SOFTWARE)
    os._exit(0)


def _drop_streams(folder: Path) -> None:
    """Let go of the stream's pipes; what the agent itself has to say goes to its log."""
    null = os.open(os.devnull, os.O_RDWR)
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for target, source in ((0, null), (1, log), (2, log)):
        os.dup2(source, target)
    os.close(null)
    os.close(log)


def _say(record: dict[str, Any]) -> None:
    print(json.dumps(record), flush=True)
