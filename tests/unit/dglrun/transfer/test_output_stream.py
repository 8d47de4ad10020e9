"""The end of an output stream: what is no such end breaks the connection, and no more."""

import errno
import os
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from dglrun.transfer import output_stream
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


def test_a_folder_that_cannot_be_listed_ends_the_stream_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher is told, as of a file that cannot be read."""

    def failing(path: Path) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    monkeypatch.setattr(os, "scandir", failing)
    worker, launcher = socket.socketpair()
    with worker, launcher:
        launcher.shutdown(socket.SHUT_WR)  # it has taken everything
        output_stream.send(worker, tmp_path, "mark")
        connection: Any = launcher

        assert OutputStream(connection).ending() == ([], f"{tmp_path}: cannot be read: Input/output error")
