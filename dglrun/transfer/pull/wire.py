"""What goes over a connection between receiver and owner, on both ends.

The receiver asks: two numbers, file and block, or TELL and the length of a JSON object that follows. The
owner answers each in the order in which they came: a state, a length and a block's SHA-256, then so many
bytes. Several requests are on their way at a time, so that neither end waits for the other.
"""

import json
import socket
import ssl
import struct
from enum import IntEnum
from typing import Any

from dglrun.transfer.pull.manifest import Block

TELL = 0xFFFFFFFF
"""In the place of a file's number: a JSON object follows."""
REQUEST = struct.Struct("!II")
REPLY = struct.Struct("!BI32s")
NO_SUM = bytes(32)
SILENCE_SECONDS = 60.0
"""A connection on which nothing moves for so long counts as broken."""
MOST_TOLD = 1 << 26
"""Bytes of a JSON object at most: a manifest of some 500,000 files."""


class AnswerKind(IntEnum):
    """What an answer is."""

    BLOCK = 0
    """A block, as asked for."""
    TOLD = 1
    """A JSON object."""
    REFUSED = 2
    """Text: why there will be no answer, now or later."""


class BrokenError(ConnectionError):
    """The other end has closed the connection, or sends what it never would."""


def receive_into(connection: ssl.SSLSocket, view: memoryview) -> None:
    """Fill a buffer.

    Raises:
        OSError: the connection broke, or was silent for too long.
    """
    got, wanted = 0, len(view)
    while got < wanted:
        count = connection.recv_into(view[got:])
        if count == 0:
            raise BrokenError("the other end has closed the connection")
        got += count


def receive(connection: ssl.SSLSocket, size: int) -> bytes:
    """So many bytes, or OSError as above."""
    found = bytearray(size)
    receive_into(connection, memoryview(found))
    return bytes(found)


def ask(*blocks: Block) -> bytes:
    """Requests for blocks."""
    return b"".join(REQUEST.pack(*block) for block in blocks)


def tell(what: dict[str, Any]) -> bytes:
    """A request that is a JSON object."""
    text = json.dumps(what).encode()
    return REQUEST.pack(TELL, len(text)) + text


def reply(state: AnswerKind, payload: bytes) -> bytes:
    """An answer that is no block."""
    return REPLY.pack(state, len(payload), NO_SUM) + payload


def configure(connection: socket.socket) -> None:
    """Small requests go out at once; neither end waits for ever."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.settimeout(SILENCE_SECONDS)


def keep_alive(connection: socket.socket) -> None:
    """A connection may be silent for as long as it wants; one whose other end is gone breaks all the same."""
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
