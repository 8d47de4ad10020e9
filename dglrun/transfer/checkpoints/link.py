"""A keeper's connection to its launcher, made anew when it breaks, for as long as the keeper lives."""

import contextlib
import os
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from dglrun.agent import tls
from dglrun.contract import exitcodes
from dglrun.transfer.checkpoints import messages
from dglrun.transfer.checkpoints.folder import Version
from dglrun.transfer.checkpoints.limit import Limit
from dglrun.transfer.checkpoints.messages import BLOCK, Message
from dglrun.transfer.checkpoints.order import KeeperOrder
from dglrun.transfer.checkpoints.target import ChangedError, KeepError, require_unchanged
from dglrun.transfer.pull import wire

PAUSES = (0.1, 0.5, 1.0, 2.0)
"""Seconds before each new attempt, the last one again and again; the agent ends a keeper without launcher."""
CONNECT_SECONDS = 10.0

T = TypeVar("T")


class Link:
    """Asks the launcher; each question is repeated until it is answered.

    Args:
        order: Where the launcher is, and how this keeper proves itself.
    """

    def __init__(self, order: KeeperOrder) -> None:
        self._order, self._context = order, tls.client_context(order.keys)
        self._connection: ssl.SSLSocket | None = None
        self._is_closed = False

    def ask(self, message: Mapping[str, object]) -> Message:
        """Send a message and return the answer, however long it takes.

        Raises:
            KeepError: the launcher says why it cannot.
        """
        return self.repeat(lambda connection: _answer(connection, message))

    def repeat(self, once: Callable[[ssl.SSLSocket], T]) -> T:
        """Do something over the connection; again, over a new one, when it breaks.

        Raises:
            KeepError: the launcher cannot be reached any more, or this is closed.
        """
        failures, deadline = 0, float("inf")
        while True:
            try:
                return once(self._open())
            except OSError as error:
                self._drop()
                if self._is_closed:
                    raise KeepError("the connection is closed", exitcodes.UNAVAILABLE) from error
                deadline = min(deadline, time.monotonic() + self._order.patience)
                if time.monotonic() > deadline:
                    what = f"the launcher cannot be reached: {error}"
                    raise KeepError(what, exitcodes.UNAVAILABLE) from error
                time.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
                failures += 1

    def close(self) -> None:
        """Close the connection for good; wakes a thread that waits for an answer, which then gets none."""
        self._is_closed = True
        if connection := self._connection:
            with contextlib.suppress(OSError):  # a close alone does not wake who reads
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
        self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection:
            with contextlib.suppress(OSError):
                connection.close()

    def _open(self) -> ssl.SSLSocket:
        if self._is_closed:
            raise wire.BrokenError("closed")
        if self._connection is None:
            order = self._order
            raw = socket.create_connection((order.host, order.port), CONNECT_SECONDS)
            try:
                self._connection = self._context.wrap_socket(raw, server_hostname=order.owner)
            except BaseException:
                raw.close()
                raise
            wire.configure(self._connection)
        return self._connection


class LauncherTarget:
    """Keeps files on the launcher.

    Args:
        link: The connection.
        limit: Bounds what is sent.
    """

    def __init__(self, link: Link, limit: Limit) -> None:
        self._link, self._limit = link, limit

    def ranks(self, ranks: int) -> int:
        """As `Target` says."""
        return int(self._link.ask({"do": "ranks", "ranks": ranks})["ranks"])

    def kept(self) -> set[str]:
        """As `Target` says."""
        return set(self._link.ask({"do": "list"})["names"])

    def fetch(self, name: str, path: Path) -> None:
        """As `Target` says."""
        self._link.repeat(lambda connection: _fetch(connection, name, path))

    def put(self, name: str, file: int, version: Version, is_limited: bool) -> None:
        """As `Target` says."""
        limit = self._limit if is_limited else None
        self._link.repeat(lambda connection: _put(connection, name, file, version, limit))

    def remove(self, name: str) -> None:
        """As `Target` says."""
        self._link.ask({"do": "remove", "name": name})


def _answer(connection: ssl.SSLSocket, message: Mapping[str, object]) -> Message:
    messages.send(connection, message)
    while (answer := messages.receive(connection)).get("wait"):
        pass
    if "error" in answer:
        raise KeepError(str(answer["error"]), int(answer["code"]))
    return answer


def _fetch(connection: ssl.SSLSocket, name: str, path: Path) -> None:
    try:
        out = path.open("wb", buffering=0)
    except OSError as error:
        raise _unwritable(path, error) from error
    with out:
        size = int(_answer(connection, {"do": "get", "name": name})["size"])
        trouble = messages.take(connection, size, out.fileno())
    if trouble:
        raise _unwritable(path, trouble)


def _unwritable(path: Path, error: OSError) -> KeepError:
    return KeepError(f"{path}: cannot be written: {error.strerror}", exitcodes.IO)


def _put(connection: ssl.SSLSocket, name: str, file: int, version: Version, limit: Limit | None) -> None:
    messages.send(connection, {"do": "put", "name": name, "size": version.size})
    is_same, at = True, 0
    while at < version.size:
        block, is_same = _read(file, at, min(BLOCK, version.size - at), is_same)
        if limit:
            limit.take(len(block))
        connection.sendall(block)
        at += len(block)
    try:
        require_unchanged(file, version)
    except ChangedError:
        is_same = False
    _answer(connection, {"do": "commit" if is_same else "drop"})
    if not is_same:
        raise ChangedError


def _read(file: int, at: int, size: int, is_same: bool) -> tuple[bytes, bool]:
    """A block of a file; zeros for what cannot be read, as the announced size has to be sent."""
    try:
        block = os.pread(file, size, at) if is_same else b""
    except OSError:
        block = b""
    return (block, is_same) if block else (bytes(size), False)
