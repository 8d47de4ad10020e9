"""What the kernel allows this container: its CPU limit, and kills for its memory limit (cgroup v1 and v2)."""

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def cpu_limit(cgroup: Path = CGROUP) -> float:
    """CPUs that the container may use: its cgroup's quota (v2 or v1), else those it may run on."""
    return _quota_v2(cgroup / "cpu.max") or _quota_v1(cgroup / "cpu") or float(len(os.sched_getaffinity(0)))


def oom_kills(cgroup: Path = CGROUP) -> int:
    """How often the kernel has killed a process of this container for its memory limit (cgroup v2 or v1)."""
    told = _read(cgroup / "memory.events") or _read(cgroup / "memory" / "memory.oom_control")
    counts = dict(line.split() for line in told.splitlines() if len(line.split()) == 2)
    return int(counts.get("oom_kill", 0))


def _quota_v2(path: Path) -> float | None:
    fields = _read(path).split()
    return float(fields[0]) / float(fields[1]) if len(fields) == 2 and fields[0] != "max" else None


def _quota_v1(folder: Path) -> float | None:
    quota, period = (_read(folder / f"cpu.cfs_{what}_us").strip() for what in ("quota", "period"))
    return float(quota) / float(period) if quota and period and float(quota) > 0 else None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
