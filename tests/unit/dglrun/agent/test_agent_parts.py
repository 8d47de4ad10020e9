"""The parts of the supervisor on their own: formats, journal, lines, facts, /proc."""

import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dglrun import cgroup
from dglrun.agent import host_info, procfs, shared_memory
from dglrun.agent.event_log import EventLog
from dglrun.agent.exit_status import ExitStatus
from dglrun.agent.line_splitter import LONGEST, REPEAT_SECONDS, LineSplitter
from dglrun.agent.spec import Process, ProcessRole, Spec, SpecError, decode, encode
from tests.support.dglrun_pods import ROOT
from tests.support.wait import wait_for

words = st.text(max_size=12)
processes = st.builds(
    Process,
    st.sampled_from(ProcessRole),
    st.integers(0, 9),
    st.none() | st.integers(0, 99),
    st.lists(words, min_size=1).map(tuple),
    st.dictionaries(words, words),
)
specs = st.builds(
    Spec,
    run=words,
    ip=words,
    trainers=st.integers(1, 8),
    processes=st.lists(processes, max_size=3).map(tuple),
    files=st.dictionaries(words, words),
    folders=st.lists(words).map(tuple),
    ports=st.lists(st.integers(1, 65535)).map(tuple),
    output=words,
    lease=st.floats(1, 100),
    grace=st.floats(0, 10),
    shm=words,
)


@given(specs)
def test_a_spec_survives_its_line(spec: Spec) -> None:
    """What is sent is what arrives, whatever the arguments hold; always one line."""
    line = encode(spec)

    assert "\n" not in line
    assert decode(line) == spec


@given(st.text() | st.sampled_from(["{}", "[]", "null", '{"processes": [{}]}', '{"processes": 1}']))
def test_what_is_no_spec_is_refused(text: str) -> None:
    """With one kind of error only."""
    with pytest.raises(SpecError):
        decode(text)


@settings(deadline=None)  # files on a busy machine
@given(
    st.lists(st.integers(0, 400), max_size=60),
    st.integers(2, 60).map(lambda n: n * 100),
    st.lists(st.integers(1, 5), max_size=80),
)
def test_a_journal_gives_each_record_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limit: int, reads: list[int]
) -> None:
    """A reader that follows misses nothing that is still kept, and stays at the beginning of records."""
    journal = EventLog(tmp_path_factory.mktemp("journal"), limit)
    offset, read, pace = 0, b"", iter(reads)
    lost = 0
    for number, size in enumerate(sizes):
        journal.append({"n": number, "x": "y" * size})
        for _ in range(next(pace, 0) - 1):
            at, block = journal.read(offset, 64)
            lost, offset, read = lost + at - offset, at + len(block), read + block
    while True:
        at, block = journal.read(offset, 64)
        if not block:
            break
        lost, offset, read = lost + at - offset, at + len(block), read + block
    journal.close()

    numbers = [int(line.split(b",")[0].split(b":")[1]) for line in read.splitlines()]
    assert read == b"" or read.endswith(b"\n")
    assert numbers == sorted(set(numbers))
    assert lost or numbers == list(range(len(sizes)))
    assert not sizes or numbers[-1] == len(sizes) - 1


def test_a_journal_stays_within_its_limit(tmp_path: Path) -> None:
    """However much a process prints."""
    journal = EventLog(tmp_path, limit=10_000)

    for _ in range(1000):
        journal.append({"text": "x" * 100})

    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert 4_000 < size <= 10_200
    assert journal.read(0)[0] == journal.start > 0
    journal.close()


@given(
    st.lists(st.text("ab \té✓[]"), max_size=8),
    st.integers(1, 7),
)
def test_lines_do_not_depend_on_the_blocks(lines: list[str], size: int) -> None:
    """Whatever the pipe cuts, the lines are the ones that were written."""
    stream = "".join(line + "\n" for line in lines).encode()
    splitter = LineSplitter()

    found = [
        line for at in range(0, len(stream), size) for line in splitter.feed(stream[at : at + size], 0.0)
    ]

    assert found + splitter.flush() == [line.rstrip() for line in lines]


