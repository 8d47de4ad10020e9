"""How long the processes of a worker have been idle: no output and, where it counts, no use of CPU."""

import os
from collections.abc import Iterable, Mapping

from dglrun.agent import procfs
from dglrun.agent.process_group import Child

OUTPUT, CPU = "output", "cpu"
"""What may count as activity (`Spec.watched`)."""
OTHERS = "other processes"
"""The name of those that no longer descend from a process that was started here."""
SHARE = 0.01
"""Of one CPU: a process that has used less on average since its last activity is idle."""


class ActivityMonitor:
    """What was seen of the processes so far.

    Args:
        watched: What counts as activity; empty: nothing is looked at.
        now: The time (monotonic).
    """

    def __init__(self, watched: Iterable[str], now: float) -> None:
        self._watched, self._begun = frozenset(watched), now
        self._seen: dict[str, tuple[float, float]] = {}

    def look(self, children: Iterable[Child], now: float) -> dict[str, float]:
        """For how many seconds each process that runs has been idle, its own descendants included."""
        running = [child for child in children if not child.end]
        if not self._watched:
            return {}
        wrote = {child.process.name: child.wrote for child in running}
        if CPU not in self._watched:
            return self.idle(wrote, {}, now)
        used = _cpu_seconds({child.process.name: child.pid for child in running})
        others = {OTHERS: self._begun} if OTHERS in used else {}
        return self.idle(wrote | others, used, now)

    def idle(self, wrote: Mapping[str, float], used: Mapping[str, float], now: float) -> dict[str, float]:
        """The same from numbers.

        Args:
            wrote: By process, the time of its last output.
            used: By process, its CPU seconds so far; a process that is missing has no such activity.
            now: The time.
        """
        for name, time in wrote.items():
            cpu = used.get(name, 0.0)
            # At the first look nothing is known of its use of CPU before.
            since, before = self._seen.get(name, (now if name in used else time, cpu))
            if time > since:
                since, before = time, cpu
            elif cpu < before or cpu - before > SHARE * (now - since):  # less: a descendant has ended
                since, before = now, cpu
            self._seen[name] = since, before
        return {name: now - self._seen[name][0] for name in wrote}


def _cpu_seconds(pids: Mapping[str, int]) -> dict[str, float]:
    """CPU seconds of each process with its descendants, and of ours that descend from none of them."""
    entries = procfs.table()
    families = {name: {pid, *_below(pid, entries)} for name, pid in pids.items()}
    others = _below(os.getpid(), entries).difference(*families.values())
    families |= {OTHERS: others} if others else {}
    return {
        name: sum(entries[pid].cpu_seconds for pid in family if pid in entries)
        for name, family in families.items()
    }


def _below(pid: int, entries: Mapping[int, procfs.Entry]) -> set[int]:
    return {entry.pid for entry in procfs.descendants(pid, entries)}
