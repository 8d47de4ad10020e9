"""The output folders of workers whose agents are there: each comes home on a connection of its own, over TLS.

The launcher tells an agent on its connection, and waits for the one that a process of the worker makes.
Nothing of it passes the API server. What has broken is told again.
"""

import contextlib
import itertools
import queue
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dglrun.contract import exitcodes
from dglrun.errors import RunError
from dglrun.transfer import copy, send_output, tar_stream
from dglrun.transfer.output_stream import OutputStream
from dglrun.transfer.pull.tls_listener import TlsListener
from dglrun.transfer.tar_stream import CutShortError, PackError
from dglrun.workflow.part_delivery import address_towards

AGAIN_SECONDS = 5.0
"""Between two times that an agent is told, while nothing comes."""
NO_SENDER_SECONDS = 30.0
"""An agent that could be reached for so long in all, and has sent nothing, is not asked any more."""
_TICK = 0.2


@dataclass(frozen=True)
class Wanted:
    """One output folder.

    Attributes:
        pod: The worker.
        source: The folder there.
        marker: Name of a file in it if it is the launcher's own.
        target: The folder here.
        taken: Names in it that belong to other workers.
    """

    pod: str
    source: str
    marker: str
    target: Path
    taken: frozenset[str] = frozenset()


class OutputCollection:
    """Takes the output of all workers of a training; used by many threads, one for each worker.

    Args:
        ips: Address of each worker, by pod.
        tell: Tells an agent something; lost where no connection is.
        is_connected: Whether there is a connection to an agent now.
        lease: Seconds after which an agent without one has left.
    """

    def __init__(
        self,
        ips: Mapping[str, str],
        tell: Callable[[str, Mapping[str, object]], None],
        is_connected: Callable[[str], bool],
        lease: float,
    ) -> None:
        from dglrun.workflow import run_keys  # noqa: PLC0415 - costs 50 ms, and a dry run needs none

        self._ips, self._tell, self._is_connected, self._lease = ips, tell, is_connected, lease
        self._owner = run_keys.LAUNCHER
        own, self._keys = run_keys.for_transfer(self._owner, ips)
        self._numbers = itertools.count(1)
        self._came: dict[str, queue.SimpleQueue[_Arrival | _SenderEnd]] = {
            pod: queue.SimpleQueue() for pod in ips
        }
        self._closed = threading.Event()
        self._listener = TlsListener(own, ips, self._serve, "output")
        self._listener.start()

    def collect(self, wanted: Wanted, deadline: float) -> list[str] | None:
        """Bring a folder here, however often that breaks.

        Args:
            wanted: Which.
            deadline: Until when (monotonic) it is tried again, whatever breaks it but the files themselves.

        Returns:
            Names of the files; None if its agent is not there any more, or nothing comes from it.

        Raises:
            NameTakenError: a name belongs to another worker.
            RunError: a file cannot be read there or written here.
        """
        try:
            return copy.persist(lambda: self._once(wanted), f"copy from {wanted.pod}", deadline)
        except _NoSenderError as error:
            print(f"dglrun: note: {wanted.pod}: {error}; its output is asked for by kubectl exec", flush=True)
            return None

    def sender_ended(self, pod: str, number: int, what: str) -> None:
        """Tell whoever waits that the process of a worker that sends has ended, or could not be started.

        Args:
            pod: The worker.
            number: The attempt's.
            what: How it has ended, and what it has said.
        """
        self._came[pod].put(_SenderEnd(number, tar_stream.shown(what)))

    def close(self) -> None:
        """Break what still goes on."""
        self._closed.set()
        self._listener.close()
        self._listener.join()

    # --- one attempt

    def _once(self, wanted: Wanted) -> list[str]:
        with contextlib.closing(self._arrival(wanted)) as arrival:
            stream = OutputStream(arrival.connection)
            try:
                return _taken(stream, wanted)
            except OSError as error:
                what = f"the connection broke: {error.strerror or error}"
                raise copy.CopyBrokenError(
                    what, exitcodes.UNAVAILABLE, stream.has_moved, may_pass=True
                ) from error

    def _arrival(self, wanted: Wanted) -> "_Arrival":
        """Tell the agent until a connection comes.

        Raises:
            _NoSenderError: none does.
            RunError: the run is being ended.
        """
        pod, number = wanted.pod, next(self._numbers)
        connected = looked = time.monotonic()
        told, reached, why = float("-inf"), 0.0, ""
        while not self._closed.is_set():
            now = time.monotonic()
            if now - told >= AGAIN_SECONDS:
                self._tell(pod, self._command(wanted, number))
                told = now
            came = self._next(pod)
            if isinstance(came, _Arrival):
                return came
            if came and came.number == number and came.what != why:
                why = came.what
                print(f"dglrun: note: {pod}: the process that sends its output {why}", flush=True)
            if self._is_connected(pod):
                reached, connected = reached + now - looked, now
            looked = now
            if now - connected > self._lease:
                raise _NoSenderError(f"its agent could not be reached for {self._lease:.0f} s")
            if reached > NO_SENDER_SECONDS:
                reason = f": its process {why}" if why else ""
                raise _NoSenderError(f"its agent has sent nothing for {NO_SENDER_SECONDS:.0f} s{reason}")
        raise RunError("the run is being ended", exitcodes.UNAVAILABLE)

    def _next(self, pod: str) -> "_Arrival | _SenderEnd | None":
        """What has come of a worker, or comes within a moment."""
        with contextlib.suppress(queue.Empty):
            return self._came[pod].get(timeout=_TICK)
        return None

    def _command(self, wanted: Wanted, number: int) -> dict[str, Any]:
        address = address_towards(self._ips[wanted.pod])
        order = send_output.SendOrder(
            self._owner,
            address,
            self._listener.port,
            self._keys[wanted.pod],
            wanted.source,
            wanted.marker,
        )
        text = send_output.encode(order)
        return {"do": "output", "number": number, "module": send_output.__name__, "order": text}

    def _serve(self, connection: ssl.SSLSocket, pod: str) -> None:
        """Hand a connection to the thread that waits for it, and close it when that is done."""
        arrival = _Arrival(connection)
        self._came[pod].put(arrival)
        while not arrival.is_done.wait(_TICK) and not self._closed.is_set():
            pass


