"""Copies between pods by `kubectl exec`: checksummed, all or nothing, tried again when a stream breaks."""

import subprocess
import threading
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import IO, TypeVar

from dglrun.contract import exitcodes
from dglrun.errors import RunError
from dglrun.transfer.kubectl import has_reached
from dglrun.transfer.streams import Streams
from dglrun.transfer.tar_stream import (
    NOTE,
    PACK,
    STAGING,
    SUMS,
    CutShortError,
    Item,
    Packed,
    PackError,
    pack,
    shown,
    unpack,
)

ATTEMPTS = 3
"""How often a copy is begun that did not arrive whole."""
STALL_SECONDS = 60.0
"""A stream that takes no byte for so long is given up."""
BACKOFF_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)

RECEIVE = (
    "sh",
    "-c",
    f"""set -u
mkdir -p -- "$1" && cd -- "$1" || {{ echo "cannot write to $1"; exit {exitcodes.IO}; }}
target=$(pwd); shift
staging=$target/{STAGING}.$$
fail() {{ echo "$1"; cd "$target"; rm -rf -- "$staging"; exit {exitcodes.IO}; }}
rm -rf -- "$target"/{STAGING}.* && mkdir -- "$staging" || fail "cannot write to $target"
echo ready
tar -x -o -f - -C "$staging" || fail "no checksum could be taken: tar could not unpack the stream"
cd -- "$staging" || fail "cannot enter $staging"
sha256sum -c {SUMS} >.dglrun-check 2>&1 || fail "checksum differs: $(grep -v ': OK$' .dglrun-check)"
echo "sums $(sha256sum <{SUMS})"
cd "$target"
for entry; do rm -rf -- "$target/$entry" || fail "cannot replace $target/$entry"; done
for entry; do mv -- "$staging/$entry" "$target/$entry" || fail "cannot place $target/$entry"; done
rm -rf -- "$staging"
echo whole""",
    "receive",
)
"""Receives a tar stream with checksums on stdin: arguments are the target folder, then the entries that
appear in it when all is well, in this order. Needs sh, tar, sha256sum (GNU or busybox)."""


T = TypeVar("T")

Gone = Callable[[str], str | None]
"""Says of a pod why it no longer runs, None if it does or nobody can tell."""


class CopyError(RunError):
    """A copy did not arrive."""


class CopyBrokenError(Exception):
    """This attempt failed; another one may not.

    Args:
        why: What failed.
        code: Exit code if there is no other attempt.
        connected: Whether the other side had begun.
        may_pass: Whether the connection is the cause, so that attempts are made until the deadline.
    """

    def __init__(self, why: str, code: int, connected: bool, may_pass: bool = False) -> None:
        super().__init__(why)
        self.code, self.connected = code, connected
        self.may_pass = may_pass or not connected


def send(
    streams: Streams, argv: Sequence[str], pod: str, files: Sequence[Item], deadline: float, hopeless: Gone
) -> Packed:
    """Send files to another pod.

    Args:
        streams: Opens the stream.
        argv: `kubectl exec` of RECEIVE with the target folder.
        pod: Name of the pod, for messages.
        files: What to send; a top-level entry that should appear last is named last.
        deadline: Until when (monotonic) a pod that cannot be reached is tried again.
        hopeless: Says why no other try can reach the pod; then none is made.

    Raises:
        CopyError: it did not arrive whole (exit code 74), or the pod could not be reached (69).
    """
    entries = list(dict.fromkeys(item.name.split("/", 1)[0] for item in files))
    return persist(
        lambda: _send_once(streams, (*argv, *entries), pod, files, hopeless), f"copy to {pod}", deadline
    )


def collect(
    streams: Streams,
    argv: Sequence[str],
    pod: str,
    target: Path,
    deadline: float,
    gone: Gone,
    taken: Collection[str] = (),
) -> list[str]:
    """Bring the files here that `dglrun pack` writes on another pod; returns their names.

    Args:
        streams: Opens the stream.
        argv: `kubectl exec` of `dglrun pack`.
        pod: Name of the pod.
        target: Folder that takes the files.
        deadline: Until when (monotonic) it is tried again, whatever breaks it but the files themselves.
        gone: Says why the pod no longer runs; then no other try is made.
        taken: Names in the target that belong to others.

    Raises:
        CopyError: as `send`.
        NameTakenError: a name is one of those taken.
        WriteError: a file cannot be written here; tells a full disk by its code.
    """
    return persist(
        lambda: _collect_once(streams, argv, pod, target, gone, taken), f"copy from {pod}", deadline
    )


