"""The launcher's end of one supervisor: commands there, records back, and a new stream when one breaks."""

import contextlib
import json
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from dglrun.agent.spec import encode
from dglrun.transfer.streams import Stream, Streams
from dglrun.workflow.steps import WorkerAgent

Record = dict[str, Any]
Inbox = queue.Queue[tuple["WorkerConnection", Record]]

SILENCE_SECONDS = 12.0
"""A stream without a heartbeat (every 3 s) for so long counts as broken."""
START_SILENCE_SECONDS = 60.0
"""The same until its greeting: on a busy node it starts slowly, and it may have to end an earlier one."""
PAUSES = (0.1, 0.5, 1.0, 2.0)

CONTROL = ("hello", "gap", "alive", "note", "refused", "gone", "broken", "checked")
"""Records that are not of the journal and do not count in its offsets."""


class WorkerConnection:
    """One worker's supervisor as the launcher sees it.

    Records arrive in the inbox, in order; `{"kind": "broken"}` is ours: the stream has ended.

    Args:
        agent: What to start.
        streams: Opens streams.
        inbox: Takes what comes.
    """

    def __init__(self, agent: WorkerAgent, streams: Streams, inbox: Inbox) -> None:
        self.agent, self._streams, self._inbox = agent, streams, inbox
        self.offset = 0
        """Offset in the supervisor's journal up to which all has been read."""
        self.greeting: Record | None = None
        self.has_finished = False
        self.files = 0
        """Files in its output folder, once it has finished."""
        self.lost: str | None = None
        self.broken_since: float | None = None
        self.attempts = 0
        self._heard = time.monotonic()
        self._stream: Stream | None = None

    @property
    def pod(self) -> str:
        """The worker pod."""
        return self.agent.host.name

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self.has_finished or self.lost is not None

    @property
    def skew(self) -> float:
        """Seconds to add to the worker's clock to get ours."""
        return float(self.greeting["skew"]) if self.greeting else 0.0

    def start(self) -> None:
        """Begin the run on the worker: it prepares and waits."""
        self.attempts += 1
        self._open(self.agent.argv, encode(self.agent.spec) + "\n")

    def attach(self) -> None:
        """Look at the run again, from where the last stream broke."""
        self.attempts += 1
        self._open(self.agent.attach, "")

    def tell(self, command: Mapping[str, object]) -> None:
        """Send a command; one that does not get through is followed by a broken stream."""
        if self._stream:
            self._write(self._stream, json.dumps(command) + "\n")

    def note(self, record: Record) -> None:
        """Take account of a record."""
        kind = record["kind"]
        if kind == "hello":
            self.greeting = {**record, "skew": record["received"] - record["time"]}
            self.offset, self.broken_since, self.attempts = record["offset"], None, 0
        elif kind == "gap":
            self.offset = record["offset"]
        elif kind not in CONTROL:
            self.offset += record["length"]
        if kind == "finished":
            self.has_finished = True
        if kind == "broken" and self.broken_since is None:
            self.broken_since = time.monotonic()

    def break_if_silent(self) -> None:
        """Give up a stream without a heartbeat."""
        longest = SILENCE_SECONDS if self.greeting else START_SILENCE_SECONDS
        if self._stream and time.monotonic() - self._heard > longest:
            self._heard = time.monotonic()
            self._stream.kill()

    def pause(self) -> float:
        """Seconds to wait before the next attempt to attach."""
        return PAUSES[min(self.attempts, len(PAUSES) - 1)]

    def check(self, gone: Callable[[str], str | None]) -> None:
        """Ask in a thread whether the pod is gone; the answer arrives as a record `checked`."""

        def ask() -> None:
            self._inbox.put((self, {"kind": "checked", "why": gone(self.pod)}))

        threading.Thread(target=ask, daemon=True).start()

    def wait(self, seconds: float) -> None:
        """Wait for the stream's own end: a dismissed supervisor closes it."""
        if self._stream:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._stream.wait(max(0.0, seconds))

    def close(self) -> None:
        """End the stream."""
        stream, self._stream = self._stream, None
        if stream:
            self._streams.end(stream)

    def _open(self, argv: tuple[str, ...], first: str) -> None:
        self.close()
        self._heard = time.monotonic()
        self._stream = self._streams.start(argv)
        threading.Thread(target=self._read, args=(self._stream,), daemon=True).start()
        self._write(self._stream, first + json.dumps({"do": "attach", "offset": self.offset}) + "\n")

    def _write(self, stream: Stream, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            stream.stdin.write(text.encode())
            stream.stdin.flush()

    def _read(self, stream: Stream) -> None:
        """Runs in a thread of its own for each stream, until that ends."""
        with contextlib.suppress(OSError, ValueError):
            for line in stream.stdout:
                self._heard = time.monotonic()
                if line.endswith(b"\n"):
                    self._inbox.put((self, _record(line)))
        stream.wait()
        if stream is self._stream:
            said = stream.stderr_text().decode(errors="replace").strip()
            self._inbox.put((self, {"kind": "broken", "code": stream.returncode, "what": said}))


def _record(line: bytes) -> Record:
    try:
        record: Record = json.loads(line)
        return {**record, "length": len(line), "received": time.time()}
    except (ValueError, TypeError):
        return {"kind": "note", "text": line.decode(errors="replace").rstrip()}
