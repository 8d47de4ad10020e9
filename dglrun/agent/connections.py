"""The launcher's connection to an agent: TLS on TCP, JSON lines, one at a time.

Whoever reaches the port can begin a handshake and gets no further without the run's keys. The connection on
which the launcher attaches last is the one that is served: an earlier one is broken, whether the kernel has
noticed or not.
"""

import json
import selectors
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any

from dglrun.agent.outbox import Outbox

Record = Mapping[str, Any]

HANDSHAKE_SECONDS = 10.0
STRANGERS = 16
"""Connections without a handshake at a time; the launcher is one of them for a moment."""
_BLOCK = 1 << 16


class Connection:
    """One connection; never blocks.

    Args:
        connection: Accepted socket.
        context: Proves this agent, and demands the launcher's certificate.
        outbox: What it sends, once the launcher has attached.
        selector: Where it waits.
        obey: Called with each command that comes from it.
    """

    def __init__(
        self,
        connection: socket.socket,
        context: ssl.SSLContext,
        outbox: Outbox,
        selector: selectors.BaseSelector,
        obey: Callable[["Connection", dict[str, Any]], None],
    ) -> None:
        self._outbox, self._selector, self._obey = outbox, selector, obey
        self._incoming = b""
        self._outgoing = b""
        self._began = time.monotonic()
        self._is_known = False
        self.is_attached = False
        self.is_open = True
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        selector.register(self._socket, selectors.EVENT_READ, self._on_event)

    @property
    def is_stranger(self) -> bool:
        """Whether it has not proved to be the launcher yet."""
        return self.is_open and not self._is_known

    def attach(self, command: Mapping[str, Any], hello: Record) -> None:
        """Begin to send what the launcher has not, after a greeting."""
        self._outbox.resume(command["control"], command["received"], command["printed"])
        self.is_attached = True
        self.tell(hello)

    def tell(self, record: Record) -> None:
        """Send a record that a broken connection may lose."""
        self._outgoing += json.dumps(record).encode() + b"\n"

    def pump(self) -> None:
        """Send as much as the socket takes."""
        if self._is_known:
            self._guarded(self._send)

    def close_if_late(self) -> None:
        """Close a connection whose handshake does not come to an end."""
        if self.is_stranger and time.monotonic() - self._began > HANDSHAKE_SECONDS:
            self.close()

    def close(self) -> None:
        """Close it; the launcher may come again."""
        if self.is_open:
            self.is_open = self.is_attached = False
            self._selector.unregister(self._socket)
            self._socket.close()

    def _on_event(self, _mask: int) -> None:
        if not self._is_known:
            self._guarded(self._shake_hands)
        if self._is_known:
            self._guarded(self._receive)
            self._guarded(self._send)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do what TLS may have to read or write for; wait for that."""
        if not self.is_open:
            return
        try:
            work()
        except ssl.SSLWantReadError:
            self._wait_for(selectors.EVENT_READ)
        except ssl.SSLWantWriteError:
            self._wait_for(selectors.EVENT_READ | selectors.EVENT_WRITE)
        except OSError:  # broken, or no launcher of this run
            self.close()

    def _shake_hands(self) -> None:
        self._socket.do_handshake()
        self._is_known = True

    def _receive(self) -> None:
        while block := self._socket.recv(_BLOCK):  # ends by SSLWantReadError
            *lines, self._incoming = (self._incoming + block).split(b"\n")
            for line in lines:
                self._obey(self, json.loads(line))
        self.close()

    def _send(self) -> None:
        while self.is_open and self._fill():
            self._outgoing = self._outgoing[self._socket.send(self._outgoing) :]
        self._wait_for(selectors.EVENT_READ)

    def _fill(self) -> bool:
        while self.is_attached and len(self._outgoing) < _BLOCK:
            block = self._outbox.take()
            if not block:
                break
            self._outgoing += block
        return bool(self._outgoing)

    def _wait_for(self, events: int) -> None:
        if self.is_open:
            self._selector.modify(self._socket, events, self._on_event)
