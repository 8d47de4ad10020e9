"""Serves the files of a partition to pods that pull them: starts their receivers, follows them to the end.

A stream through the API server starts each receiver and ends; files go over connections of their own. A
receiver that has gone silent is started anew, and goes on where it was.
"""

import contextlib
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from dglrun.agent import folder_mark
from dglrun.agent.tls import Keys
from dglrun.contract import exitcodes
from dglrun.errors import RunError
from dglrun.transfer.kept_files import KeptFiles
from dglrun.transfer.kubectl import has_reached
from dglrun.transfer.partition_files import PartitionFiles
from dglrun.transfer.pull import manifest as manifests
from dglrun.transfer.pull import order as orders
from dglrun.transfer.pull.__main__ import STARTED
from dglrun.transfer.pull.file_server import FileServer, Progress, Share
from dglrun.transfer.pull.manifest import SUMS
from dglrun.transfer.pull.order import Order
from dglrun.transfer.pull.sums import StoredSums
from dglrun.transfer.streams import Streams
from dglrun.workflow.steps import Puller, Serve

SILENT_SECONDS = 15.0
"""A receiver that has not been heard of for so long after its start is started again."""
BROKEN_SECONDS = 5.0
"""The same for one that has begun, and has no connection any more."""
START_SECONDS = 60.0
"""Then a stream that says nothing is killed, and the start is tried again."""
REFUSALS = 3
"""How often a start may fail in which kubectl has reached the container."""
EVERY_SECONDS = 10.0
"""Between two accounts of how far all are."""
PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds before a start is tried again, the last one again and again."""
_TICK = 0.5
_PROBE_PORT = 9

Ask = Callable[[str], str | None]


@dataclass
class _Receiver:
    """One receiver as the owner knows it.

    Attributes:
        puller: Which.
        keys: Its own.
        files: How many files it gets.
        began: When (monotonic) it was started first.
        heard: When it was last sent something, or was started first.
        start: Its start under way.
        start_at: When it is to be started (again).
        started: When its last start went well.
        tries: Starts since something came of it.
        refusals: Starts that the container has refused since then.
        is_silent: Whether its last start went well, and nothing came of it.
        sent: Bytes that it had been sent, or had fetched from a store, at the last look.
        is_done: Whether its end has been told.
    """

    puller: Puller
    keys: Keys
    files: int
    began: float | None = None
    heard: float = 0.0
    start: "Future[None] | None" = None
    start_at: float = 0.0
    started: float = 0.0
    tries: int = 0
    refusals: int = 0
    is_silent: bool = False
    sent: int = 0
    is_done: bool = False


class PartDelivery:
    """One `Serve` step.

    Args:
        step: What is served to whom.
        partition: Its files, or the reference by which each worker takes them from a store.
        streams: Start the receivers.
        ip: The address of a pod, for one whose address the plan does not know.
        gone: Says of a pod why it no longer runs, None if it does or nobody can tell.
        tell: Takes how far all are, as a line and in percent.
    """

    def __init__(
        self,
        step: Serve,
        partition: PartitionFiles | KeptFiles,
        streams: Streams,
        ip: Ask,
        gone: Ask,
        tell: Callable[[str, int], None],
    ) -> None:
        from dglrun.workflow import run_keys  # noqa: PLC0415 - costs 50 ms, and a dry run needs none

        self._step, self._partition, self._streams = step, partition, streams
        self._ip, self._gone, self._tell = ip, gone, tell
        self._own, keys = run_keys.for_transfer(step.owner, (each.pod for each in step.pullers))
        self._sums = StoredSums(partition.folder / SUMS, manifests.BLOCK)
        self._folder = _folder_of(partition)
        self._marker = ""
        self._shares = {each.pod: self._share(each) for each in step.pullers}
        self._receivers = [
            _Receiver(each, keys[each.pod], len(self._shares[each.pod].paths)) for each in step.pullers
        ]
        self._told_at, self._told_sent = time.monotonic(), 0

    def run(self) -> None:
        """Serve until all have all.

        Raises:
            RunError: a receiver has failed, its pod is gone, or nothing went on for the step's deadline.
        """
        pool = ThreadPoolExecutor(self._step.starts, thread_name_prefix="start")
        marker = self._step.marker
        try:
            with (
                folder_mark.marked(self._folder, marker) as is_marked,
                FileServer(self._own, self._shares) as server,
            ):
                self._marker = marker if is_marked else ""
                while not all(each.is_done for each in self._receivers):
                    self._turn(server, pool)
                    server.wait(_TICK)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            self._sums.close()

    def _share(self, puller: Puller) -> Share:
        items = self._partition.all_files() if puller.part is None else self._partition.files(puller.part)
        manifest = manifests.of_files((item.name, item.path) for item in items)
        return Share(
            manifest, tuple(item.path for item in items), self._sums, tuple(item.name for item in items)
        )

    # --- one turn

    def _turn(self, server: FileServer, pool: ThreadPoolExecutor) -> None:
        under_way = [each for each in self._receivers if each.began and not each.is_done]
        for each in under_way:
            self._look(each, server.progress(each.puller.pod))
        free = self._step.limit - sum(not each.is_done for each in under_way)
        waiting = [each for each in self._receivers if each.began is None]
        for each in waiting[:free]:
            each.began = each.heard = time.monotonic()
        for each in self._receivers:
            if each.began and not each.is_done and not each.start and time.monotonic() >= each.start_at:
                each.tries += 1
                each.start = pool.submit(self._start_or_say_why, each, server.port)
        self._account(server)

    def _look(self, receiver: _Receiver, progress: Progress) -> None:
        """Take account of what has become of a receiver.

        Raises:
            RunError: it has failed, or cannot be reached any more.
        """
        pod, now = receiver.puller.pod, time.monotonic()
        if progress.failure:
            what, code = progress.failure
            raise RunError(f"copy to {pod} failed: {what}", code)
        if progress.is_whole:
            receiver.is_done = True
            self._say_done(receiver, progress)
            return
        came = progress.total + progress.fetched
        if progress.connections or came > receiver.sent:
            receiver.tries = receiver.refusals = 0
        if came > receiver.sent:
            receiver.heard, receiver.sent = now, came
        if receiver.start and receiver.start.done():
            self._look_at_start(receiver, receiver.start, progress)
        if now - receiver.heard > self._step.seconds:
            raise RunError(
                f"copy to {pod} failed: nothing was sent for {self._step.seconds:g} s", exitcodes.UNAVAILABLE
            )

    def _look_at_start(self, receiver: _Receiver, start: "Future[None]", progress: Progress) -> None:
        """A start has ended: well, and the receiver is heard of; or it is to be tried again.

        Raises:
            RunError: the container has refused it too often, or its pod is gone.
        """
        error, now = start.exception(), time.monotonic()
        if error and progress.connections:  # the stream broke when it had done its work
            receiver.started, receiver.start, error = now, _done(), None
        has_begun = progress.moved > receiver.started
        silent = now - max(receiver.started, progress.moved)
        if error is None and (
            progress.connections or silent < (BROKEN_SECONDS if has_begun else SILENT_SECONDS)
        ):
            return
        pod, receiver.start = receiver.puller.pod, None
        if error is not None and not isinstance(error, _NotStartedError):
            raise error
        if error and error.why_gone:
            raise RunError(f"copy to {pod} failed: {error.why_gone}", exitcodes.LOST)
        receiver.is_silent = error is None
        silence = progress.gave_up or f"nothing was heard of the receiver for {silent:.0f} s"
        what = str(error) if error else silence
        receiver.refusals += isinstance(error, _NotStartedError) and error.is_refusal
        if receiver.refusals >= REFUSALS:
            raise RunError(f"copy to {pod} failed: {what}", exitcodes.UNAVAILABLE)
        receiver.start_at = now + pause_after(receiver.tries)
        last = (what.splitlines() or [""])[-1]
        print(f"dglrun: the copy to {pod} is begun again: {last}", flush=True)

    # --- starts

    def _start_or_say_why(self, receiver: _Receiver, port: int) -> None:
        """Start a receiver; called by a thread of the pool, as the API server may be long in answering.

        Raises:
            _NotStartedError: it did not say that it goes on, or its pod is gone.
        """
        pod = receiver.puller.pod
        if receiver.is_silent and (why := self._gone(pod)):
            raise _NotStartedError(why, why_gone=why)
        try:
            self._start(receiver, port)
        except _NotStartedError as error:
            error.why_gone = self._gone(pod)
            raise

    def _start(self, receiver: _Receiver, port: int) -> None:
        """Start a receiver.

        Raises:
            _NotStartedError: it did not say that it goes on.
        """
        puller, step = receiver.puller, self._step
        ip = puller.ip or self._ip(puller.pod)
        if not ip:
            raise _NotStartedError(f"connection refused: {puller.pod} has no address yet")
        order = Order(
            step.owner,
            address_towards(ip),
            port,
            receiver.keys,
            puller.target,
            step.seconds,
            step.keeps_sums,
            step.connections,
            puller.pod,
            str(self._folder),
            self._marker,
        )
        try:
            with self._streams.open(puller.argv) as stream, stream.killed_after(START_SECONDS):
                said, _ = stream.communicate(orders.encode(order).encode() + b"\n")
                words = stream.stderr_text().decode(errors="replace").strip()
        except OSError as error:
            raise _NotStartedError(str(error)) from error
        if STARTED not in said.decode(errors="replace").splitlines():
            code = stream.returncode
            raise _NotStartedError(
                words or f"unexpected EOF (kubectl: {code})", has_reached(code or 0, words)
            )
        receiver.started = time.monotonic()

    # --- accounts

    def _say_done(self, receiver: _Receiver, progress: Progress) -> None:
        if progress.is_shared:
            pod, count = receiver.puller.pod, receiver.files
            print(f"{pod} sees {count} files in {self._folder}: nothing has to be sent", flush=True)
            return
        seconds = max(time.monotonic() - (receiver.began or 0.0), 1e-3)
        if isinstance(self._partition, KeptFiles) and receiver.puller.part is not None:
            print(_kept(receiver.puller, self._partition, progress, seconds), flush=True)
            return
        size, twice = progress.size, progress.total - progress.size
        more = f", {_amount(twice)} of it twice" if twice > 0 else ""
        print(
            f"sent {receiver.files} files, {_amount(size)} to {receiver.puller.pod} in {seconds:.1f} s "
            f"({_amount(progress.total / seconds)}/s{more}), checksums compared",
            flush=True,
        )

    def _account(self, server: FileServer) -> None:
        """Say every EVERY_SECONDS how far each is, and all are."""
        now = time.monotonic()
        seconds = now - self._told_at
        if seconds < EVERY_SECONDS:
            return
        found = {each.puller.pod: server.progress(each.puller.pod) for each in self._receivers}
        sent = sum(each.total + each.fetched for each in found.values())
        here = sum(each.here + each.fetched for each in found.values())
        size = sum(each.size + each.elsewhere for each in found.values())
        rate = (sent - self._told_sent) / seconds
        self._told_at, self._told_sent = now, sent
        done = sum(each.is_done for each in self._receivers)
        line = f"{done} of {len(found)} pods have their files, {_left(here, size, rate)}"
        print(f"dglrun: {line}", flush=True)
        for each in self._receivers:
            if each.began and not each.is_done and len(self._receivers) > 1:
                self._account_of(each, found[each.puller.pod], now)
        self._tell(line, int(100 * here / size) if size else 100)

    def _account_of(self, receiver: _Receiver, progress: Progress, now: float) -> None:
        rate = (progress.total + progress.fetched) / max(now - (receiver.began or now), 1e-3)
        here, size = progress.here + progress.fetched, progress.size + progress.elsewhere
        print(f"dglrun:   {receiver.puller.pod}: {_left(here, size, rate)}", flush=True)


class _NotStartedError(Exception):
    """A start failed; says what kubectl has said.

    Args:
        what: That.
        is_refusal: Whether kubectl had reached the container.
        why_gone: Why the pod no longer runs, None if it does or nobody can tell.
    """

    def __init__(self, what: str, is_refusal: bool = False, why_gone: str | None = None) -> None:
        super().__init__(what)
        self.is_refusal, self.why_gone = is_refusal, why_gone


def pause_after(tries: int) -> float:
    """Seconds before the next start, after so many without anything; the shortest where something came."""
    return PAUSES[min(max(tries, 1), len(PAUSES)) - 1]


def _done() -> "Future[None]":
    """A start that went well."""
    start: Future[None] = Future()
    start.set_result(None)
    return start


def _folder_of(partition: PartitionFiles | KeptFiles) -> Path:
    """Where the files lie: a partition that was not sent here is a folder of links to them."""
    path = partition.path if isinstance(partition, KeptFiles) else partition.config.path
    if not path.is_symlink():
        return partition.folder
    folder = Path(path.parent, path.readlink()).parent
    try:
        is_all = all((folder / item.name).samefile(item.path) for item in partition.all_files())
    except OSError:
        is_all = False
    return folder if is_all else partition.folder


def address_towards(ip: str) -> str:
    """The address of this pod by which another one reaches it: that of the interface on the way there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        with contextlib.suppress(OSError):
            probe.connect((ip, _PROBE_PORT))  # sends nothing
        return str(probe.getsockname()[0])


def _kept(puller: Puller, kept: KeptFiles, progress: Progress, seconds: float) -> str:
    """How a worker has come by its part of a kept partition."""
    if not progress.elsewhere:
        return f"{puller.pod} reads part {puller.part} in place: {kept.place}/{kept.kept.path}"
    rate = _amount(progress.fetched / seconds)
    size = _amount(progress.elsewhere)
    return (
        f"{puller.pod} has part {puller.part} from {kept.place}: {size} in {seconds:.1f} s ({rate}/s), "
        "checksums compared"
    )


def _amount(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e10 else f"{size / 1e6:.1f} MB"


def _left(here: int, size: int, rate: float) -> str:
    left = f"{(size - here) / rate:.0f} s left" if rate > 0 else "standing still"
    return f"{_amount(here)} of {_amount(size)}, {_amount(rate)}/s, {left}"
