"""Two runs never mix on a worker: a new agent ends the one before and clears what it left."""

import contextlib
import fcntl
import json
import os
import signal
import time
from pathlib import Path

from dglrun.agent import process_group, shared_memory

PATIENCE = 20.0
"""Seconds that an earlier agent gets to end its processes before it is killed."""


class StillRunningError(Exception):
    """An earlier agent could not be ended."""


def acquire(folder: Path, segments: Path) -> tuple[int, frozenset[str], list[str]]:
    """Take hold of a run folder.

    Args:
        folder: The run folder; made if missing.
        segments: Where shared memory lies.

    Returns:
        The descriptor that holds the lock as long as it is open; the segments that do not belong to any run;
        notes on what was ended and removed.

    Raises:
        StillRunningError: the earlier agent lives on.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    notes = []
    if not _locked(lock):
        notes.append("ended the agent of an earlier run")
        _end_holder(folder, lock)
    os.ftruncate(lock, 0)  # until we have written ours: the earlier number may be another process by then
    if remains := process_group.end_remains(folder):
        notes.append(f"killed {len(remains)} processes that an earlier run had left")
    before = _own_baseline(folder, segments)
    if gone := shared_memory.remove_new(segments, before):
        notes.append(f"removed {len(gone)} shared-memory segments that an earlier run had left")
    _clear(folder)
    (folder / "segments").write_text(json.dumps(sorted(before)))
    return lock, before, notes


def record_holder(lock: int) -> None:
    """Write into the lock file who holds it."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)


def release(folder: Path) -> None:
    """Forget the list of foreign segments: the run has removed its own."""
    (folder / "segments").unlink(missing_ok=True)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _end_holder(folder: Path, lock: int) -> None:
    for number, patience in ((signal.SIGTERM, PATIENCE), (signal.SIGKILL, 5.0)):
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((folder / "lock").read_text()), number)
        if _wait(lock, patience):
            return
    raise StillRunningError(f"the agent of an earlier run in {folder} could not be ended")


def _wait(lock: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not _locked(lock):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _own_baseline(folder: Path, segments: Path) -> frozenset[str]:
    """What was there before the earlier run if that one did not clean up, else what is there now."""
    try:
        return frozenset(json.loads((folder / "segments").read_text()))
    except (OSError, ValueError):
        return shared_memory.names(segments)


def _clear(folder: Path) -> None:
    for path in folder.glob("causes/*"):
        path.unlink(missing_ok=True)
