"""The SHA-256 of each block in a file: a receiver's journal, and later what spares the next hop its hashing.

A line of JSON (the manifest and the machine's boot), then 32 bytes for each block, zeros for those that are
lacking. A block's sum is written after the block, so what the file says is true however a process ends. A
machine that crashes may lose a block and keep its sum: after another boot the file counts for nothing.
"""

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from dglrun.transfer.pull import manifest as manifests
from dglrun.transfer.pull.manifest import Block, FileEntry, Manifest, ManifestError

SIZE = hashlib.sha256().digest_size
_LACKING = bytes(SIZE)
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_AT_A_TIME = 1 << 12


def sum_of(content: memoryview | bytes) -> bytes:
    """A block's sum, as it is sent before the block."""
    return hashlib.sha256(content).digest()


class Journal:
    """Which blocks of a manifest a receiver has; used by several threads, each for its own blocks.

    Args:
        path: The file, which is there; nothing is written into it before `note`.
        manifest: What is received.

    Attributes:
        is_resumed: Whether the file is about this manifest.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self._manifest = manifest
        head = _head(manifest)
        self._begin, self._file = len(head), os.open(path, os.O_RDWR | os.O_CLOEXEC)
        size = self._begin + SIZE * manifest.first_blocks[-1]
        self.is_resumed = os.pread(self._file, len(head), 0) == head and os.fstat(self._file).st_size == size

    @classmethod
    def create(cls, path: Path, manifest: Manifest) -> "Journal":
        """A journal of no block in a new file; the head comes last: without it the file says nothing."""
        head = _head(manifest)
        with path.open("xb") as file:
            file.truncate(len(head) + SIZE * manifest.first_blocks[-1])
            file.write(head)
        return cls(path, manifest)

    def note(self, block: Block, digest: bytes) -> None:
        """Note a block that has been written."""
        os.pwrite(self._file, digest, self._begin + SIZE * self._manifest.number(block))

    def lacking(self) -> Iterator[Block]:
        """The blocks that are not noted, in order; memory does not grow with their number.

        Raises:
            OSError: the file cannot be read.
        """
        blocks = self._manifest.blocks()
        for first in range(0, self._manifest.first_blocks[-1], _AT_A_TIME):
            count = min(_AT_A_TIME, self._manifest.first_blocks[-1] - first)
            sums = os.pread(self._file, SIZE * count, self._begin + SIZE * first)
            if len(sums) != SIZE * count:  # the blocks behind would be taken for others
                raise OSError(errno.EIO, f"expected {SIZE * count} bytes, got {len(sums)}")
            for at in range(0, len(sums), SIZE):
                block = next(blocks)
                if sums[at : at + SIZE] == _LACKING:
                    yield block

    def lacking_bytes(self) -> int:
        """Bytes of the blocks that are not noted."""
        return sum(self._manifest.length(block) for block in self.lacking())

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class StoredSums:
    """The sums of files that have been received into a folder, for whoever sends them on.

    Args:
        path: What a receiver's journal has become. Missing or strange: nothing is known.
        block: Bytes of a block; sums of other blocks are of no use.
    """

    def __init__(self, path: Path, block: int) -> None:
        self._file = -1
        self._known: dict[FileEntry, int] = {}
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, ManifestError):
            self._file = os.open(path, os.O_RDONLY)
            with open(self._file, "rb", closefd=False) as file:
                line = file.readline()
            manifest = manifests.decode(json.dumps(json.loads(line)["manifest"]))
            if manifest.block == block:
                firsts = manifest.first_blocks
                self._known = {
                    file: len(line) + SIZE * first
                    for file, first in zip(manifest.files, firsts[:-1], strict=True)
                }

    def find(self, file: FileEntry, index: int) -> bytes | None:
        """The sum of a block of a file with this name, size and time; None: unknown."""
        begin = self._known.get(file)
        if begin is None:
            return None
        found = os.pread(self._file, SIZE, begin + SIZE * index)
        return found if len(found) == SIZE and found != _LACKING else None

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _head(manifest: Manifest) -> bytes:
    try:
        boot = _BOOT.read_text().strip()
    except OSError:
        boot = ""
    text = {"boot": boot, "manifest": json.loads(manifests.encode(manifest))}
    return json.dumps(text).encode() + b"\n"
