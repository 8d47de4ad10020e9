"""The views that are attached to a supervisor: each reads the journal at its own speed."""

import json
import selectors
import socket
from collections.abc import Callable, Mapping
from typing import Any

from dglrun.agent.event_log import EventLog

Record = Mapping[str, Any]


class Connection:
    """One attached view.

    A slow or broken view holds nobody up: what it has not read yet stays in the journal.

    Args:
        connection: Its socket.
        journal: What it reads.
        selector: Where it waits.
        handle: Called with each command that comes from it.
    """

    def __init__(
        self,
        connection: socket.socket,
        journal: EventLog,
        selector: selectors.BaseSelector,
        handle: Callable[["Connection", dict[str, Any]], None],
    ) -> None:
        self._socket, self._journal, self._selector, self._handle = connection, journal, selector, handle
        self._incoming = b""
        self._outgoing = b""
        self._offset: int | None = None
        self.is_open = True
        connection.setblocking(False)
        selector.register(connection, selectors.EVENT_READ, self._on_event)

    @property
    def has_all(self) -> bool:
        """Whether nothing is left to send."""
        return not self._outgoing and self._offset == self._journal.end

    def attach(self, offset: int, hello: Record) -> None:
        """Begin to send the journal from `offset` on, after a greeting that tells the offset."""
        self._offset = max(min(offset, self._journal.end), self._journal.start)
        self.tell({**hello, "offset": self._offset, "lost": self._offset - offset})
        self.pump()

    def tell(self, record: Record) -> None:
        """Queue a record that is not of the journal."""
        self._outgoing += json.dumps(record).encode() + b"\n"

    def pump(self) -> None:
        """Send as much as the socket takes."""
        try:
            while self.is_open and self._fill():
                sent = self._socket.send(self._outgoing)
                self._outgoing = self._outgoing[sent:]
            self._wait_for(selectors.EVENT_READ)
        except BlockingIOError:
            self._wait_for(selectors.EVENT_READ | selectors.EVENT_WRITE)
        except OSError:
            self.close()

    def close(self) -> None:
        """Forget the view; it may come again."""
        if self.is_open:
            self.is_open = False
            self._selector.unregister(self._socket)
            self._socket.close()

    def _fill(self) -> bool:
        if not self._outgoing and self._offset is not None:
            at, block = self._journal.read(self._offset)
            if at > self._offset:
                self.tell({"kind": "gap", "offset": at, "lost": at - self._offset})
            self._outgoing += block
            self._offset = at + len(block)
        return bool(self._outgoing)

    def _on_event(self, mask: int) -> None:
        if mask & selectors.EVENT_READ:
            self._receive()
        if mask & selectors.EVENT_WRITE and self.is_open:
            self.pump()

    def _receive(self) -> None:
        try:
            block = self._socket.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            block = b""
        if not block:
            self.close()
            return
        *lines, self._incoming = (self._incoming + block).split(b"\n")
        for line in lines:
            self._handle(self, json.loads(line))

    def _wait_for(self, events: int) -> None:
        if self.is_open:
            self._selector.modify(self._socket, events, self._on_event)
