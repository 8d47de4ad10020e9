"""The launcher's side: takes files of the keepers, gives them back, and begins the rounds of all at once.

One thread for each keeper. A keeper is known by its certificate, and reaches the files of its ranks alone.
"""

import contextlib
import json
import os
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from dglrun.agent import tls
from dglrun.contract import exitcodes
from dglrun.transfer.checkpoints import messages
from dglrun.transfer.checkpoints.folder import OWN, RANKS_FILE, has_kept, whole_files
from dglrun.transfer.checkpoints.messages import BLOCK, WAIT_SECONDS, Message
from dglrun.transfer.pull import wire
from dglrun.transfer.pull.tls_listener import TlsListener

ABSENT_SECONDS = 30.0
"""A keeper that was away for so long is not waited for: the others go on."""
INCOMING = f"{OWN}incoming-"
"""Begins the names of files that arrive."""
_TICK = 0.5


@dataclass
class KeeperState:
    """What is known of one keeper.

    Attributes:
        is_ready: Whether it has brought back what was kept.
        done: Number of the last round that it has ended.
        is_complete: Whether that round has kept all that was there.
        files: How many files it has kept in all.
        size: Their bytes.
        restored: How many files, and bytes, it has brought back.
        trouble: Why it could not keep a file in its last round.
        failure: Why it cannot go on, and the exit code.
        connections: How many it has open.
        heard: When (monotonic) it was last connected.
        has_left: Whether it has said goodbye.
    """

    is_ready: bool = False
    done: int = 0
    is_complete: bool = False
    files: int = 0
    size: int = 0
    restored: tuple[int, int] = (0, 0)
    trouble: str = ""
    failure: tuple[str, int] | None = None
    connections: int = 0
    heard: float = field(default_factory=time.monotonic)
    has_left: bool = False

    def is_absent(self, seconds: float) -> bool:
        """Whether it has been away for so long, or for good."""
        return self.has_left or (not self.connections and time.monotonic() - self.heard > seconds)


