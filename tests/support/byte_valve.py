"""A way to a server of this host that lets so many bytes through, and holds the rest until it is opened."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_BLOCK = 1 << 16


class ByteValve:
    """Forwards connections; a transfer larger than what may pass cannot end while it holds.

    Attributes:
        port: Where clients connect to.
        passed: Bytes that have passed so far, of all connections and both ways together.
    """

    def __init__(self, listener: socket.socket, target: int) -> None:
        self.port: int = listener.getsockname()[1]
        self.passed = 0
        self._listener = listener
        self._target = target
        self._left: int | None = None
        self._held = 0
        self._changed = threading.Condition()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []

    def hold_after(self, count: int) -> None:
        """Let so many more bytes through, of all connections and both ways together."""
        with self._changed:
            self._left = count

    def open(self) -> None:
        """Let everything through again."""
        with self._changed:
            self._left = None
            self._changed.notify_all()

    @property
    def is_holding(self) -> bool:
        """Whether bytes wait that may not pass."""
        with self._changed:
            return self._held > 0

    def forward(self) -> None:
        """Take connections until the listener is closed."""
        while True:
            try:
                outer, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._serve, args=(outer,), daemon=True))
            self._threads[-1].start()

    def end(self) -> None:
        """Break all connections; the listener is closed."""
        self.open()
        with self._changed:
            for each in self._sockets:
                _shut(each)
        for thread in self._threads:
            thread.join()

    def _serve(self, outer: socket.socket) -> None:
        """Forward one connection both ways; without a server the client sees its end."""
        with outer, contextlib.suppress(OSError):  # noqa: SIM117
            with socket.create_connection(("127.0.0.1", self._target), 10) as inner:
                inner.settimeout(None)
                with self._changed:
                    self._sockets |= {outer, inner}
                back = threading.Thread(target=self._copy, args=(inner, outer), daemon=True)
                back.start()
                self._copy(outer, inner)
                back.join()
                with self._changed:
                    self._sockets -= {outer, inner}

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while block := source.recv(_BLOCK):
                self._pass(len(block))
                target.sendall(block)
        for each in (source, target):
            _shut(each)

    def _pass(self, count: int) -> None:
        with self._changed:
            self._held += 1
            self._changed.wait_for(lambda: self._left is None or self._left >= count)
            self._held -= 1
            self.passed += count
            if self._left is not None:
                self._left -= count


def _shut(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)


@contextmanager
def byte_valve(target: int) -> Iterator[ByteValve]:
    """An open valve before a port; at its end it is open and takes no more connections."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        valve = ByteValve(listener, target)
        thread = threading.Thread(target=valve.forward, daemon=True)
        thread.start()
        try:
            yield valve
        finally:
            _shut(listener)  # a close alone does not end an accept
            thread.join()
            valve.end()
