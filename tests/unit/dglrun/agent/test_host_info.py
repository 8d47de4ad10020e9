"""What only the worker itself can know."""

import socket
from pathlib import Path

import pytest

from dglrun.agent import host_info
from dglrun.agent.spec import THREADS
from dglrun.contract import env


@pytest.mark.parametrize(("cpus", "trainers", "threads"), [(8, 2, 4), (8, 3, 2), (0.5, 1, 1), (2, 4, 1)])
def test_trainers_share_the_cpus(cpus: float, trainers: int, threads: int) -> None:
    """Whole threads, at least one."""
    assert host_info.threads(cpus, trainers) == threads


def test_the_interface_is_found_by_its_address() -> None:
    """Loopback is there everywhere; a foreign address is refused with what was found."""
    assert host_info.interface_of("127.0.0.1") == "lo"
    with pytest.raises(host_info.HostError, match=r"192\.0\.2\.7 is on no interface"):
        host_info.interface_of("192.0.2.7")


def bound_below_a_free_one(taken: socket.socket) -> int:
    """Bind to a port whose next is free, too, below those that Linux gives to connections; returns it."""
    for port in range(20000, 29000, 2):
        try:
            with socket.socket() as after:
                after.bind(("", port + 1))
            taken.bind(("", port))
        except OSError:
            continue
        return port
    raise AssertionError("no two free ports from 20000 to 29000")


def test_a_port_in_use_is_passed_over_or_refused() -> None:
    """The master port is the next free one; a server's port must be free."""
    with socket.socket() as taken:
        port = bound_below_a_free_one(taken)
        taken.listen()

        assert host_info.free_port([port, port + 1]) == port + 1
        with pytest.raises(host_info.HostError, match=f"port {port} is taken"):
            host_info.require_free([port])
        with pytest.raises(host_info.HostError, match="no free port"):
            host_info.free_port([port])


def test_the_pod_templates_own_value_wins() -> None:
    """A user who sets OMP_NUM_THREADS knows why; placeholders are whole values only."""
    base = {"OMP_NUM_THREADS": "7", "PATH": "/bin"}
    wanted = {"OMP_NUM_THREADS": "<n>", "RANK": "0", "X": "a <n>", "Y": "<n>"}

    found = host_info.environment(base, wanted, {"<n>": "2"})

    assert found == {"OMP_NUM_THREADS": "7", "PATH": "/bin", "RANK": "0", "X": "a <n>", "Y": "2"}


def test_a_share_of_the_cpus_is_divided_among_the_trainers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no cgroup says it; at least one thread each."""
    monkeypatch.setenv(env.CPUS, "4.5")

    found = [host_info.known("127.0.0.1", trainers, 1, Path("a"), Path("b")) for trainers in (1, 2, 8)]

    assert [each[THREADS] for each in found] == ["4", "2", "1"]