class _Arrival:
    """A connection that a worker has made."""

    def __init__(self, connection: ssl.SSLSocket) -> None:
        self.connection, self.is_done = connection, threading.Event()

    def close(self) -> None:
        """Let its own thread close it."""
        self.is_done.set()


@dataclass(frozen=True)
class _SenderEnd:
    """A process that was to send, and how it has ended.

    Attributes:
        number: The attempt's.
        what: As it can be printed.
    """

    number: int
    what: str


class _NoSenderError(Exception):
    """Nothing will come from an agent."""


def _taken(stream: OutputStream, wanted: Wanted) -> list[str]:
    """Unpack a stream and look how it has ended.

    Raises:
        CopyBrokenError: it is not whole, or has something else than it should.
        NameTakenError: a name belongs to another worker.
        WriteError: a file cannot be written here.
        OSError: the connection broke.
    """
    found, trouble = list[str](), None
    try:
        found = tar_stream.unpack(stream, wanted.target, wanted.taken)  # type: ignore[arg-type]
    except PackError as error:
        trouble = error
        if not isinstance(error, CutShortError):  # what is no stream of ours might go on for long
            raise copy.CopyBrokenError(str(error), exitcodes.IO, connected=True) from error
    notes, failed = stream.ending()
    for note in notes:
        print(f"dglrun: note: {wanted.pod}: {tar_stream.shown(note)}", flush=True)
    if failed or trouble:
        raise copy.CopyBrokenError(
            tar_stream.shown(failed) or str(trouble), exitcodes.IO, connected=True
        ) from trouble
    return found