def test_a_progress_bar_is_shown_now_and_then() -> None:
    """A line rewritten a thousand times is a few lines in a pod log, its last state among them."""
    splitter = LineSplitter(0.0)

    shown = [splitter.feed(f"\r{n}%".encode(), n * REPEAT_SECONDS / 10) for n in range(101)]
    last = splitter.feed(b"\rdone\n", 1000.0)

    assert 9 <= sum(len(lines) for lines in shown) <= 11
    assert last == ["done"]


def test_a_line_without_end_is_given_in_pieces() -> None:
    """Memory stays bounded."""
    found = LineSplitter().feed(b"x" * (2 * LONGEST + 5), 0.0)

    assert [len(piece) for piece in found] == [LONGEST, LONGEST]


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


@given(
    comm=st.text("ab ()é1", max_size=15),
    pid=st.integers(1, 4194304),
    parent=st.integers(0, 4194304),
    status=st.integers(0, 65535),
)
def test_a_stat_line_is_read_whatever_the_name(comm: str, pid: int, parent: int, status: int) -> None:
    """Blanks and brackets in the command's name do not shift the fields."""
    fields = ["0"] * 48
    fields[17] = "12345"
    fields[47] = str(status)

    entry = procfs.parse(f"{pid} ({comm}) Z {parent} {' '.join(fields)}\n")

    assert entry == procfs.Entry(pid, parent, "Z", 12345, status)
    assert entry.is_zombie


def test_a_zombie_tells_its_status() -> None:
    """The kernel shows how it ended although nobody has asked."""
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.exit(5)"])

    def zombie() -> procfs.Entry | None:
        entry = procfs.table().get(child.pid)
        return entry if entry and entry.is_zombie else None

    entry = wait_for("a zombie", zombie)
    assert ExitStatus.of_status(entry.status) == ExitStatus(5)
    assert entry.parent == os.getpid()
    child.wait()


def test_descendants_are_found_over_generations() -> None:
    """Children of children count, others do not."""
    entries = {pid: procfs.Entry(pid, parent, "S", 0, 0) for pid, parent in [(2, 1), (3, 2), (4, 3), (5, 1)]}

    assert {entry.pid for entry in procfs.descendants(2, entries)} == {3, 4}


def test_ends_are_told_as_a_shell_does() -> None:
    """128 + n, with the signal's name."""
    assert str(ExitStatus.of_status(signal.SIGKILL)) == "exit code 137 (SIGKILL)"
    assert str(ExitStatus.of_status(7 << 8)) == "exit code 7"


def test_only_new_segments_of_ours_are_removed(tmp_path: Path) -> None:
    """What was there before stays, and so do folders."""
    (tmp_path / "old").touch()
    before = shared_memory.names(tmp_path)
    (tmp_path / "new").touch()
    (tmp_path / "folder").mkdir()

    gone = shared_memory.remove_new(tmp_path, before)

    assert gone == ("new",)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "old"]
    assert shared_memory.names(tmp_path / "missing") == frozenset()


def test_the_supervisor_starts_quickly() -> None:
    """It imports nothing heavy: its start is part of the time to the first trainer."""
    heavy = "('pydantic', 'yaml', 'numpy', 'asyncio', 'tarfile', 'dglrun.workflow.config')"
    code = f"import sys, dglrun.agent.main\nprint([m for m in {heavy} if m in sys.modules])"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.stdout.strip() == "[]"
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2.0


@pytest.mark.parametrize("program", ["agent.main", "agent.script_runner", "pod_waiter.program"])
def test_what_runs_on_a_worker_or_in_an_init_container_needs_the_standard_library_alone(program: str) -> None:
    """No package of ours or of others is loaded but dglrun's own modules."""
    code = (
        f"import sys\nbefore = set(sys.modules)\nimport dglrun.{program}\n"
        "loaded = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(loaded - {'__mp_main__'} - set(sys.stdlib_module_names)))"  # multiprocessing's __main__
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    assert done.stdout.strip() == "['dglrun']"


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