class CheckpointServer:
    """Serves keepers until it is closed.

    Args:
        keys: The launcher's.
        folder: Takes the files, in a folder for each rank.
        ranks: The names of each keeper's ranks, by its pod.
        marker: Name of a file that lies in `folder` meanwhile, by which keepers recognise a shared volume.
        every: Seconds between the beginnings of two rounds, at least.
    """

    def __init__(
        self, keys: tls.Keys, folder: Path, ranks: Mapping[str, Collection[str]], marker: str, every: float
    ) -> None:
        self._folder, self._ranks = folder, dict(ranks)
        self._marker, self._every = marker, every
        self._states = {pod: KeeperState() for pod in ranks}
        # Keepers are served by a thread each, and one begins the rounds: rounds and states change under it.
        self._changed = threading.Condition()
        self._round, self._last, self._next_at = 0, 0, float("inf")
        self._has_begun = self._is_finishing = self._is_leaving = self._is_closed = self._may_prune = False
        _remove_incoming(folder)
        self._listener = TlsListener(keys, self._states, self._serve, "checkpoints")
        self.port = self._listener.port
        self._beginner = threading.Thread(target=self._begin_rounds, name="checkpoint-rounds", daemon=True)
        self._listener.start()
        self._beginner.start()

    def states(self) -> dict[str, KeeperState]:
        """What is known of each keeper, by its pod."""
        with self._changed:
            return dict(self._states)

    def begin(self) -> None:
        """The training begins: keepers that are started from now on bring nothing back."""
        with self._changed:
            self._has_begun, self._next_at = True, time.monotonic() + self._every

    def finish(self, seconds: float, absent_seconds: float, lost: Collection[str] = ()) -> list[str]:
        """Begin a last round, and wait until it has ended on all workers that are not lost.

        Nothing bounds the keepers from now on: not in the round that has begun before, either.

        Returns:
            The pods, of those that are not lost, that have not ended it in this time.

        Args:
            seconds: How long at most.
            absent_seconds: How long a keeper is waited for that is not connected.
            lost: Pods of which nothing is to be expected.
        """
        deadline = time.monotonic() + seconds
        with self._changed:
            if not self._has_begun:
                return []
            self._is_finishing = True
            for pod in lost:
                self._states[pod].has_left = True
            self._wait(lambda: self._is_idle(absent_seconds), deadline)
            self._advance()
            self._last = self._round
            self._wait(lambda: self._is_idle(absent_seconds), deadline)
            late = [pod for pod, each in self._states.items() if each.done != self._round and pod not in lost]
            self._may_prune = self._is_complete()
            self._is_leaving = True
            self._changed.notify_all()
            self._wait(lambda: all(each.is_absent(0) for each in self._states.values()), deadline)
            return late

    def close(self) -> None:
        """Break all connections and serve no more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._listener.close()
        self._beginner.join()

    # --- rounds

    def _begin_rounds(self) -> None:
        with self._changed:
            while not self._is_closed:
                if not self._last and time.monotonic() >= self._next_at and self._is_idle(ABSENT_SECONDS):
                    self._advance()
                self._changed.wait(_TICK)

    def _advance(self) -> None:
        self._may_prune = self._is_complete()
        self._round += 1
        self._next_at = time.monotonic() + self._every
        self._changed.notify_all()

    def _is_idle(self, absent_seconds: float) -> bool:
        """Whether all keepers have ended the round that has begun."""
        return all(
            each.done == self._round or each.is_absent(absent_seconds) for each in self._states.values()
        )

    def _is_complete(self) -> bool:
        """Whether the files of all ranks of one round are kept, so that older ones may go."""
        return self._round > 0 and all(
            each.is_complete and each.done == self._round for each in self._states.values()
        )

    def _wait(self, until: Callable[[], bool], deadline: float) -> None:
        while not self._is_closed and not until() and time.monotonic() < deadline:
            self._changed.wait(_TICK)

    # --- connections

    def _serve(self, connection: ssl.SSLSocket, pod: str) -> None:
        wire.keep_alive(connection)  # silent while it brings files elsewhere
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(ABSENT_SECONDS * 1000))
        with contextlib.suppress(KeyError), self._connected(pod):
            while True:
                self._obey(connection, pod, messages.receive(connection))

    @contextlib.contextmanager
    def _connected(self, pod: str) -> Iterator[None]:
        with self._changed:
            if self._is_closed:
                raise wire.BrokenError("closed")
            self._states[pod].connections += 1
        try:
            yield
        finally:
            with self._changed:
                self._states[pod].connections -= 1
                self._states[pod].heard = time.monotonic()
                self._changed.notify_all()

    def _obey(self, connection: ssl.SSLSocket, pod: str, told: Message) -> None:
        match told["do"]:
            case "hello":
                hello: Message = {"restore": not self._has_begun, "marker": self._marker}
                messages.send(connection, hello)
            case "ready" | "sent":
                self._note_round(pod, told)
                self._answer_when_due(connection, int(told["round"]))
            case "put":
                self._put(connection, pod, told)
            case "get":
                self._get(connection, pod, told)
            case _:
                messages.send(connection, self._answer(pod, told))

    def _answer(self, pod: str, told: Message) -> Message:
        try:
            match told["do"]:
                case "failed":
                    self._note(pod, failure=(str(told["what"]), int(told["code"])))
                case "bye":
                    self._note(pod, has_left=True)
                case "hurry":
                    return {"hurry": self._is_finishing}
                case "ranks":
                    return {"ranks": self._recorded_ranks(int(told["ranks"]))}
                case "list":
                    return {"names": self._list(pod)}
                case "remove":
                    self._remove(self._path(pod, told["name"]))
        except OSError as error:
            return _error(error)
        return {}

    def _note(self, pod: str, **values: Any) -> None:
        with self._changed:
            for name, value in values.items():
                setattr(self._states[pod], name, value)
            self._changed.notify_all()

    def _note_round(self, pod: str, told: Message) -> None:
        with self._changed:
            state = self._states[pod]
            if told["do"] == "ready":
                # One that was started again has ended no round, and is not waited for in this one.
                state.is_ready, state.restored = True, (int(told["files"]), int(told["size"]))
                state.done, state.is_complete = self._round, False
            elif state.done != told["round"]:  # else it asks again over a new connection
                state.done, state.is_complete = int(told["round"]), bool(told["is_complete"])
                state.files, state.size = state.files + int(told["files"]), state.size + int(told["size"])
                state.trouble = str(told["trouble"])
            self._changed.notify_all()

    def _answer_when_due(self, connection: ssl.SSLSocket, done: int) -> None:
        """Answer when the next round begins, or when all is over; say meanwhile that this is alive."""
        with self._changed:
            first = self._round if done == 0 else done
        answer: Message
        while True:
            with self._changed:
                if not (self._is_closed or self._is_leaving or self._round > first):
                    self._changed.wait(WAIT_SECONDS)
                if self._is_closed:
                    raise wire.BrokenError("closed")
                if self._is_leaving:
                    answer = {"leave": True, "prune": self._may_prune}
                elif self._round > first:
                    answer = {
                        "round": self._round,
                        "prune": self._may_prune,
                        "last": self._last == self._round,
                    }
                else:
                    answer = {"wait": True}
            messages.send(connection, answer)
            if "wait" not in answer:
                return

    # --- files

    def _path(self, pod: str, name: str) -> Path:
        parts = PurePosixPath(name).parts
        if not (len(parts) > 1 and parts[0] in self._ranks[pod]) or ".." in parts:
            raise wire.BrokenError("expected a file of this keeper's ranks")
        return self._folder.joinpath(*parts)

    def _list(self, pod: str) -> list[str]:
        ranks = self._ranks[pod]
        return [f"{rank}/{name}" for rank in ranks for name in whole_files(self._folder / rank)]

    def _recorded_ranks(self, ranks: int) -> int:
        path = self._folder / RANKS_FILE
        with self._changed:  # several keepers ask at once
            found = _number(path) if path.exists() else None
            if found is not None and found != ranks and has_kept(whole_files(self._folder)):
                return found
            if found != ranks:
                self._folder.mkdir(parents=True, exist_ok=True)
                part = path.with_suffix(".part")
                part.write_text(json.dumps({"ranks": ranks}))
                part.replace(path)
            return ranks

    def _put(self, connection: ssl.SSLSocket, pod: str, told: Message) -> None:
        path, size = self._path(pod, told["name"]), int(told["size"])
        # Of this connection alone: a broken one may still write while its keeper comes over another.
        staging = self._folder / f"{INCOMING}{pod}-{uuid.uuid4().hex}"
        out, trouble = _created(staging)
        try:
            trouble = messages.take(connection, size, out, trouble)
            if messages.receive(connection)["do"] == "commit":
                trouble = trouble or _placed(out, staging, path)
        finally:
            if out >= 0:
                os.close(out)
            with contextlib.suppress(OSError):
                staging.unlink()
        messages.send(connection, _error(trouble) if trouble else {})

    def _get(self, connection: ssl.SSLSocket, pod: str, told: Message) -> None:
        path = self._path(pod, told["name"])
        try:
            file = path.open("rb")
        except OSError as error:
            messages.send(connection, _error(error))
            return
        with file:
            size = os.fstat(file.fileno()).st_size
            messages.send(connection, {"size": size})
            while size:
                block = file.read(min(size, BLOCK))
                if not block:
                    raise wire.BrokenError("the file has become shorter")
                connection.sendall(block)
                size -= len(block)

    def _remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        for parent in path.relative_to(self._folder).parents[:-2]:
            try:
                (self._folder / parent).rmdir()
            except OSError:  # it has other files
                return


def _remove_incoming(folder: Path) -> None:
    """Remove what a launcher that was killed has left."""
    for path in folder.glob(f"{INCOMING}*"):
        with contextlib.suppress(OSError):
            path.unlink()


def _number(path: Path) -> int:
    try:
        return int(json.loads(path.read_text())["ranks"])
    except (ValueError, KeyError, TypeError):
        raise OSError(0, "expected a number of ranks", str(path)) from None


def _created(staging: Path) -> tuple[int, OSError | None]:
    """A file to write into, or -1 and why there is none."""
    try:
        staging.parent.mkdir(parents=True, exist_ok=True)
        return os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644), None
    except OSError as error:
        return -1, error


def _placed(file: int, staging: Path, path: Path) -> OSError | None:
    """Let a whole file appear under its name, and stay there after a crash of the machine."""
    try:
        os.fsync(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        staging.replace(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        return error
    return None


def _error(error: OSError) -> Message:
    where = f"{error.filename}: " if error.filename else ""
    return {"error": f"the launcher: {where}{error.strerror or error}", "code": exitcodes.IO}
