"""The end of an output stream: what is no such end breaks the connection, and no more."""

import socket
import struct
from typing import Any

import pytest

from dglrun.transfer.output_stream import OutputStream
from dglrun.transfer.pull import wire


@pytest.mark.parametrize(
    "end", [b"not json", b"[]", b"{}", b'{"notes": null, "failed": ""}', b'{"notes": []}']
)
def test_a_malformed_end_breaks_the_connection(end: bytes) -> None:
    """It is tried again, as after any other break; it is no bug of the launcher's."""
    worker, launcher = socket.socketpair()
    with worker, launcher:
        worker.sendall(struct.pack("!I", 0) + struct.pack("!I", len(end)) + end)
        connection: Any = launcher

        with pytest.raises(wire.BrokenError, match="expected notes"):
            OutputStream(connection).ending()
