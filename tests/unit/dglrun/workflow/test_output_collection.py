"""Output that agents send home: whole whatever breaks, and asked for in another way where no agent sends."""

import contextlib
import io
import json
import queue
import random
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dglrun.contract import exitcodes
from dglrun.transfer import copy, tar_stream
from dglrun.transfer.output_stream import OutputStream
from dglrun.workflow import output_collection
from dglrun.workflow.output_collection import OutputCollection, Wanted
from dglrun.workflow.training import Training
from tests.support.dglrun_pods import ROOT
from tests.support.pulling import Relay, write_files

pytestmark = pytest.mark.timeout(120)

POD = "job-worker-0"
SIZES = {"model.pt": 3_000_000, "epoch-1/model.pt": 70_000, "none": 0}


class Agent:
    """Starts senders as an agent does: one at a time, and another one only for a new attempt.

    Args:
        way: Changes the order's port.
    """

    def __init__(self, way: Callable[[int], int] = lambda port: port) -> None:
        self._way, self._number = way, 0
        self._sender: subprocess.Popen[str] | None = None

    def tell(self, _pod: str, command: Mapping[str, Any]) -> None:
        """Obey a command."""
        if self._sender and self._sender.poll() is None:
            if command["number"] == self._number:
                return
            self.end()
        order = json.loads(command["order"])
        order["port"], self._number = self._way(order["port"]), command["number"]
        argv = [sys.executable, "-S", "-m", command["module"]]
        self._sender = sender = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT
        )
        assert sender.stdin
        sender.stdin.write(json.dumps(order) + "\n")
        sender.stdin.close()

    def end(self) -> None:
        """Kill the sender."""
        if self._sender:
            self._sender.kill()
            self._sender.wait()


@contextmanager
def collecting(
    tell: Callable[[str, Mapping[str, Any]], None], is_connected: bool = True, lease: float = 30.0
) -> Iterator[OutputCollection]:
    """The launcher's end."""
    with contextlib.closing(
        OutputCollection({POD: "127.0.0.1"}, tell, lambda _pod: is_connected, lease)
    ) as found:
        yield found


def wanted(tmp_path: Path) -> Wanted:
    """Worker 0's output folder."""
    return Wanted(POD, str(tmp_path / "from"), ".dglrun-shared-x", tmp_path / "to")


def in_a_minute() -> float:
    """A deadline."""
    return time.monotonic() + 100


@pytest.fixture(autouse=True)
def _goes_on_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy, "BACKOFF_SECONDS", (0.0,))
    monkeypatch.setattr(output_collection, "AGAIN_SECONDS", 0.2)


def test_twenty_connections_that_break_lose_nothing(tmp_path: Path) -> None:
    """At any byte, the handshake's included; nothing appears before it is whole."""
    files = write_files(tmp_path / "from", SIZES)
    moments = random.Random(1)  # noqa: S311 - moments, no secret
    cuts = [moments.randrange(sum(SIZES.values())) for _ in range(19)] + [100]
    with contextlib.ExitStack() as stack:
        relays: dict[int, Relay] = {}

        def way(port: int) -> int:
            if port not in relays:
                relays[port] = stack.enter_context(Relay(port, cuts, is_counted_there=True))
            return relays[port].port

        agent = Agent(way)
        stack.callback(agent.end)
        collection = stack.enter_context(collecting(agent.tell))
        names = collection.collect(wanted(tmp_path), in_a_minute())

    assert names == sorted(SIZES)
    assert all((tmp_path / "to" / name).read_bytes() == path.read_bytes() for name, path in files)
    assert sorted(path.name for path in (tmp_path / "to").iterdir()) == ["epoch-1", "model.pt", "none"]


def test_twenty_senders_that_are_killed_at_once_lose_nothing(tmp_path: Path) -> None:
    """Told again, the agent starts another one; the launcher need not know why nothing came."""
    files = write_files(tmp_path / "from", SIZES)
    agent, kills = Agent(), iter(range(20))

    def tell_and_kill(pod: str, command: Mapping[str, Any]) -> None:
        agent.tell(pod, command)
        if next(kills, None) is not None:
            agent.end()

    with contextlib.closing(contextlib.ExitStack()) as stack, collecting(tell_and_kill) as collection:
        stack.callback(agent.end)
        names = collection.collect(wanted(tmp_path), in_a_minute())

    assert names == sorted(SIZES)
    assert all((tmp_path / "to" / name).read_bytes() == path.read_bytes() for name, path in files)
    assert next(kills, None) is None


def test_an_agent_that_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    """Its lease is over, so it has left; kubectl is the other way."""
    with collecting(lambda _pod, _command: None, is_connected=False, lease=0.1) as collection:
        assert collection.collect(wanted(tmp_path), in_a_minute()) is None


