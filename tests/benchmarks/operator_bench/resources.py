"""CPU time and memory of processes, from /proc."""

import os
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.operator_bench.figures import OTHERS

_TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, 0 when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def busy_seconds() -> float:
    """CPU time of everything on this machine so far."""
    words = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq, *_ = map(int, words)
    return (user + nice + system + irq + softirq) / _TICK


@dataclass(frozen=True)
class Memory:
    """MiB that are resident now, and at most since the process began."""

    now: float
    peak: float

    @classmethod
    def of(cls, pid: int) -> "Memory":
        """Read both."""
        lines = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
        return cls(*(int(lines[key].split()[0]) / 1024 for key in ("VmRSS", "VmHWM")))


@dataclass(frozen=True)
class CpuSample:
    """CPU seconds so far of named processes and of the machine."""

    by_name: dict[str, float]
    machine: float

    @classmethod
    def take(cls, pids: dict[str, int]) -> "CpuSample":
        """Read all."""
        return cls({name: cpu_seconds(pid) for name, pid in pids.items()}, busy_seconds())

    def since(self, earlier: "CpuSample") -> dict[str, float]:
        """What each used; `others` is the rest of the machine."""
        used = {name: self.by_name[name] - earlier.by_name[name] for name in self.by_name}
        return {**used, OTHERS: max(0.0, self.machine - earlier.machine - sum(used.values()))}
