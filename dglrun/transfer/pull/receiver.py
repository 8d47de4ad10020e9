"""The receiver's side: asks for the blocks that it lacks, compares and writes them, shows files when whole.

Each connection has a thread, which has some requests on their way. A connection that breaks is made anew; a
block that came wrong is asked for again. What has come stays noted in the journal (`sums`): a receiver that
is started anew goes on where another one was killed.
"""

import contextlib
import json
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from dglrun.agent import folder_mark, tls
from dglrun.contract import exitcodes
from dglrun.errors import RunError
from dglrun.transfer.pull import links, wire
from dglrun.transfer.pull import manifest as manifests
from dglrun.transfer.pull.manifest import Block, Manifest
from dglrun.transfer.pull.order import Order
from dglrun.transfer.pull.staging import OpenFile, Staging, set_times, write_error
from dglrun.transfer.pull.sums import Journal, sum_of
from dglrun.transfer.pull.wire import REPLY, AnswerKind

DEPTH = 2
"""Requests on their way on each connection."""
CONNECT_SECONDS = 10.0
PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds before each new attempt to connect, the last one again and again."""
REFUSED_SECONDS = 10.0
"""A port that refuses connections for so long belongs to no owner any more.

A firewall that is loaded anew may refuse for some seconds.
"""
WRONG = 5
"""How often a block may arrive with a wrong sum."""

T = TypeVar("T")

Complete = Callable[[Path, Manifest, Callable[[int, int], None]], None]
"""Puts more files beside those that have come, before they appear.

