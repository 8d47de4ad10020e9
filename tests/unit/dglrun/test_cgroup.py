"""What the kernel allows a container."""

import os
from pathlib import Path

import pytest

from dglrun import cgroup


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({"cpu.max": "200000 100000\n"}, 2.0),
        ({"cpu.max": "50000 100000\n"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4.0),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_the_cpu_limit_is_the_containers(tmp_path: Path, files: dict[str, str], cpus: float | None) -> None:
    """Cgroup v2 and v1; without a quota the CPUs that the process may use."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    assert cgroup.cpu_limit(tmp_path) == (cpus or len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(
    ("files", "kills"),
    [
        ({"memory.events": "low 0\nhigh 0\noom 3\noom_kill 2\n"}, 2),
        ({"memory/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"}, 1),
        ({}, 0),
    ],
)
def test_the_kernel_tells_who_ran_out_of_memory(tmp_path: Path, files: dict[str, str], kills: int) -> None:
    """Cgroup v2 and v1; 0 where nothing is told."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    assert cgroup.oom_kills(tmp_path) == kills
