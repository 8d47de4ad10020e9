"""The launcher's connections to all agents: TLS, one each, served by one thread.

Each connection carries control records and output of one agent here, and commands, heartbeats and
acknowledgements there. It is made anew when it breaks, for as long as the caller wants it. Nothing of it
passes the API server.
"""

import asyncio
import concurrent.futures
import contextlib
import functools
import json
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dglrun.agent import tls
from dglrun.workflow.output_printer import Chunk, OutputPrinter

Record = dict[str, Any]

CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 12.0
"""A connection without a heartbeat (every 3 s) for so long counts as broken."""
PAUSES = (0.1, 0.5, 1.0, 2.0)
"""Seconds before each new attempt, the last one again and again."""
_BLOCK = 1 << 16


@dataclass(frozen=True)
class AgentAddress:
    """Where an agent listens.

    Attributes:
        pod: Its pod, whose name its certificate has.
        ip: The pod's IP.
        port: As the agent has said.
    """

    pod: str
    ip: str
    port: int


@dataclass
class _Link:
    """One agent's connection, used in the loop's thread but for `printed`.

    Attributes:
        index: The worker's.
        address: Where it is.
        take: Takes control records, hello, alive and broken; called in the loop's thread.
        control: Number of the last control record that has come.
        received: Number of the last line of output that has come.
        printed: Number of the last line that has been printed.
        writer: The open connection's.
        failures: Attempts since the last greeting.
    """

    index: int
    address: AgentAddress
    take: Callable[[Record], None]
    control: int = 0
    received: int = 0
    printed: int = 0
    writer: asyncio.StreamWriter | None = None
    failures: int = 0
    ended: threading.Event = field(default_factory=threading.Event)


class AgentConnections:
    """The connections of one run; its methods may be called from any thread.

    Args:
        keys: The launcher's.
        heartbeat: Seconds between heartbeats.
        printer: Takes the output.
    """

    def __init__(self, keys: tls.Keys, heartbeat: float, printer: OutputPrinter) -> None:
        self._context, self._heartbeat, self._printer = tls.client_context(keys), heartbeat, printer
        self._links: dict[str, _Link] = {}
        self._closing = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="agents", daemon=True)
        self._thread.start()

    def connect(self, index: int, address: AgentAddress, take: Callable[[Record], None]) -> None:
        """Connect to an agent and stay connected.

        Args:
            index: The worker's.
            address: Where the agent listens.
            take: Called in the thread of the connections with what comes: `hello` and `alive`, control
                records, and `{"kind": "broken", "what": ..., "is_refused": ...}` for each attempt that fails.
        """
        link = self._links[address.pod] = _Link(index, address, take)
        future = asyncio.run_coroutine_threadsafe(self._stay_connected(link), self._loop)
        future.add_done_callback(lambda done: _tell_bug(link, done))

    def tell(self, pod: str, command: Mapping[str, object]) -> None:
        """Send a command; lost where no connection is: the next greeting is the time to send it again."""
        if link := self._links.get(pod):
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                self._loop.call_soon_threadsafe(_write, link, command)

    def is_connected(self, pod: str) -> bool:
        """Whether there is a connection to an agent now, as far as this end knows."""
        link = self._links.get(pod)
        return link is not None and link.writer is not None

    def close(self, seconds: float) -> None:
        """Say goodbye to all agents, wait until they have left, for so long at most, and close."""
        if self._closing:
            return
        self._closing = True
        for link in list(self._links.values()):
            self.tell(link.address.pod, {"do": "bye"})
        deadline = time.monotonic() + seconds
        for link in self._links.values():
            if link.writer:
                link.ended.wait(max(0.0, deadline - time.monotonic()))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _stay_connected(self, link: _Link) -> None:
        while not self._closing:
            try:
                await self._converse(link)
            except OSError as error:
                what, is_refused = _describe(error), isinstance(error, ConnectionRefusedError)
                link.take({"kind": "broken", "what": what, "is_refused": is_refused})
            if not self._closing:
                await asyncio.sleep(PAUSES[min(link.failures, len(PAUSES) - 1)])
                link.failures += 1
        link.ended.set()

    async def _converse(self, link: _Link) -> None:
        """Talk until the connection breaks.

        Raises:
            OSError: it broke, or was silent for too long.
        """
        address = link.address
        async with asyncio.timeout(CONNECT_SECONDS) as limit:
            reader, writer = await asyncio.open_connection(
                address.ip, address.port, ssl=self._context, server_hostname=address.pod
            )
            link.writer = writer
            where = {"control": link.control, "received": link.received, "printed": link.printed}
            _write(link, {"do": "attach", **where})
            beats = asyncio.create_task(self._beat(link))
            try:
                rest = b""
                while block := await reader.read(_BLOCK):
                    limit.reschedule(self._loop.time() + SILENCE_SECONDS)
                    *lines, rest = (rest + block).split(b"\n")
                    self._take(link, [json.loads(line) for line in lines])
            finally:
                link.writer = None
                beats.cancel()
                with contextlib.suppress(OSError):
                    writer.transport.abort()
        raise ConnectionResetError("the agent has closed it")

    async def _beat(self, link: _Link) -> None:
        while True:
            await asyncio.sleep(self._heartbeat)
            _write(link, {"do": "beat"})

    def _take(self, link: _Link, records: list[Record]) -> None:
        lines = []
        for record in records:
            if record["kind"] == "line":
                lines += _lines(record)
                link.received = record["line"]
                continue
            if record["kind"] == "hello":
                link.failures = 0
            link.control = record.get("control", link.control)
            link.take({**record, "received": time.time()})
        if lines:
            chunk = Chunk(link.index, tuple(lines), functools.partial(self._printed, link, link.received))
            self._printer.put(chunk)
        elif any("control" in record for record in records):
            _acknowledge(link)

    def _printed(self, link: _Link, last: int) -> None:
        """Called by the printer's thread."""
        link.printed = last
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            self._loop.call_soon_threadsafe(_acknowledge, link)


def _tell_bug(link: _Link, done: "concurrent.futures.Future[None]") -> None:
    """A connection ends by itself only when it is closed; anything else must be loud."""
    error = None if done.cancelled() else done.exception()
    if error:
        link.take({"kind": "bug", "error": error})


def _acknowledge(link: _Link) -> None:
    _write(link, {"do": "printed", "control": link.control, "printed": link.printed})


def _write(link: _Link, command: Mapping[str, object]) -> None:
    if link.writer:
        link.writer.write(json.dumps(command).encode() + b"\n")


def _lines(record: Record) -> list[tuple[str, str]]:
    dropped = record["dropped"]
    note = (
        [(record["who"], f"({dropped} lines were dropped: the log could not take them)")] if dropped else []
    )
    return [*note, (record["who"], record["text"])]


def _describe(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the agent's certificate does not fit: {error.verify_message}"
    if isinstance(error, TimeoutError) and not error.args:
        return f"silent for {SILENCE_SECONDS:g} s"
    return error.strerror or str(error) or type(error).__name__
