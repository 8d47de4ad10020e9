"""What goes over the connection between a keeper and its launcher, on both ends.

Each message is a length and a JSON object; the bytes of a file follow the message that announces them.
"""

import json
import os
import ssl
import struct
from collections.abc import Mapping
from typing import Any

from dglrun.transfer.pull import wire

Message = dict[str, Any]

BLOCK = 1 << 20
WAIT_SECONDS = 3.0
"""Between two messages that say `wait`: a keeper that hears nothing for long connects anew."""
_LENGTH = struct.Struct("!I")


def send(connection: ssl.SSLSocket, message: Mapping[str, object]) -> None:
    """Send one message.

    Raises:
        OSError: the connection broke.
    """
    text = json.dumps(message).encode()
    connection.sendall(_LENGTH.pack(len(text)) + text)


def receive(connection: ssl.SSLSocket) -> Message:
    """Receive one message.

    Raises:
        OSError: the connection broke, or the other end sends what it never would.
    """
    (length,) = _LENGTH.unpack(wire.receive(connection, _LENGTH.size))
    if length > wire.MOST_TOLD:
        raise wire.BrokenError("expected a short message")
    try:
        message = json.loads(wire.receive(connection, length))
    except ValueError:
        raise wire.BrokenError("expected a JSON object") from None
    if not isinstance(message, dict):
        raise wire.BrokenError("expected a JSON object")
    return message


def take(connection: ssl.SSLSocket, size: int, file: int, trouble: OSError | None = None) -> OSError | None:
    """Take a file's bytes, all of them, whatever keeps them from being written.

    Args:
        connection: Gives them.
        size: How many.
        file: Takes them.
        trouble: Why none can be written, if that is known already.

    Returns:
        Why they could not be written.
    """
    view = memoryview(bytearray(min(size, BLOCK)))
    while size:
        part = view[: min(size, BLOCK)]
        wire.receive_into(connection, part)
        size -= len(part)
        try:
            while part and trouble is None:
                part = part[os.write(file, part) :]
        except OSError as error:
            trouble = error
    return trouble
