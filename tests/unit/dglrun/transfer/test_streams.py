"""Streams to other pods, held by real processes."""

import sys
import threading
from pathlib import Path

import pytest

from dglrun.errors import Terminated
from dglrun.transfer.streams import Stream, Streams
from tests.cluster.daemons import running

SAYS = (sys.executable, "-c", "import sys; print('told', file=sys.stderr); print('done', flush=True)")


def test_what_a_stream_said_on_stderr_can_be_read_until_it_is_closed() -> None:
    """The last log lines of a stream are for the error message."""
    streams = Streams()
    stream = streams.start(SAYS)

    stdout, stderr = streams.finish(stream)

    assert (stdout, stderr) == (b"done\n", b"told\n")
    streams.end(stream)
    assert stream.stderr_text() == b""


def test_a_stream_is_closed_while_another_thread_asks_what_it_said() -> None:
    """A reader that came too late ended in a traceback after the job's own last log lines."""
    streams = Streams()
    errors: list[threading.ExceptHookArgs] = []
    before, threading.excepthook = threading.excepthook, errors.append
    try:
        for _ in range(20):
            stream = streams.start(("true",))
            readers = [threading.Thread(target=_read_until_closed, args=(stream,)) for _ in range(2)]
            for reader in readers:
                reader.start()
            streams.end(stream)
            for reader in readers:
                reader.join()
    finally:
        threading.excepthook = before

    assert errors == []


def _read_until_closed(stream: Stream) -> None:
    while not stream.stdout.closed:
        stream.stderr_text()
    stream.stderr_text()


def test_a_program_that_is_not_there_leaves_no_open_file() -> None:
    """Where kubectl is missing; Python warns of such files, whoever runs then."""
    with pytest.raises(FileNotFoundError):
        Streams().start(("/no/such/program",))


@pytest.mark.parametrize("_", range(20))
def test_a_stream_that_has_just_been_started_is_known(raising: None, tmp_path: Path, _: int) -> None:
    """A signal that comes as soon as there is a process does not hide it from those who end all."""
    pid, streams = tmp_path / "pid", Streams()

    try:
        with pytest.raises(Terminated):
            streams.finish(streams.start(("sh", "-c", f"echo $$ >{pid}; kill -TERM $PPID; exec sleep 600")))
    finally:
        for stream in list(streams._open):
            streams.end(stream)

    assert not running(int(pid.read_text()))
