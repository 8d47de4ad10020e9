"""Start and end daemons. A process is ours when its command line is the one that was written down."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import commands, steps
from tests.cluster.places import Places

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Daemon:
    """A program that keeps running; argv[0] is an absolute path."""

    name: str
    argv: tuple[str, ...]

    def pid_file(self, places: Places) -> Path:
        """Return the file that tells its process number and command line."""
        return places.pids / f"{self.name}.json"

    def log(self, places: Places) -> Path:
        """Return the file that takes its output."""
        return places.logs / f"{self.name}.log"


def start(daemon: Daemon, places: Places) -> None:
    """Start a daemon in a session of its own, so that it outlives this process and its terminal."""
    for folder in (places.pids, places.logs):
        folder.mkdir(parents=True, exist_ok=True)
    program_folder = str(Path(daemon.argv[0]).parent)
    env = {"PATH": f"{program_folder}:{SYSTEM_PATH}", "HOME": "/root", "LANG": "C.UTF-8"}
    with daemon.log(places).open("ab") as log:
        process = subprocess.Popen(
            daemon.argv,
            cwd="/",
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    daemon.pid_file(places).write_text(json.dumps({"pid": process.pid, "argv": daemon.argv}) + "\n")
    process.returncode = 0  # nobody waits for it: keeps Popen from warning when it is forgotten
    # A process that has just been started shows no command line for a moment, and would count as foreign.
    steps.until(
        f"{daemon.name} to show its command line",
        lambda: bool(command_line(process.pid)) or not running(process.pid),
        seconds=60,
        pause=0.005,
    )


def alive(daemon: Daemon, places: Places) -> bool:
    """Tell whether this very daemon, with these very arguments, runs."""
    record = _record(daemon.pid_file(places))
    return record is not None and record[1] == daemon.argv and _is(*record)


def check(running: Iterable[Daemon], places: Places) -> None:
    """Raise with the end of its log when a daemon has ended.

    Raises:
        StepError: one of them does not run.
    """
    for daemon in running:
        if not alive(daemon, places):
            raise steps.StepError(f"{daemon.name} has ended:\n{commands.tail(daemon.log(places))}")


def recorded(places: Places) -> dict[str, int]:
    """Return name and process number of every daemon that was started and still runs."""
    running = {}
    for path in sorted(places.pids.glob("*.json")):
        record = _record(path)
        if record is not None and _is(*record):
            running[path.stem] = record[0]
    return running


def strays(places: Places) -> list[int]:
    """Return daemons and shims of this state that no file tells of.

    Ours is what runs a program of our cache, or a shim, and names a path of our state.
    """
    inside = f"{places.state}/"
    found = []
    for pid in all_pids():
        argv = command_line(pid)
        if not argv or not any(inside in word for word in argv[1:]):
            continue
        program = argv[0]
        if program.startswith(f"{places.tools}/") or Path(program).name == "containerd-shim-runc-v2":
            found.append(pid)
    return found


def end(pids: Iterable[int], *, grace: float) -> None:
    """Ask processes to end, and kill those that do not within the grace time."""
    waiting = [pid for pid in pids if _signal(pid, signal.SIGTERM)]
    deadline = time.monotonic() + grace
    while waiting and time.monotonic() < deadline:
        time.sleep(0.05)
        waiting = [pid for pid in waiting if running(pid)]
    kill(waiting)


def kill(pids: Iterable[int]) -> None:
    """Kill processes and wait until each is gone or waits for its parent only."""
    waiting = [pid for pid in pids if _signal(pid, signal.SIGKILL)]
    if waiting:
        steps.until(f"the end of processes {waiting}", lambda: not any(map(running, waiting)), seconds=60)


def running(pid: int) -> bool:
    """Tell whether a process exists and is more than a dead entry that nobody collected."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def command_line(pid: int) -> tuple[str, ...]:
    """Return the arguments of a process, empty when there are none to see."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ()
    return tuple(raw.decode(errors="replace").removesuffix("\0").split("\0")) if raw else ()


def all_pids() -> list[int]:
    """Return the numbers of all processes."""
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _is(pid: int, argv: tuple[str, ...]) -> bool:
    return running(pid) and command_line(pid) == argv


def _record(path: Path) -> tuple[int, tuple[str, ...]] | None:
    try:
        record = json.loads(path.read_text())
        return int(record["pid"]), tuple(record["argv"])
    except (FileNotFoundError, ValueError, KeyError):
        return None


def _signal(pid: int, number: signal.Signals) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False
