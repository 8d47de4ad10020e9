"""Where a receiver keeps files until all are whole: a folder beside them, one receiver at a time.

The files lie there sparse and under their names; they appear in the target folder by renaming, an earlier
entry of the same name going first. Every step may be cut off and begun again.
"""

import contextlib
import ctypes
import errno
import fcntl
import functools
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from dglrun.contract import exitcodes
from dglrun.errors import RunError
from dglrun.transfer.pull import placing
from dglrun.transfer.pull.manifest import STAGING, SUMS, Block, FileEntry, Manifest
from dglrun.transfer.pull.sums import Journal

_FULL = (errno.ENOSPC, errno.EDQUOT)
_TAKE_OVER_SECONDS = 30.0
_MARGIN = 1 << 20
"""Bytes for the file system's own records."""
_REGION = 8 << 20
"""Bytes that are reserved at a time, so that little of a hole is."""
_KEEP_SIZE = 1
_NOT_RESERVED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINTR)


class Staging:
    """The folder of one transfer.

    Args:
        target: Where the files will appear; made if missing.
        receiver: The pod that receives; others that share the target have a folder of their own.

    Attributes:
        folder: Holds files, journal and lock.
        journal: What has come; None before `begin`.

    Raises:
        RunError: the folder cannot be written.
    """

    def __init__(self, target: Path, receiver: str = "") -> None:
        self.target = target
        self.folder = target / (f"{STAGING}-{receiver}" if receiver else STAGING)
        self._files = self.folder / "files"
        try:
            self._files.mkdir(parents=True, exist_ok=True)
            self._lock = _take_over(self.folder / "lock")
        except OSError as error:
            raise write_error(self.folder, error) from error
        self.journal: Journal | None = None

    def begin(self, manifest: Manifest) -> Journal:
        """Take up an earlier receiver's work if it was about the same files; make sure that there is room.

        Raises:
            RunError: the folder cannot be written, or the disk has no room.
        """
        try:
            self._take_up_sums()
            journal = self.journal = self._resume(manifest) or self._begin_anew(manifest)
            lacking = journal.lacking_bytes()
        except OSError as error:
            raise write_error(self.folder, error) from error
        require_room(self.folder, lacking, len(manifest.files), self.target)
        return journal

    def path(self, name: str) -> Path:
        """Where a file lies until all are whole."""
        return self._files / name

    def place(self, manifest: Manifest) -> None:
        """Let the entries appear, each as a whole, the last one of the manifest last.

        What others have put beside them comes before, folders first, so that a JSON finds what it names.

        Raises:
            RunError: the target folder cannot be written.
        """
        with _naming(self._files):
            here = {path.name: path.is_dir() for path in self._files.iterdir()}
        beside = sorted(here.keys() - {*manifest.entries}, key=lambda entry: (not here[entry], entry))
        waiting = [*beside, *(entry for entry in manifest.entries if entry in here)]
        for entry in waiting:  # first all of them: nobody is to see an old entry beside a new one
            with _naming(self.target / entry):
                placing.remove(self.target / entry)
        for entry in waiting:
            with _naming(self.target / entry):
                placing.move(self._files / entry, self.target / entry)

    def end(self, keeps_sums: bool) -> None:
        """Leave nothing behind but, if wanted, the sums."""
        with _naming(self.target):
            if keeps_sums:
                (self.folder / "journal").replace(self.target / SUMS)
            self.clear()

    def clear(self) -> None:
        """Remove all that has come: it will not be taken up again."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        """Let another receiver have the folder."""
        if self.journal:
            self.journal.close()
        os.close(self._lock)

    def _take_up_sums(self) -> None:
        """An earlier receiver may have been killed when all was done, and before its owner knew."""
        with contextlib.suppress(OSError):
            (self.folder / "journal").hardlink_to(self.target / SUMS)

    def _has_all(self, manifest: Manifest, journal: Journal) -> bool:
        """Whether each file is here or, when all are whole, has been put into its place already."""
        is_whole = next(journal.lacking(), None) is None
        return all(
            _size(self.path(file.name)) == file.size or (is_whole and _is(self.target / file.name, file))
            for file in manifest.files
        )

    def _resume(self, manifest: Manifest) -> Journal | None:
        """The journal of an earlier receiver of the same files; None: there is none."""
        try:
            journal = Journal(self.folder / "journal", manifest)
        except FileNotFoundError:
            return None
        if journal.is_resumed and self._has_all(manifest, journal):
            return journal
        journal.close()
        return None

    def _begin_anew(self, manifest: Manifest) -> Journal:
        """Empty files, and then a new journal: none may ever speak of files that are another manifest's."""
        (self.folder / "journal").unlink(missing_ok=True)
        shutil.rmtree(self._files)
        self._files.mkdir()
        for file in manifest.files:
            path = self.path(file.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as made:
                made.truncate(file.size)
        return Journal.create(self.folder / "journal", manifest)


class OpenFile:
    """The file that a thread writes at the moment: blocks come file after file.

    Args:
        staging: Where.
        manifest: Its files.
    """

    def __init__(self, staging: Staging, manifest: Manifest) -> None:
        self._staging, self._manifest = staging, manifest
        self._at, self._file, self._reserved = -1, -1, -1

    def write(self, block: Block, content: memoryview) -> None:
        """Write a block.

        Raises:
            RunError: it cannot be written; names the file as it will be called.
        """
        name = self._manifest.files[block.file].name
        with _naming(self._staging.target / name):
            if self._at != block.file:
                self.close()
                self._file = os.open(self._staging.path(name), os.O_WRONLY | os.O_CLOEXEC)
                self._at, self._reserved = block.file, -1
            offset, done = self._manifest.offset(block), 0
            self._reserve(offset)
            while done < len(content):
                done += os.pwrite(self._file, content[done:], offset + done)

    def _reserve(self, offset: int) -> None:
        """Reserve the region about to be written: without, ext4 takes twice the CPU for a large file."""
        region = offset // _REGION
        if region != self._reserved:
            begin, size = region * _REGION, self._manifest.files[self._at].size
            _reserve(self._file, begin, min(_REGION, size - begin))
            self._reserved = region

    def close(self) -> None:
        """Close the file; a network's file system may say only now that it has no room.

        Raises:
            RunError: so it is; names the file.
        """
        # Forgotten first: after a close that failed the number may already be another thread's file.
        file, at, self._file, self._at = self._file, self._at, -1, -1
        if file >= 0:
            with _naming(self._staging.target / self._manifest.files[at].name):
                os.close(file)


def set_times(staging: Staging, manifest: Manifest) -> None:
    """Give the files their times of modification, by which their sums are known again."""
    for file in manifest.files:
        path = staging.path(file.name)
        with _naming(staging.target / file.name):
            if path.exists():  # else it is in its place
                os.utime(path, ns=(file.mtime, file.mtime))


def require_room(folder: Path, size: int, files: int, target: Path) -> None:
    """Fail before anything comes, not in the middle.

    Args:
        folder: Takes it.
        size: Bytes of it; of none nothing is asked.
        files: How many it is of, for the message.
        target: Where they will appear, for the message.

    Raises:
        RunError: the disk has no room.
    """
    state = os.statvfs(folder)
    free = state.f_bavail * state.f_frsize
    if state.f_blocks and size and size + _MARGIN > free:  # without blocks it does not say how large it is
        what = f"expected {size + _MARGIN} bytes free for {files} files, got {free}"
        raise RunError(f"{target}: {what}", exitcodes.FULL)


def write_error(path: Path, error: OSError) -> RunError:
    """What cannot be written here; a full disk has an exit code of its own."""
    code = exitcodes.FULL if error.errno in _FULL else exitcodes.IO
    return RunError(f"{path}: cannot be written: {error.strerror or error}", code)


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise write_error(path, error) from error


def _reserve(file: int, offset: int, size: int) -> None:
    """fallocate(2), which the C library does not replace by writing where a file system lacks it.

    Python has only posix_fallocate(3), which does, over what other threads have written.
    """
    call = getattr(_libc(), "fallocate", None)
    if call and call(file, _KEEP_SIZE, ctypes.c_int64(offset), ctypes.c_int64(size)) != 0:
        code = ctypes.get_errno()
        if code not in _NOT_RESERVED:
            raise OSError(code, os.strerror(code))


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _is(path: Path, file: FileEntry) -> bool:
    try:
        state = path.stat()
    except OSError:
        return False
    return (state.st_size, state.st_mtime_ns) == (file.size, file.mtime)


def _take_over(path: Path) -> int:
    """Lock the folder; a receiver of this pod that still has it belongs to an earlier start, and is ended.

    What it has written counts: its journal says so. A file system without locks has one receiver at a time by
    the owner's care alone.
    """
    lock, own = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), socket.gethostname()
    deadline = time.monotonic() + _TAKE_OVER_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            # It holds the lock, so the number is nobody else's; on a shared volume it may be another pod's.
            pod, _, pid = os.pread(lock, 400, 0).decode(errors="replace").strip().partition(" ")
            if pod == own and pid.isdigit() and int(pid) != os.getpid():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.02)
        except OSError:
            break
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{own} {os.getpid()}".encode(), 0)
    return lock
