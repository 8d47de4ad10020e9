"""Local processes that hold streams to other pods, all of them known so that none outlives the run."""

import contextlib
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import IO

from dglrun.agent import ending_signals


class Stream(subprocess.Popen[bytes]):
    """A process with both pipes; what it says on stderr goes into a file, so that it never blocks."""

    stdin: IO[bytes]
    stdout: IO[bytes]

    def __init__(self, argv: Sequence[str]) -> None:
        self._said = TemporaryFile()  # noqa: SIM115 - Streams.end closes it
        # One thread may ask what was said while another closes the stream.
        self._said_lock = threading.Lock()
        try:
            super().__init__(list(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said)
        except BaseException:
            self._said.close()
            raise

    def stderr_text(self) -> bytes:
        """What it has said on stderr; nothing once the stream is closed."""
        with self._said_lock:
            if self._said.closed:
                return b""
            self._said.seek(0)
            return self._said.read(1 << 16)

    @contextmanager
    def killed_after(self, seconds: float) -> Iterator[None]:
        """Bound reads in the block, which have no deadline of their own: a killed stream has an end."""
        timer = threading.Timer(seconds, self.kill)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def close(self) -> None:
        """Close the pipes and forget what was said."""
        for pipe in (self.stdin, self.stdout):
            with contextlib.suppress(OSError):
                pipe.close()
        with self._said_lock:
            self._said.close()


class Streams:
    """The open streams of this process; safe for many threads."""

    def __init__(self) -> None:
        self._open: set[Stream] = set()
        self._lock = threading.Lock()
        self._closed = False

    @contextmanager
    def open(self, argv: Sequence[str]) -> Iterator[Stream]:
        """A stream, killed at the end of the block if it still runs."""
        stream = self.start(argv)
        try:
            yield stream
        finally:
            self.end(stream)

    def start(self, argv: Sequence[str]) -> Stream:
        """Begin a stream; `end` has to be called."""
        stream = None
        try:
            with self._lock, ending_signals.put_off():  # until the process is known here: it would go on
                if self._closed:
                    raise OSError("the run is being ended")
                stream = Stream(argv)
                self._open.add(stream)
        except BaseException:
            if stream:
                self.end(stream)
            raise
        return stream

    def end(self, stream: Stream) -> None:
        """Kill a stream that still runs, and forget it."""
        stream.kill()
        stream.wait()
        stream.close()
        with self._lock:
            self._open.discard(stream)

    def finish(self, stream: Stream) -> tuple[bytes, bytes]:
        """Read stdout to its end and wait; returns stdout and stderr."""
        with contextlib.suppress(OSError):
            stream.stdin.close()
        stdout = b"" if stream.stdout.closed else stream.stdout.read()
        stream.wait()
        return stdout, stream.stderr_text()

    def kill_all(self) -> None:
        """End every stream and let no new one begin."""
        with self._lock:
            self._closed = True
            for stream in self._open:
                stream.kill()
