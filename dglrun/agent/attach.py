"""A view of a running supervisor: bytes from stdin to its socket and back, nothing else.

It is the process that `kubectl exec` holds on to. It may vanish at any time; the supervisor goes on.
"""

import os
import selectors
import socket
from pathlib import Path

SOCKET = "socket"
_BLOCK = 1 << 16


def listen(folder: Path) -> socket.socket:
    """The socket on which a supervisor of this folder is reached."""
    path = folder / SOCKET
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    with _short(folder) as name:
        listener.bind(name)
    path.chmod(0o600)
    listener.listen(8)
    return listener


def connect(folder: Path) -> socket.socket:
    """A connection to the supervisor of this folder.

    Raises:
        OSError: there is none.
    """
    connection = socket.socket(socket.AF_UNIX)
    try:
        with _short(folder) as name:
            connection.connect(name)
    except OSError:
        connection.close()
        raise
    return connection


def relay(connection: socket.socket, stdin: int = 0, stdout: int = 1) -> None:
    """Copy both ways until one side ends."""
    with selectors.DefaultSelector() as selector:
        selector.register(stdin, selectors.EVENT_READ)
        selector.register(connection, selectors.EVENT_READ)
        while True:
            for key, _mask in selector.select():
                if key.fd == stdin:
                    block = os.read(stdin, _BLOCK)
                    connection.sendall(block)
                else:
                    block = connection.recv(_BLOCK)
                    _write(stdout, block)
                if not block:
                    return


def _write(fileno: int, block: bytes) -> None:
    while block:
        block = block[os.write(fileno, block) :]


class _short:  # noqa: N801 - used like a function
    """A path of a socket that is short enough for the kernel (108 bytes), however deep its folder is."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.open(folder, os.O_PATH | os.O_DIRECTORY)

    def __enter__(self) -> str:
        return f"/proc/self/fd/{self._folder}/{SOCKET}"

    def __exit__(self, *_: object) -> None:
        os.close(self._folder)
