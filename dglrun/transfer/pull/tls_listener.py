"""A listening socket for pods that are known by their certificates: a thread for each connection.

Strangers, whose handshake is not done, are few at a time: silent ones must not keep the others out.
"""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Container

from dglrun.agent import tls
from dglrun.transfer.pull import wire

HANDSHAKE_SECONDS = 10.0
STRANGERS = 32
"""Connections without a handshake at a time; then the oldest one is closed."""

Serve = Callable[[ssl.SSLSocket, str], None]
"""Serves a connection of the pod of this name until it breaks: an OSError or ValueError."""


class TlsListener:
    """Accepts connections until it is closed.

    Args:
        keys: The owner's.
        names: The pods that may connect.
        serve: Called in a thread of its own for each connection.
        title: Name of the thread that accepts.
    """

    def __init__(self, keys: tls.Keys, names: Container[str], serve: Serve, title: str) -> None:
        self._context, self._names, self._serve_one = tls.server_context(keys), names, serve
        self._lock = threading.Lock()
        self._open: set[ssl.SSLSocket] = set()
        self._strangers: list[ssl.SSLSocket] = []
        self._threads: set[threading.Thread] = set()
        self._is_closed = False
        self._listener = socket.create_server(("", 0), backlog=128)
        self.port = int(self._listener.getsockname()[1])
        self._acceptor = threading.Thread(target=self._accept, name=title, daemon=True)

    def start(self) -> None:
        """Accept from now on."""
        self._acceptor.start()

    def close(self) -> None:
        """Break all connections and accept no more."""
        with self._lock:
            self._is_closed = True
            connections = [*self._open, *self._strangers]
        for connection in connections:
            _break(connection)
        _break(self._listener)  # wakes accept(), which a close alone does not
        self._acceptor.join()
        self._listener.close()

    def join(self) -> None:
        """Wait until no connection is served any more."""
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                raw, _address = self._listener.accept()
                connection = self._context.wrap_socket(raw, server_side=True, do_handshake_on_connect=False)
            except OSError:
                if self._is_closed:
                    return
                time.sleep(0.1)  # out of file descriptors, or the other end has gone again
                continue
            with self._lock:
                if self._is_closed:
                    connection.close()
                    return
                self._strangers.append(connection)
                if len(self._strangers) > STRANGERS:
                    _break(self._strangers[0])
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._threads.add(thread)
                try:
                    thread.start()
                except RuntimeError:  # the system has no thread left now; the other end comes again
                    self._threads.discard(thread)
                    self._strangers.remove(connection)
                    connection.close()

    def _serve(self, connection: ssl.SSLSocket) -> None:
        try:
            with connection:
                self._serve_known(connection, self._shake_hands(connection))
        except (OSError, ValueError):
            pass  # broken, or a stranger; who is known comes again
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())

    def _shake_hands(self, connection: ssl.SSLSocket) -> str:
        """Let a pod in by its certificate, whose name is returned."""
        try:
            wire.configure(connection)
            connection.settimeout(HANDSHAKE_SECONDS)
            connection.do_handshake()
        finally:
            with self._lock:
                self._strangers.remove(connection)
        name = tls.peer_name(connection)
        if name not in self._names:
            raise wire.BrokenError(f"{name} is not expected")
        wire.configure(connection)
        return name

    def _serve_known(self, connection: ssl.SSLSocket, name: str) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._open.add(connection)
        try:
            self._serve_one(connection, name)
        finally:
            with self._lock:
                self._open.discard(connection)


def _break(connection: socket.socket) -> None:
    """Wake the thread that waits on it."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
