"""The agent's loop and the process that sends the output: when one is started, and what its end tells."""

import errno
import json
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dglrun.agent import daemon as daemon_module
from dglrun.agent import process_group
from dglrun.agent.daemon import Daemon, State
from dglrun.agent.exit_status import ExitStatus
from dglrun.agent.forked_program import SENDER
from tests.unit.dglrun.workflow.builders import a_spec


class Programs:
    """Stands for the forks of the agent; the ends that are not reaped yet."""

    def __init__(self) -> None:
        self.started: list[tuple[str, str, str]] = []
        self.killed: list[int] = []
        self.ends: list[tuple[int, ExitStatus]] = []
        self.fails_with: OSError | None = None

    def start(self, module: str, order: str, name: str, is_heard: bool = False) -> "Program":
        """In the place of ForkedProgram."""
        if self.fails_with:
            raise self.fails_with
        assert is_heard
        self.started.append((module, order, name))
        return Program(self, len(self.started))

    def reap(self) -> list[tuple[int, ExitStatus]]:
        """In the place of process_group.reap."""
        ends, self.ends = self.ends, []
        return ends


class Program:
    """One of them; its number is its process."""

    def __init__(self, programs: Programs, pid: int) -> None:
        self._programs, self.pid = programs, pid

    def kill(self) -> None:
        """Remember that."""
        self._programs.killed.append(self.pid)

    def last_words(self) -> str:
        """What it has said."""
        return "the output could not be sent: timed out"


class Launcher:
    """What the agent records."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def record(self, record: dict[str, Any]) -> None:
        """In the place of the outbox."""
        self.told.append(record)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    """The agent's, none of which runs."""
    found = Programs()
    monkeypatch.setattr(daemon_module, "ForkedProgram", found.start)
    monkeypatch.setattr(process_group, "reap", found.reap)
    return found


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Launcher:
    """Takes the records."""
    found = Launcher()
    monkeypatch.setattr(daemon_module, "Outbox", lambda: found)
    return found


@pytest.fixture
def agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: Programs, launcher: Launcher
) -> Iterator[Daemon]:
    """An agent whose processes have ended, without signals of its own."""
    assert programs
    assert launcher
    monkeypatch.setattr(Daemon, "_catch_signals", lambda _self: None)
    spec = a_spec(output=str(tmp_path / "output"), shm=str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        found = Daemon(spec, tmp_path, listener, context, frozenset())
        found._state = State.FINISHED
        yield found
        found._selector.close()


def tell(agent: Daemon, number: int) -> None:
    """Ask for the output, by the attempt of this number."""
    connection: Any = None
    agent._obey(connection, {"do": "output", "number": number, "module": "m", "order": f"order {number}"})


def test_an_attempt_that_is_told_again_goes_on(agent: Daemon, programs: Programs) -> None:
    """The launcher repeats what a broken connection may have lost."""
    for _ in range(3):
        tell(agent, 1)

    assert programs.started == [("m", "order 1", SENDER)]
    assert programs.killed == []


def test_another_attempt_takes_the_place_of_the_one_before(agent: Daemon, programs: Programs) -> None:
    """The launcher has given that one up, and its end is not the end of the new one."""
    tell(agent, 1)
    tell(agent, 2)
    programs.ends = [(1, ExitStatus(137))]
    agent._reap()
    tell(agent, 2)

    assert [order for _module, order, _name in programs.started] == ["order 1", "order 2"]
    assert programs.killed == [1]


@pytest.mark.parametrize("code", [0, 69, 137])
def test_the_end_of_a_sender_is_told_with_its_reason(
    agent: Daemon, programs: Programs, launcher: Launcher, code: int
) -> None:
    """Who waits for it learns that at once; told again, the agent starts another one."""
    tell(agent, 7)
    programs.ends = [(1, ExitStatus(code))]
    agent._reap()
    tell(agent, 7)

    what = f"ended with {ExitStatus(code)}: the output could not be sent: timed out"
    assert launcher.told == [{"kind": "output", "number": 7, "what": what}]
    assert len(programs.started) == 2


def test_a_sender_that_cannot_be_started_is_told(
    agent: Daemon, programs: Programs, launcher: Launcher
) -> None:
    """No process may be left now; told again, the agent tries again."""
    programs.fails_with = OSError(errno.EAGAIN, "Resource temporarily unavailable")
    tell(agent, 7)
    programs.fails_with = None
    tell(agent, 7)

    assert [(each["kind"], each["number"]) for each in launcher.told] == [("output", 7)]
    assert "could not be started: [Errno 11] Resource temporarily unavailable" in launcher.told[0]["what"]
    assert len(programs.started) == 1


@pytest.mark.parametrize("state", [State.WAITING, State.RUNNING, State.STOPPING])
def test_nothing_is_sent_while_processes_run(agent: Daemon, programs: Programs, state: State) -> None:
    """What they still write would be missing."""
    agent._state = state
    tell(agent, 1)

    assert programs.started == []


def test_an_output_folder_that_cannot_be_listed_is_told(
    agent: Daemon, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts as empty, so that nobody collects it."""
    folder = Path(agent.spec.output)
    folder.mkdir()
    scandir = os.scandir

    def listed(path: str) -> Any:
        if str(path) == str(folder):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", listed)

    agent._finish(0)

    what = f"'{folder}' cannot be listed and counts as empty: Permission denied"
    assert launcher.told[0] == {"kind": "note", "text": what}
    assert launcher.told[1]["has_files"] is False
    json.dumps(launcher.told)


def test_a_missing_output_folder_is_no_trouble(agent: Daemon, launcher: Launcher) -> None:
    """Most workers write nothing."""
    agent._finish(0)

    assert [each["kind"] for each in launcher.told] == ["finished"]
