"""Processes as the kernel shows them in /proc: who descends from whom, who is a zombie and why."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")

_TICKS = os.sysconf("SC_CLK_TCK")
_SPAWNED = b"--multiprocessing-fork"
"""The last argument of each process that Python's `spawn` method starts, DGL's samplers among them."""


@dataclass(frozen=True)
class Entry:
    """One process.

    Attributes:
        pid: Process id.
        parent: Parent's process id.
        state: R, S, D, Z (zombie) and so on.
        started: Start time in clock ticks; with the pid it names one process for ever.
        status: Wait status of a zombie (0 where the kernel does not tell).
        cpu_seconds: CPU time of it and of its children that have ended.
    """

    pid: int
    parent: int
    state: str
    started: int
    status: int
    cpu_seconds: float = 0.0

    @property
    def is_zombie(self) -> bool:
        """Whether it has ended and nobody has asked for its status."""
        return self.state in ("Z", "X")


def parse(text: str) -> Entry:
    """Read /proc/<pid>/stat; the command's name may hold blanks and brackets."""
    pid, rest = text.split(" (", 1)
    fields = rest[rest.rindex(")") + 2 :].split()
    cpu_seconds = sum(map(int, fields[11:15])) / _TICKS
    return Entry(int(pid), int(fields[1]), fields[0], int(fields[19]), int(fields[49]), cpu_seconds)


def table(proc: Path = PROC) -> dict[int, Entry]:
    """All processes that can be seen now, by pid."""
    found = {}
    for name in os.listdir(proc):  # noqa: PTH208 - twice as fast, and it runs twice a second
        if name.isdigit() and (text := _read(proc / name / "stat")):
            entry = parse(text.decode(errors="replace"))
            found[entry.pid] = entry
    return found


def descendants(of: int, entries: Mapping[int, Entry]) -> tuple[Entry, ...]:
    """Children, their children and so on."""
    children: dict[int, list[Entry]] = {}
    for entry in entries.values():
        children.setdefault(entry.parent, []).append(entry)
    found, todo = [], [of]
    while todo:
        for child in children.get(todo.pop(), ()):
            found.append(child)
            todo.append(child.pid)
    return tuple(found)


def is_spawned(pid: int, proc: Path = PROC) -> bool:
    """Whether Python's `spawn` method started this process; always False for a zombie."""
    return _read(proc / str(pid) / "cmdline").rstrip(b"\0").endswith(_SPAWNED)


def catches(pid: int, number: int, proc: Path = PROC) -> bool:
    """Whether a process has a handler for a signal."""
    lines = _read(proc / str(pid) / "status").splitlines()
    masks = [line.split()[1] for line in lines if line.startswith(b"SigCgt:")]
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


def with_variable(name: str, value: str, entries: Iterable[int], proc: Path = PROC) -> tuple[int, ...]:
    """The processes among `entries` that were started with this environment variable."""
    wanted = f"{name}={value}".encode()
    return tuple(pid for pid in entries if wanted in _read(proc / str(pid) / "environ").split(b"\0"))


def _read(path: Path) -> bytes:
    """The content; nothing where the process is gone or another user's."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