def persist(once: Callable[[], T], what: str, deadline: float) -> T:
    """Try again: files that did not arrive right ATTEMPTS times, a connection until the deadline.

    Args:
        once: One attempt; raises CopyBrokenError if another one is worth it.
        what: Is copied, for messages.
        deadline: Until when (monotonic).

    Raises:
        CopyError: all attempts have failed.
    """
    attempts, pauses = 0, iter((*BACKOFF_SECONDS, *[BACKOFF_SECONDS[-1]] * 10_000))
    while True:
        try:
            return once()
        except CopyBrokenError as broken:
            attempts += broken.connected
            is_late = not broken.may_pass or time.monotonic() > deadline
            if is_late and (attempts >= ATTEMPTS or not broken.connected):
                raise CopyError(f"{what} failed, attempt {attempts or 1}: {broken}", broken.code) from broken
            print(f"dglrun: {what} failed and is begun again: {broken}", flush=True)
            time.sleep(next(pauses))
        except PackError as error:
            raise CopyError(f"{what} failed: {error}", exitcodes.IO) from error


def _send_once(
    streams: Streams, argv: Sequence[str], pod: str, files: Sequence[Item], hopeless: Gone
) -> Packed:
    with streams.open(argv) as process, _Watchdog(process) as watchdog:
        packed = None
        try:
            packed = pack(files, watchdog.watch(process.stdin))
            process.stdin.close()
        except BrokenPipeError:
            pass  # the answer says why
        stdout, stderr = streams.finish(process)
    lines = stdout.decode(errors="replace").splitlines()
    if process.returncode == 0 and "whole" in lines and packed:
        if f"sums {packed.digest}  -" not in lines:
            raise CopyBrokenError(f"checksum of the list of checksums differs: {lines}", exitcodes.IO, True)
        return packed
    error = stderr.decode(errors="replace")
    if "ready" not in lines and not watchdog.has_bitten:
        if reason := hopeless(pod):
            raise CopyError(f"copy to {pod} failed: {reason}", exitcodes.UNAVAILABLE)
        if has_reached(process.returncode, error):
            said = _said(lines, error)
            raise CopyError(f"kubectl exec failed with {process.returncode}: {said}", exitcodes.UNAVAILABLE)
    raise _broken(process.returncode, lines, error, watchdog)


def _said(lines: list[str], stderr: str) -> str:
    return " ".join([*(line for line in lines if line != "ready"), stderr.strip()]).strip()


def _broken(code: int, lines: list[str], stderr: str, watchdog: "_Watchdog") -> CopyBrokenError:
    connected = "ready" in lines
    if watchdog.has_bitten:
        return CopyBrokenError(
            f"no byte was taken for {STALL_SECONDS:.0f} s", exitcodes.UNAVAILABLE, connected
        )
    said = _said(lines, stderr) or f"the stream broke (kubectl: {code})"
    return CopyBrokenError(said, exitcodes.IO if connected else exitcodes.UNAVAILABLE, connected)


def _collect_once(
    streams: Streams, argv: Sequence[str], pod: str, target: Path, gone: Gone, taken: Collection[str]
) -> list[str]:
    found, trouble = list[str](), None
    with streams.open(argv) as process, _Watchdog(process) as watchdog:
        process.stdin.close()
        try:
            found = unpack(watchdog.watch(process.stdout), target, taken)
        except PackError as error:
            trouble = error
            if process.stdout.read(1):  # what is no stream of ours might go on for long
                process.kill()
        stderr = streams.finish(process)[1].decode(errors="replace")
    said = [line for line in stderr.splitlines() if line.strip()]  # of a worker: with any characters
    for line in said:
        if line.startswith(NOTE):
            print(f"dglrun: note: {pod}: {shown(line.removeprefix(NOTE))}", flush=True)
    if trouble is None and process.returncode == 0:
        return found
    why = " ".join(shown(line) for line in said if not line.startswith(NOTE)) or str(trouble)
    if (trouble and not isinstance(trouble, CutShortError)) or PACK in why:
        raise CopyBrokenError(why, exitcodes.IO, connected=True)
    if reason := gone(pod):
        raise CopyError(f"copy from {pod} failed: {reason}", exitcodes.LOST)
    raise CopyBrokenError(why, exitcodes.UNAVAILABLE, watchdog.has_moved, may_pass=True)


class _Watchdog:
    """Kills a stream that makes no progress, so that no read or write waits for ever."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._moved = time.monotonic()
        self._done = threading.Event()
        self.has_bitten = self.has_moved = False

    def __enter__(self) -> "_Watchdog":
        threading.Thread(target=self._guard, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()

    def watch(self, file: IO[bytes]) -> IO[bytes]:
        """The same file; each read and write counts as progress."""
        return _Watched(file, self._move)  # type: ignore[return-value]

    def _move(self, size: int = 0) -> None:
        self._moved = time.monotonic()
        self.has_moved |= size > 0

    def _guard(self) -> None:
        while not self._done.wait(1.0):
            if time.monotonic() - self._moved > STALL_SECONDS:
                self.has_bitten = True
                self._process.kill()
                return


class _Watched:
    def __init__(self, file: IO[bytes], moved: Callable[[int], None]) -> None:
        self._file, self._moved = file, moved

    def read(self, size: int = -1) -> bytes:
        # What is there: a slow stream moves, too, before so many bytes have come.
        block: bytes = self._file.read1(size)  # type: ignore[attr-defined]
        self._moved(len(block))
        return block

    def write(self, block: bytes) -> int:
        self._moved(0)
        done = self._file.write(block)
        self._moved(done)
        return done
