"""The owner's side: serves the files of each receiver's manifest to that receiver, and to nobody else.

One thread for each connection, each with a buffer of one block: memory grows neither with the files nor with
their number. A receiver is known by its certificate.
"""

import json
import os
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dglrun.agent import tls
from dglrun.contract import exitcodes
from dglrun.transfer.pull import manifest as manifests
from dglrun.transfer.pull import wire
from dglrun.transfer.pull.manifest import Block, Manifest
from dglrun.transfer.pull.sums import StoredSums, sum_of
from dglrun.transfer.pull.tls_listener import TlsListener
from dglrun.transfer.pull.wire import REPLY, REQUEST, AnswerKind

MOST_REQUEST = 1 << 16
"""Bytes of a JSON object that a receiver may send."""


@dataclass(frozen=True)
class Share:
    """What one receiver may read.

    Attributes:
        manifest: Its files, under the names that they have there.
        paths: Where each of them lies here.
        sums: Sums of their blocks, as far as they are known already.
        names: Their names in `sums`; empty: nothing is known.
    """

    manifest: Manifest
    paths: tuple[Path, ...]
    sums: StoredSums | None = None
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Progress:
    """How far a receiver is.

    Attributes:
        size: Bytes of its manifest.
        lacks: Bytes that it lacked when it began, or began again; None: it has not begun.
        sent: Bytes of blocks that were sent to it since then.
        total: Bytes of blocks that were sent to it in all.
        connections: How many it has open.
        moved: When (monotonic) it has begun, was last sent something, or told what it fetches elsewhere.
        fetched: Bytes that it has of what it fetches elsewhere.
        elsewhere: Bytes of all that it fetches elsewhere, as far as it has told.
        is_whole: Whether all files are in their place.
        is_shared: Whether it sees the owner's own, so that nothing was sent.
        failure: What it has failed of, and the exit code.
        gave_up: Why its last start has given up, as the owner was out of reach; another one may go on.
    """

    size: int
    lacks: int | None = None
    sent: int = 0
    total: int = 0
    connections: int = 0
    moved: float = 0.0
    fetched: int = 0
    elsewhere: int = 0
    is_whole: bool = False
    is_shared: bool = False
    failure: tuple[str, int] | None = None
    gave_up: str = ""

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to come."""
        return self.is_whole or self.failure is not None

    @property
    def here(self) -> int:
        """Bytes that the receiver has, as far as is known."""
        if self.is_whole:
            return self.size
        return 0 if self.lacks is None else min(self.size, self.size - self.lacks + self.sent)


class FileServer:
    """Serves files until it is closed.

    Args:
        keys: The owner's.
        shares: By receiver, the name in its certificate.
    """

    def __init__(self, keys: tls.Keys, shares: Mapping[str, Share]) -> None:
        self._shares = dict(shares)
        self._progress = {name: Progress(share.manifest.size) for name, share in shares.items()}
        self._changed = threading.Condition()
        self._listener = TlsListener(keys, self._shares, self._serve, "file-server")
        self.port = self._listener.port
        self._listener.start()

    def __enter__(self) -> "FileServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def progress(self, receiver: str) -> Progress:
        """How far a receiver is."""
        with self._changed:
            return self._progress[receiver]

    def wait(self, seconds: float) -> None:
        """Wait until a receiver has begun or ended, but no longer than this."""
        with self._changed:
            self._changed.wait(seconds)

    def close(self) -> None:
        """Break all connections and serve no more."""
        self._listener.close()
        self._listener.join()

    # --- connections

    def _serve(self, connection: ssl.SSLSocket, name: str) -> None:
        with self._changed:
            self._update(name, connections=1)
        session = _Session(connection, self._shares[name])
        try:
            while request := session.request():
                if self.progress(name).is_whole and not _is_last_word(request):
                    session.refuse_late_receiver()
                elif isinstance(request, Block):
                    self._sent(name, session.send_block(request))
                else:
                    self._obey(name, session, request)
        finally:
            session.close()
            with self._changed:
                self._update(name, connections=-1)

    def _obey(self, name: str, session: "_Session", told: dict[str, Any]) -> None:
        with self._changed:
            match told.get("tell"):
                case "begin":
                    self._set(name, lacks=int(told["lacks"]), sent=0, moved=time.monotonic(), gave_up="")
                case "fetched":
                    at = max(self._progress[name].fetched, int(told["bytes"]))
                    self._set(name, fetched=at, elsewhere=int(told["of"]), moved=time.monotonic())
                case "whole":
                    self._set(name, is_whole=True, is_shared=bool(told.get("is_shared")))
                case "failed" if told["code"] == exitcodes.UNAVAILABLE:  # of us: it may be started again
                    self._set(name, gave_up=str(told["what"]))
                case "failed" if not self._progress[name].is_over:
                    self._set(name, failure=(str(told["what"]), int(told["code"])))
            self._changed.notify_all()
        session.answer(told)

    def _sent(self, name: str, size: int) -> None:
        with self._changed:
            now = self._progress[name]
            self._set(name, sent=now.sent + size, total=now.total + size, moved=time.monotonic())

    def _update(self, name: str, connections: int) -> None:
        self._set(name, connections=self._progress[name].connections + connections)

    def _set(self, name: str, **values: Any) -> None:
        self._progress[name] = replace(self._progress[name], **values)


@dataclass
class _Session:
    """One connection of one receiver."""

    connection: ssl.SSLSocket
    share: Share
    _buffer: bytearray = field(init=False)
    _view: memoryview = field(init=False)
    _at: int = -1
    _file: int = -1

    def __post_init__(self) -> None:
        self._buffer = bytearray(REPLY.size + self.share.manifest.block)
        self._view = memoryview(self._buffer)

    def request(self) -> Block | dict[str, Any] | None:
        """The next request; None when the receiver has closed the connection."""
        head = self._view[: REQUEST.size]
        try:
            wire.receive_into(self.connection, head)
        except TimeoutError:
            raise wire.BrokenError("silent") from None
        first, second = REQUEST.unpack(head)
        if first != wire.TELL:
            return Block(first, second)
        if second > MOST_REQUEST:
            raise wire.BrokenError("expected a short request")
        told = json.loads(wire.receive(self.connection, second))
        if not isinstance(told, dict):
            raise wire.BrokenError("expected a JSON object")
        return told

    def answer(self, told: dict[str, Any]) -> None:
        """Answer a JSON object; the manifest is what one may ask for."""
        if told.get("tell") == "placing":  # silent until it is done
            wire.keep_alive(self.connection)
        is_asked = told.get("tell") == "manifest"
        text = manifests.encode(self.share.manifest) if is_asked else "{}"
        self.connection.sendall(wire.reply(AnswerKind.TOLD, text.encode()))

    def send_block(self, block: Block) -> int:
        """Send a block, or why there is none; returns its bytes."""
        manifest = self.share.manifest
        if not manifest.has(block):
            self._refuse(f"expected a block of the manifest, got {tuple(block)}")
        length = manifest.length(block)
        part = self._view[REPLY.size : REPLY.size + length]
        try:
            self._read(block, part)
        except OSError as error:
            path = self.share.paths[block.file]
            self._refuse(f"{path}: cannot be read: {error.strerror or error}")
        REPLY.pack_into(self._buffer, 0, AnswerKind.BLOCK, length, self._sum(block, part))
        self.connection.sendall(self._view[: REPLY.size + length])
        return length

    def refuse_late_receiver(self) -> None:
        """Tell a receiver that was started twice, and comes late, that the files are in use already.

        Raises:
            BrokenError: as `_refuse`.
        """
        self._refuse("all files are in their place", exitcodes.OK)

    def close(self) -> None:
        """Close connection and file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self.connection.close()

    def _sum(self, block: Block, part: memoryview) -> bytes:
        share = self.share
        if share.sums and share.names:
            entry = replace(share.manifest.files[block.file], name=share.names[block.file])
            if known := share.sums.find(entry, block.at):
                return known
        return sum_of(part)

    def _read(self, block: Block, part: memoryview) -> None:
        """Fill `part` with a block of a file that is as the manifest says."""
        if self._at != block.file:
            if self._file >= 0:
                os.close(self._file)
            self._at = self._file = -1
            self._file = os.open(self.share.paths[block.file], os.O_RDONLY | os.O_CLOEXEC)
            self._at = block.file
        offset, got = self.share.manifest.offset(block), 0
        while got < len(part) and (count := os.preadv(self._file, [part[got:]], offset + got)):
            got += count
        self._require_unchanged(block)  # after the read, which may have seen a part of a change

    def _require_unchanged(self, block: Block) -> None:
        wanted, found = self.share.manifest.files[block.file], os.fstat(self._file)
        if (found.st_size, found.st_mtime_ns) != (wanted.size, wanted.mtime):
            was, now = f"{wanted.size} bytes of {wanted.mtime} ns", f"{found.st_size} of {found.st_mtime_ns}"
            path = self.share.paths[block.file]
            self._refuse(f"{path}: changed while it was sent: expected {was}, found {now}")

    def _refuse(self, why: str, code: int = exitcodes.IO) -> None:
        """Tell the receiver, which fails of it.

        Raises:
            BrokenError: always: this connection has no more to say.
        """
        text = json.dumps({"what": why, "code": code}).encode()
        self.connection.sendall(wire.reply(AnswerKind.REFUSED, text))
        raise wire.BrokenError(why)


def _is_last_word(request: Block | dict[str, Any]) -> bool:
    """Whether a receiver tells its end, perhaps a second time, as the first answer has not come."""
    return isinstance(request, dict) and request.get("tell") in ("whole", "failed")