It gets their folder, the manifest, and what takes how many bytes of how many are here.
"""


class Receiver:
    """One transfer.

    Args:
        order: From whom, and where to.
        complete: Fetches from elsewhere what the owner's files tell of.
    """

    def __init__(self, order: Order, complete: Complete | None = None) -> None:
        self._order, self._context = order, tls.client_context(order.keys)
        self._complete = complete

    def run(self) -> None:
        """Receive all files; returns when they are in their place and the owner knows it.

        Does nothing if the owner knows it already.

        Raises:
            RunError: the owner cannot be reached, refuses, or the files cannot be written. The owner has been
                told, if it could be.
        """
        try:
            self._run()
        except _NotNeededError:
            pass
        except RunError as error:
            self._tell_failure(str(error), error.code)
            raise
        except Exception as error:  # also a bug: a detached receiver can say it to nobody but the owner
            code = exitcodes.IO if isinstance(error, OSError) else exitcodes.SOFTWARE
            self._tell_failure(f"{type(error).__name__}: {error}", code)
            raise

    def _tell_failure(self, what: str, code: int) -> None:
        with contextlib.suppress(OSError):  # the exit code tells it, too
            self._talk({"tell": "failed", "what": what, "code": code})

    def _run(self) -> None:
        if self._sees_files() and self._has_linked():
            self._tell({"tell": "whole", "is_shared": True})
            return
        with contextlib.closing(Staging(Path(self._order.target), self._order.receiver)) as staging:
            self._receive(staging)

    def _sees_files(self) -> bool:
        """Whether the owner's folder is there, too: at the owner's path, or as the target."""
        order = self._order
        folders = (Path(order.folder), Path(order.target))
        return bool(order.marker) and any(folder_mark.is_seen(each, order.marker) for each in folders)

    def _has_linked(self) -> bool:
        """Link to the files where they are; False where that cannot be."""
        order = self._order
        target, manifest = Path(order.target), self._manifest()
        is_target = folder_mark.is_seen(target, order.marker)
        with until_reached(self._say_placing, order):
            return links.place(manifest, target if is_target else Path(order.folder), target, order.receiver)

    def _receive(self, staging: Staging) -> None:
        try:
            manifest = self._manifest()
            journal = staging.begin(manifest)
            with _reading_journal(staging):
                lacks = journal.lacking_bytes()
            self._tell({"tell": "begin", "lacks": lacks})
            _Blocks(self._order, self._connect, manifest, staging, journal).receive()
            with until_reached(self._say_placing, self._order):
                if self._complete:
                    self._complete(staging.path(""), manifest, self._say_fetched)
                set_times(staging, manifest)
                staging.place(manifest)
                staging.end(self._order.keeps_sums)
        except Exception as error:
            if not _is_unavailable(error):  # else another start goes on with what has come
                staging.clear()
            raise
        self._tell({"tell": "whole"})  # the container may end as soon as the owner knows

    def _manifest(self) -> Manifest:
        text = self._tell({"tell": "manifest"})
        try:
            return manifests.decode(text)
        except manifests.ManifestError as error:
            raise RunError(f"{self._order.owner}: {error}", exitcodes.IO) from error

    def _tell(self, what: dict[str, Any]) -> bytes:
        return until_reached(lambda: self._talk(what), self._order)

    def _talk(self, what: dict[str, Any]) -> bytes:
        with self._connect() as connection:
            return self._say(connection, what)

    def _say_placing(self) -> ssl.SSLSocket:
        """A connection that stays open: who places many files has nothing to ask for, and lives."""
        connection = self._connect()
        try:
            self._say(connection, {"tell": "placing"})
        except BaseException:
            connection.close()
            raise
        return connection

    def _say_fetched(self, size: int, of: int) -> None:
        self._tell({"tell": "fetched", "bytes": size, "of": of})

    def _say(self, connection: ssl.SSLSocket, what: dict[str, Any]) -> bytes:
        connection.sendall(wire.tell(what))
        state, length, _ = REPLY.unpack(wire.receive(connection, REPLY.size))
        if state == AnswerKind.REFUSED:
            raise _refusal(connection, length, self._order)
        if state != AnswerKind.TOLD or length > wire.MOST_TOLD:
            raise wire.BrokenError("expected an answer")
        return wire.receive(connection, length)

    def _connect(self) -> ssl.SSLSocket:
        order = self._order
        raw = socket.create_connection((order.host, order.port), CONNECT_SECONDS)
        try:
            secure = self._context.wrap_socket(raw, server_hostname=order.owner)
        except BaseException:
            raw.close()
            raise
        wire.configure(secure)
        return secure


class _Blocks:
    """The blocks that are lacking, received by several threads."""

    def __init__(
        self,
        order: Order,
        connect: Callable[[], ssl.SSLSocket],
        manifest: Manifest,
        staging: Staging,
        journal: Journal,
    ) -> None:
        self._order, self._connect = order, connect
        self._manifest, self._staging, self._journal = manifest, staging, journal
        self._lacking = journal.lacking()
        self._again: deque[Block] = deque()
        self._wrong: dict[Block, int] = {}
        self._lock = threading.Lock()
        self._moved = time.monotonic()
        self._failure: Exception | None = None

    def receive(self) -> None:
        """Receive all that is lacking.

        Raises:
            RunError: as `Receiver.run`.
        """
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self._order.connections)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failure:
            raise self._failure
        with _reading_journal(self._staging):
            block = next(self._journal.lacking(), None)
        if block:  # whatever the reason is: a file with holes must not appear
            name = self._manifest.files[block.file].name
            raise RunError(f"{name}: block {block.at} has not come", exitcodes.SOFTWARE)

    def _work(self) -> None:
        try:
            file = OpenFile(self._staging, self._manifest)
            with contextlib.closing(file):
                until_reached(lambda: self._converse(file), self._order, lambda: self._moved)
        except Exception as error:  # also a bug: the main thread raises it
            self._failure = self._failure or error

    def _converse(self, file: OpenFile) -> None:
        """Ask for blocks on one connection until none is lacking.

        Raises:
            OSError: the connection broke; what was on its way will be asked for again.
        """
        asked: deque[Block] = deque()
        buffer = memoryview(bytearray(REPLY.size + self._manifest.block))
        try:
            self._ask(asked, None)
            if not asked:
                return
            with self._connect() as connection:
                connection.sendall(wire.ask(*asked))
                while asked:
                    self._receive_one(connection, asked, buffer, file)
                    self._ask(asked, connection)
        finally:
            with self._lock:
                self._again.extend(asked)

    def _ask(self, asked: deque[Block], connection: ssl.SSLSocket | None) -> None:
        while len(asked) < DEPTH and (block := self._next()):
            asked.append(block)
            if connection:
                connection.sendall(wire.ask(block))

    def _next(self) -> Block | None:
        with self._lock:
            if self._failure:
                return None
            if self._again:
                return self._again.popleft()
            with _reading_journal(self._staging):
                return next(self._lacking, None)

    def _receive_one(
        self, connection: ssl.SSLSocket, asked: deque[Block], buffer: memoryview, file: OpenFile
    ) -> None:
        head = buffer[: REPLY.size]
        wire.receive_into(connection, head)
        state, length, digest = REPLY.unpack(head)
        if state == AnswerKind.REFUSED:
            raise _refusal(connection, length, self._order)
        block = asked[0]
        if state != AnswerKind.BLOCK or length != self._manifest.length(block):
            raise wire.BrokenError("expected a block")
        content = buffer[REPLY.size : REPLY.size + length]
        wire.receive_into(connection, content)
        asked.popleft()
        if sum_of(content) != digest:
            self._note_wrong(block)
            return
        if not self._is_hole(content, digest):
            file.write(block, content)
        try:
            self._journal.note(block, digest)
        except OSError as error:
            raise write_error(self._staging.folder, error) from error
        self._moved = time.monotonic()

    def _is_hole(self, content: memoryview, digest: bytes) -> bool:
        """Whether a block is all zeros, as its file was when it was made."""
        return len(content) == self._manifest.block and digest == _sum_of_zeros(len(content))

    def _note_wrong(self, block: Block) -> None:
        with self._lock:
            times = self._wrong[block] = self._wrong.get(block, 0) + 1
            if times < WRONG:  # else another connection would ask for it before it hears of the failure
                self._again.append(block)
                return
        name = self._manifest.files[block.file].name
        raise RunError(
            f"{name}: block {block.at} of {self._manifest.block} bytes arrived {times} times with a "
            f"checksum that differs from {self._order.owner}'s",
            exitcodes.IO,
        )


def until_reached(once: Callable[[], T], order: Order, moved: Callable[[], float] = lambda: 0.0) -> T:
    """Do something over a connection, again and again while that breaks.

    Args:
        once: Raises OSError if the connection breaks.
        order: Has the patience.
        moved: When (monotonic) something has come at last.

    Raises:
        RunError: nothing has come for longer than the patience, or the owner is gone.
    """
    last, failures, accepted = time.monotonic(), 0, time.monotonic()
    while True:
        try:
            return once()
        except OSError as error:
            now = time.monotonic()
            if moved() > last:
                last, failures = moved(), 0
            if not isinstance(error, ConnectionRefusedError):
                accepted = now
            if now - last > order.patience or now - accepted > REFUSED_SECONDS:
                raise RunError(
                    f"nothing came from {order.owner} for {now - last:.1f} s: {error.strerror or error}",
                    exitcodes.UNAVAILABLE,
                ) from error
            time.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
            failures += 1


@contextlib.contextmanager
def _reading_journal(staging: Staging) -> Iterator[None]:
    """A journal that cannot be read is no connection that broke, after which one tries again."""
    try:
        yield
    except OSError as error:
        what = f"the journal cannot be read: {error.strerror or error}"
        raise RunError(f"{staging.folder}: {what}", exitcodes.IO) from error


class _NotNeededError(Exception):
    """The owner knows already that all files are in their place: another start was earlier."""


def _refusal(connection: ssl.SSLSocket, length: int, order: Order) -> Exception:
    """What a refusal of the owner means."""
    if length > wire.MOST_TOLD:
        return wire.BrokenError("expected a short refusal")
    why = json.loads(wire.receive(connection, length))
    if why["code"] == exitcodes.OK:
        return _NotNeededError(why["what"])
    return RunError(f"{order.owner}: {why['what']}", int(why["code"]))


def _is_unavailable(error: Exception) -> bool:
    return isinstance(error, RunError) and error.code == exitcodes.UNAVAILABLE


_ZEROS: dict[int, bytes] = {}


def _sum_of_zeros(size: int) -> bytes:
    if size not in _ZEROS:
        _ZEROS[size] = sum_of(bytes(size))
    return _ZEROS[size]
