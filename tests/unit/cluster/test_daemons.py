"""Processes are ended by number only after a look at their command line."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import daemons, steps
from tests.cluster.daemons import Daemon
from tests.cluster.places import Places


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """Places of this test only."""
    return Places(tmp_path / "cache", tmp_path / "state")


@pytest.fixture
def sleeper(places: Places) -> Iterator[Daemon]:
    """A daemon that has been started, and is gone after the test."""
    daemon = Daemon("sleeper", (sys.executable, "-c", "import signal; signal.pause()", f"{places.state}/x"))
    daemons.start(daemon, places)
    (pid,) = daemons.recorded(places).values()
    yield daemon
    daemons.kill([pid])
    os.waitpid(pid, 0)


def test_a_started_daemon_is_alive_at_once(places: Places, sleeper: Daemon) -> None:
    """Right after the start, its command line can be read: a slow start does not count as an end."""
    assert daemons.alive(sleeper, places)
    daemons.check([sleeper], places)


def test_other_arguments_are_another_daemon(places: Places, sleeper: Daemon) -> None:
    """A changed configuration makes the running one stale."""
    other = Daemon(sleeper.name, (*sleeper.argv, "--new"))

    assert not daemons.alive(other, places)


def test_a_reused_process_number_is_not_ours(places: Places, sleeper: Daemon) -> None:
    """After a crash a number may belong to anybody: without the same command line it is left alone."""
    [pid] = daemons.recorded(places).values()
    path = sleeper.pid_file(places)
    path.write_text(json.dumps({"pid": pid, "argv": ["/usr/sbin/etcd"]}))

    assert daemons.recorded(places) == {}

    path.write_text(json.dumps({"pid": pid, "argv": sleeper.argv}))


def test_a_killed_daemon_fails_the_check_with_its_log(places: Places, sleeper: Daemon) -> None:
    """The message holds the end of what the daemon said."""
    sleeper.log(places).write_text("no space left on device\n")
    daemons.kill(daemons.recorded(places).values())

    with pytest.raises(steps.StepError, match="no space left on device"):
        daemons.check([sleeper], places)


def test_who_ignores_the_request_is_killed(places: Places) -> None:
    """The grace time is short and then over."""
    code = "import signal; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()

        daemons.end([process.pid], grace=0.1)

        assert process.wait(60) == -signal.SIGKILL


def test_foreign_processes_are_no_strays(places: Places, sleeper: Daemon) -> None:
    """Naming our state is not enough: an editor that has one of our files open is not a daemon."""
    assert daemons.recorded(places)
    assert daemons.strays(places) == []
