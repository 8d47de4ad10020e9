"""Processes as /proc shows them."""

import os
import signal
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from dglrun.agent import procfs
from dglrun.agent.exit_status import ExitStatus
from tests.support.wait import wait_for


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
    fields[9:13] = ["1", "2", "3", "4"]
    fields[47] = str(status)

    entry = procfs.parse(f"{pid} ({comm}) Z {parent} {' '.join(fields)}\n")

    assert entry == procfs.Entry(pid, parent, "Z", 12345, status, 10 / os.sysconf("SC_CLK_TCK"))
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


def test_a_process_says_which_signals_it_handles() -> None:
    """One that does not handle a signal would be ended by it."""
    script = "import signal; signal.signal(signal.SIGUSR1, print); print(flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.readline()

        found = [procfs.catches(child.pid, number) for number in (signal.SIGUSR1, signal.SIGUSR2)]
        child.kill()

    assert found == [True, False]
    assert not procfs.catches(child.pid, signal.SIGUSR1)