def test_an_agent_that_sends_nothing_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its worker may not be let in to the launcher."""
    monkeypatch.setattr(output_collection, "NO_SENDER_SECONDS", 0.3)

    with collecting(lambda _pod, _command: None) as collection:
        assert collection.collect(wanted(tmp_path), in_a_minute()) is None

    assert "its agent has sent nothing for" in capsys.readouterr().out


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """The stream is cut short and says why; after three attempts that is the error."""
    (tmp_path / "from").mkdir()
    (tmp_path / "from/mem").touch()
    agent, mount = Agent(), ["mount", "--bind", "/proc/self/mem", str(tmp_path / "from/mem")]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("needs root: a file that cannot be read")
    try:
        with collecting(agent.tell) as collection, pytest.raises(copy.CopyError) as caught:
            collection.collect(wanted(tmp_path), in_a_minute())
    finally:
        agent.end()
        subprocess.run(["umount", str(tmp_path / "from/mem")], check=True)

    assert "attempt 3" in str(caught.value)
    assert f"{tmp_path}/from/mem: cannot be read whole" in str(caught.value)
    assert caught.value.code == exitcodes.IO


def test_what_is_left_out_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Links that lead out, and a folder that is the launcher's own."""
    folder, agent = tmp_path / "from", Agent()
    write_files(folder, {"model.pt": 10})
    (folder / "latest").symlink_to("gone")
    with collecting(agent.tell) as collection:
        first = collection.collect(wanted(tmp_path), in_a_minute())
        (folder / ".dglrun-shared-x").touch()
        second = collection.collect(wanted(tmp_path), in_a_minute())
    agent.end()

    said = capsys.readouterr().out
    assert (first, second) == (["model.pt"], [])
    assert f"note: {POD}: not copied: {folder}/latest is a link to gone" in said
    assert f"note: {POD}: {folder} is the launcher's own output folder" in said
    assert tar_stream.STAGING not in {path.name for path in (tmp_path / "to").iterdir()}


def test_a_note_is_printed_without_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It comes from a worker, and the log may be read on a terminal."""
    tar, end = io.BytesIO(), json.dumps({"notes": ["red\x1b[31m"], "failed": "gone\x1b[2J"}).encode()
    tar_stream.pack([], tar, tar_stream.ZEROS)
    worker, launcher = socket.socketpair()
    with worker, launcher:
        for piece in (tar.getvalue(), b"", end):
            worker.sendall(struct.pack("!I", len(piece)) + piece)
        connection: Any = launcher

        with pytest.raises(copy.CopyBrokenError) as caught:
            output_collection._taken(OutputStream(connection), wanted(tmp_path))

    assert "\x1b" not in capsys.readouterr().out + str(caught.value)
    assert r"gone\x1b[2J" in str(caught.value)


class Clock:
    """Ten seconds pass with each question whether an agent can be reached.

    Args:
        answers: To these questions; the last one again and again.
    """

    def __init__(self, *answers: bool) -> None:
        self._answers, self._now, self.asked = list(answers), 0.0, 0

    def monotonic(self) -> float:
        """The time."""
        return self._now

    def is_connected(self, _pod: str) -> bool:
        """The next answer."""
        self._now, self.asked = self._now + 10.0, self.asked + 1
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


@pytest.fixture
def _no_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_collection, "_TICK", 0.001)


@pytest.mark.usefixtures("_no_time_passes")
@pytest.mark.parametrize(
    ("answers", "asked"),
    [((True,), 5), ((*[False] * 20, True), 24), ((*[True, False] * 3, True), 8), ((*[False] * 31, True), 31)],
)
def test_an_agent_has_its_time_from_when_it_can_be_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: tuple[bool, ...], asked: int
) -> None:
    """It was given up in the moment in which its connection came back; its lease bounds the time without."""
    clock = Clock(*answers)
    monkeypatch.setattr(output_collection, "time", clock)
    with contextlib.closing(
        OutputCollection({POD: "127.0.0.1"}, lambda _pod, _command: None, clock.is_connected, 295.0)
    ) as collection:
        trouble = "has sent nothing for 30 s" if asked < 31 else "could not be reached for 295 s"
        with pytest.raises(output_collection._NoSenderError, match=trouble):
            collection._arrival(wanted(tmp_path))

    assert clock.asked == asked


def test_the_end_of_a_sender_is_known_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each reason once, and with the error; that of an earlier attempt says nothing."""
    monkeypatch.setattr(output_collection, "NO_SENDER_SECONDS", 2.0)
    said, senders = list[str](), list[OutputCollection]()

    def tell(pod: str, command: Mapping[str, Any]) -> None:
        said.append(capsys.readouterr().out)
        senders[0].sender_ended(pod, command["number"] - 1, "ended with exit code 1")
        senders[0].sender_ended(pod, command["number"], "ended with exit code 69: red\x1b[31m")

    with collecting(tell) as collection:
        senders.append(collection)
        assert collection.collect(wanted(tmp_path), in_a_minute()) is None

    printed = "".join([*said, capsys.readouterr().out])
    words = r"'ended with exit code 69: red\x1b[31m'"
    assert printed.count(f"note: {POD}: the process that sends its output {words}\n") == 1
    assert f"its agent has sent nothing for 2 s: its process {words}; its output is asked for" in printed
    assert "exit code 1\n" not in printed


def test_a_training_hands_the_end_of_a_sender_on_without_a_turn() -> None:
    """Its main thread waits for the output meanwhile; what else comes waits for that thread."""
    ends = list[tuple[object, ...]]()
    collection: Any = SimpleNamespace(sender_ended=lambda *end: ends.append(end))
    worker: Any = SimpleNamespace(pod=POD)
    training = Training.__new__(Training)
    training._inbox, training._collection = queue.SimpleQueue(), None
    end = {"kind": "output", "number": 3, "what": "ended with exit code 69"}

    training._receive(worker, end)  # nobody has asked for output
    training._collection = collection
    training._receive(worker, end)
    training._receive(worker, {"kind": "drained"})

    assert ends == [(POD, 3, "ended with exit code 69")]
    assert training._inbox.get_nowait() == (worker, {"kind": "drained"})
    assert training._inbox.empty()
