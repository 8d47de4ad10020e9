"""An owner of files and its receivers, over real sockets and TLS, with a way in between that breaks."""

import contextlib
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from dglrun.agent.tls import Keys
from dglrun.transfer.pull import manifest as manifests
from dglrun.transfer.pull import order as orders
from dglrun.transfer.pull.file_server import FileServer, Share
from dglrun.transfer.pull.order import Order
from dglrun.transfer.pull.sums import StoredSums
from dglrun.workflow import run_keys
from tests.support.dglrun_pods import ROOT

OWNER = "job-launcher"
BLOCK = 4096
SIZES = {"part0/graph.dgl": 50_000, "part0/node_feat.dgl": BLOCK, "part0/none.dgl": 0, "tiny.json": 700}
RECEIVE = (sys.executable, "-S", "-m", "dglrun.transfer.pull")
_ALL_KEYS = run_keys.for_transfer(OWNER, ["job-worker-0", "job-worker-1"])


def write_files(folder: Path, sizes: dict[str, int] = SIZES) -> list[tuple[str, Path]]:
    """Files of made-up content, by their names."""
    found = []
    for name, size in sizes.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.Random(name).randbytes(size))  # noqa: S311 - content, no secret
        found.append((name, path))
    return found


def share(files: Sequence[tuple[str, Path]], block: int = BLOCK, sums: Path | None = None) -> Share:
    """What one receiver may read."""
    stored = StoredSums(sums, block) if sums else None
    manifest = manifests.of_files(files, block)
    return Share(manifest, tuple(path for _, path in files), stored, tuple(name for name, _ in files))


@contextmanager
def serving(**shares: Share) -> Iterator[FileServer]:
    """An owner; shares by receiver, `worker_0` for job-worker-0."""
    named = {f"job-{name.replace('_', '-')}": each for name, each in shares.items()}
    with FileServer(_ALL_KEYS[0], named) as server:
        yield server


def keys(index: int = 0) -> Keys:
    """Those of a worker."""
    return _ALL_KEYS[1][f"job-worker-{index}"]


def an_order(port: int, target: Path, patience: float = 30.0) -> Order:
    """An order for worker 0."""
    return Order(OWNER, "127.0.0.1", port, keys(), str(target), patience)


def start(order: Order, *wrap: str) -> "subprocess.Popen[str]":
    """A receiver as a process, below another command if one is given."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([*wrap, *RECEIVE], stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=ROOT)
    assert process.stdin
    process.stdin.write(orders.encode(order) + "\n")
    process.stdin.close()
    process.stdin = None
    return process


def same(folder: Path, files: Sequence[tuple[str, Path]]) -> bool:
    """Whether the files are there with their content and time, and nothing else but sums."""
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return found - {".dglrun-sums"} == {name for name, _ in files} and all(
        (folder / name).read_bytes() == path.read_bytes()
        and (folder / name).stat().st_mtime_ns == path.stat().st_mtime_ns
        for name, path in files
    )


class Relay:
    """A way to an owner whose connections break after so many bytes, one after the other; then none breaks.

    Args:
        port: The owner's.
        cuts: Bytes that come from the owner before the first connection breaks, the second, ...
        is_counted_there: Count the bytes that go there instead.
    """

    def __init__(self, port: int, cuts: Sequence[int], is_counted_there: bool = False) -> None:
        self._port, self._cuts, self._is_counted_there = port, iter(cuts), is_counted_there
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def __enter__(self) -> "Relay":
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._listener.close()

    def order(self, target: Path) -> Order:
        """An order that goes this way."""
        return replace(an_order(0, target), port=self.port)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here = self._listener.accept()[0]
                cut = next(self._cuts, None)
                threading.Thread(target=self._forward, args=(here, cut), daemon=True).start()

    def _forward(self, here: socket.socket, cut: int | None) -> None:
        with here, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port)) as there:
            to, back_cut = (cut, None) if self._is_counted_there else (None, cut)
            back = threading.Thread(target=_copy, args=(here, there, to), daemon=True)
            back.start()
            _copy(there, here, back_cut)
            back.join()


def _copy(source: socket.socket, target: socket.socket, limit: int | None) -> None:
    """Copy up to an end or a limit; then both connections are broken."""
    left = limit
    with contextlib.suppress(OSError):
        while left is None or left > 0:
            data = source.recv(BLOCK if left is None else min(left, BLOCK))
            if not data:
                break
            left = None if left is None else left - len(data)
            target.sendall(data)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
