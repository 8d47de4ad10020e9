"""The address files: what is written is read back, and what is not a line is refused by its number."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglrun.contract import hostfile, names
from dglrun.contract.hostfile import Host, HostfileError, Worker

IPS = st.ip_addresses(v=4).map(str)
PORTS = st.integers(1, 65535)


@st.composite
def hosts(draw: st.DrawFn) -> tuple[Host, ...]:
    """Pods of one job, with slots or without."""
    count = draw(st.integers(0, 20))
    slots = st.none() | st.integers(1, 64)
    return tuple(Host(draw(IPS), draw(PORTS), names.worker("job", i), draw(slots)) for i in range(count))


@given(hosts())
def test_hosts_are_read_back_as_written(written: tuple[Host, ...]) -> None:
    """hostfile, partfile and leadfile survive the round trip, in their order."""
    text = hostfile.format_hosts(written)

    assert hostfile.parse_hosts(text) == written
    assert text.count("\n") == len(written)


@given(st.lists(st.tuples(IPS, PORTS, st.integers(0, 16)), max_size=20))
def test_workers_are_read_back_as_written(written: list[tuple[str, int, int]]) -> None:
    """Ipconfig survives the round trip."""
    workers = tuple(
        Worker(ip, port, index, names.worker("job", index), gpus)
        for index, (ip, port, gpus) in enumerate(written)
    )

    assert hostfile.parse_workers(hostfile.format_workers(workers)) == workers


def test_twelve_workers_keep_name_and_address_together() -> None:
    """The 2021 operator sorted names as strings and numbered them by position."""
    workers = tuple(Host(f"10.0.0.{i}", 30050, names.worker("job", i), 1) for i in range(12))

    text = hostfile.format_hosts(workers)

    assert text.splitlines()[2] == "10.0.0.2 30050 job-worker-2 slots=1"
    assert text.splitlines()[10] == "10.0.0.10 30050 job-worker-10 slots=1"


def test_dgl_gets_two_columns() -> None:
    """DGL reads one or two columns and nothing else."""
    assert hostfile.format_dgl((Host("10.0.0.7", 30050, "job-worker-0", 4),)) == "10.0.0.7 30050\n"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("10.0.0.1 30050 a\n 30050 b\n", "line 2: expected '<ip> <port> <pod> [slots=<n>]', got ' 30050 b'"),
        ("job-worker-0 30050 a\n", "line 1: expected an IPv4 address, got 'job-worker-0'"),
        ("fd00::1 30050 a\n", "line 1: expected an IPv4 address, got 'fd00::1'"),
        ("10.0.0.1 port a\n", "line 1: expected a number as port, got 'port'"),
        ("10.0.0.1 30050 a slots=\n", "line 1: expected a number as slots, got ''"),
        ("10.0.0.1 30050 a\n10.0.0.2 30050 a\n", "pod a is named twice"),
        ("\n", "line 1: expected"),
    ],
)
def test_what_is_not_a_line_is_refused(text: str, what: str) -> None:
    """An empty address once shifted the columns; now the line is named."""
    with pytest.raises(HostfileError, match=re.escape(what)):
        hostfile.parse_hosts(text)


def test_the_longest_job_name_fits_every_label() -> None:
    """`<job>-partitioner` and `<job>-worker-<i>` are label values of at most 63 characters."""
    job = "j" * names.MAX_JOB_NAME

    assert len(names.partitioner(job)) == 63
    assert len(names.worker(job, 999)) <= 63
