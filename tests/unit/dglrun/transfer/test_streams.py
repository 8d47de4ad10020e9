"""Streams to other pods, held by real processes."""

import sys
import threading

from dglrun.transfer.streams import Stream, Streams

SAYS = (sys.executable, "-c", "import sys; print('told', file=sys.stderr); print('done', flush=True)")


def test_what_a_stream_said_on_stderr_can_be_read_until_it_is_closed() -> None:
    """The last words of a stream are for the error message."""
    streams = Streams()
    stream = streams.start(SAYS)

    stdout, stderr = streams.finish(stream)

    assert (stdout, stderr) == (b"done\n", b"told\n")
    streams.end(stream)
    assert stream.stderr_text() == b""


def test_a_stream_is_closed_while_another_thread_asks_what_it_said() -> None:
    """A reader that came too late ended in a traceback after the job's own last words."""
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
