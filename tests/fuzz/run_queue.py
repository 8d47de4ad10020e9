"""How long processes waited for a CPU while they could have run, as the kernel counts it.

A process that had to wait as long as it ran took twice as long for its work, whatever else there is on the
machine: that is told apart from one that was late by itself, but for one whose own threads wait for each
other's CPU (the API server's could, by an operator that calls it without end).
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
IDLE_SECONDS = 0.05
"""Added to what a process ran: one that has next to nothing to do is not slow for a wait of milliseconds."""
_NANOSECONDS = 1e9
Threads = dict[int, tuple[int, int]]


@dataclass(frozen=True)
class Waits:
    """What each thread of some processes has run, and has waited for a CPU, so far.

    Attributes:
        by_process: Nanoseconds of both by process and thread; no threads where the kernel tells nothing.
    """

    by_process: dict[int, Threads]

    @classmethod
    def of(cls, processes: Iterable[int], proc: Path = PROC) -> "Waits":
        """Read them."""
        return cls({pid: _threads(proc / str(pid)) for pid in processes})

    def slowness(self, earlier: "Waits") -> float:
        """How many times as long as with a CPU of its own the slowest of the processes took since."""
        known = {pid: threads for pid, threads in earlier.by_process.items() if threads}
        found = (_slowness(known[pid], now) for pid, now in self.by_process.items() if pid in known)
        return max(found, default=1.0)


def named(name: str, proc: Path = PROC) -> tuple[int, ...]:
    """IDs of the processes of a name, none where they run on another machine."""
    found = []
    for folder in proc.iterdir():
        with suppress(OSError):
            if folder.name.isdecimal() and (folder / "comm").read_text().strip() == name:
                found.append(int(folder.name))
    return tuple(sorted(found))


def _threads(process: Path) -> Threads:
    found: Threads = {}
    with suppress(OSError):
        for thread in (process / "task").iterdir():
            with suppress(OSError):  # it has ended: its last moment counts as neither
                ran, waited, *_ = (thread / "schedstat").read_text().split()
                found[int(thread.name)] = int(ran), int(waited)
    return found


def _slowness(earlier: Threads, later: Threads) -> float:
    """(ran + waited for a CPU) / ran, summed over the threads that are there now.

    A thread that has ended counts nothing. What the disk or other processes took is in it only as far as
    these threads waited for a CPU meanwhile.
    """
    ran, waited = IDLE_SECONDS, 0.0
    for thread, now in later.items():
        before = earlier.get(thread, (0, 0))
        ran += max(0, now[0] - before[0]) / _NANOSECONDS
        waited += max(0, now[1] - before[1]) / _NANOSECONDS
    return (ran + waited) / ran
