"""Which files a receiver takes: names, sizes and times, cut into blocks of one size."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import NamedTuple

from dglrun.contract import exitcodes
from dglrun.errors import RunError

BLOCK = 1 << 19
"""Bytes of a block: what a broken connection may cost to send again, for each request on its way."""


STAGING = ".dglrun-incoming"
"""The folder in the target folder where files are until all are whole."""
SUMS = ".dglrun-sums"
"""The file in the target folder that has the sums of all blocks."""


class ManifestError(ValueError):
    """The text is no manifest; says what was expected."""


class Block(NamedTuple):
    """One block of one file: both count from 0."""

    file: int
    at: int


@dataclass(frozen=True)
class FileEntry:
    """One file.

    Attributes:
        name: Where it goes, relative to the target folder, with `/`.
        size: Bytes.
        mtime: Its time of modification in nanoseconds, which the receiver keeps.
    """

    name: str
    size: int
    mtime: int


@dataclass(frozen=True)
class Manifest:
    """The files of one receiver, in the order in which they are sent.

    Attributes:
        files: The files; the last one's top-level entry appears last.
        block: Bytes of each block but the last one of a file.
    """

    files: tuple[FileEntry, ...]
    block: int = BLOCK

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    @property
    def entries(self) -> tuple[str, ...]:
        """Names at the top of the target folder, in the order in which they appear there."""
        return tuple(dict.fromkeys(file.name.split("/", 1)[0] for file in self.files))

    @cached_property
    def first_blocks(self) -> tuple[int, ...]:
        """For each file the number of its first block among those of all files, and the number of all."""
        numbers = [0]
        for file in self.files:
            numbers.append(numbers[-1] + -(-file.size // self.block))
        return tuple(numbers)

    def number(self, block: Block) -> int:
        """The place of a block among those of all files, from 0."""
        return self.first_blocks[block.file] + block.at

    def blocks(self) -> Iterator[Block]:
        """All blocks, in order."""
        for index in range(len(self.files)):
            for block in range(self.first_blocks[index + 1] - self.first_blocks[index]):
                yield Block(index, block)

    def has(self, block: Block) -> bool:
        """Whether there is such a block; asked of numbers that come from elsewhere."""
        return (
            0 <= block.file < len(self.files)
            and 0 <= block.at < self.first_blocks[block.file + 1] - self.first_blocks[block.file]
        )

    def offset(self, block: Block) -> int:
        """Where a block begins in its file."""
        return block.at * self.block

    def length(self, block: Block) -> int:
        """Bytes of a block."""
        return min(self.block, self.files[block.file].size - self.offset(block))


def of_files(named: Iterable[tuple[str, os.PathLike[str]]], block: int = BLOCK) -> Manifest:
    """The manifest of files as they are now.

    Args:
        named: For each file its name at the receiver, and where it lies here.
        block: Bytes of a block.

    Raises:
        RunError: a file cannot be read.
    """
    return Manifest(tuple(_entry(name, path) for name, path in named), block)


def encode(manifest: Manifest) -> str:
    """Write a manifest as one line of JSON; equal manifests give equal lines."""
    return json.dumps(asdict(manifest))


def decode(text: str | bytes) -> Manifest:
    """Read what `encode` wrote.

    Raises:
        ManifestError: it is something else, or a name leads out of the target folder, or into what is the
            receiver's own, or is written in another way than the path's own.
    """
    try:
        raw = json.loads(text)
        files = tuple(FileEntry(**each) for each in raw["files"])
        block = int(raw["block"])
    except (ValueError, TypeError, KeyError) as error:
        raise ManifestError(f"expected a manifest as one JSON line: {error}") from error
    for file in files:
        path = PurePosixPath(file.name)
        is_plain = str(path) == file.name and path.parts and not path.is_absolute() and ".." not in path.parts
        if not is_plain or path.parts[0].startswith((STAGING, SUMS)):
            raise ManifestError(f"expected the name of a file within the target folder, got {file.name!r}")
    if block < 1:
        raise ManifestError(f"expected blocks of at least 1 byte, got {block}")
    return Manifest(files, block)


def _entry(name: str, path: os.PathLike[str]) -> FileEntry:
    try:
        state = os.stat(path)  # noqa: PTH116 - a PathLike
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror}", exitcodes.IO) from error
    return FileEntry(name, state.st_size, state.st_mtime_ns)
