"""Files as a tar stream that carries its own checksums; `dglrun pack DIR` writes one to stdout.

The sums come last, under the name SUMS in the format of sha256sum(1), so that each file is read once. The
other end is `RECEIVE` in dglrun.transfer.copy (a shell with tar and sha256sum) or `unpack` here.
"""

import hashlib
import os
import shutil
import tarfile
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

SUMS = ".dglrun-sums"
STAGING = ".dglrun-incoming"
_BLOCK = 1 << 20


class PackError(Exception):
    """A file cannot be packed, or a stream is not whole; names the file."""


class Item(NamedTuple):
    """One file to pack: where it lies and its name in the stream (relative, with `/`)."""

    path: Path
    name: str


class Packed(NamedTuple):
    """What was packed: number of files, their bytes, SHA-256 of the sums."""

    files: int
    size: int
    digest: str


def items(folder: Path, under: str = "") -> list[Item]:
    """All regular files below a folder, in order of their names; links are followed.

    Raises:
        PackError: something there is neither file nor folder, or its name cannot stand in a list of sums.
    """
    found = []
    for path, folders, files in os.walk(folder, followlinks=True):
        folders.sort()
        for name in sorted(files):
            file = Path(path, name)
            if not name.startswith((SUMS, STAGING)):
                found.append(_item(file, str(PurePosixPath(under) / file.relative_to(folder).as_posix())))
        folders[:] = [name for name in folders if not name.startswith(STAGING)]
    return found


def pack(files: Iterable[Item], stream: IO[bytes]) -> Packed:
    """Write files and their sums as a tar stream.

    Raises:
        PackError: a file is gone, cannot be read, or changed meanwhile.
        BrokenPipeError: the reader is gone.
    """
    sums, count, size = "", 0, 0
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT, bufsize=_BLOCK) as tar:
        tar.copybufsize = _BLOCK  # type: ignore[attr-defined]
        for item in files:
            digest, length = _add(tar, item)
            sums += f"{digest}  ./{item.name}\n"  # a file named - would be stdin to sha256sum
            count, size = count + 1, size + length
        info = tarfile.TarInfo(SUMS)
        info.size = len(sums.encode())
        tar.addfile(info, BytesIO(sums.encode()))
    return Packed(count, size, hashlib.sha256(sums.encode()).hexdigest())


def unpack(stream: IO[bytes], target: Path) -> list[str]:
    """Read a stream of `pack` into a folder; nothing appears there unless all of it is right.

    Returns:
        Names of the files, relative to the folder, sorted.

    Raises:
        PackError: the stream is cut short, or a checksum differs.
    """
    staging = target / STAGING
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    try:
        found, sums = _extract(stream, staging)
        _compare(found, sums)
        _commit(staging, target)
    except (tarfile.TarError, EOFError) as error:
        raise PackError(f"the stream is not whole: {error}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return sorted(found)


class _Hashing:
    """A file that is hashed as it is read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        block = self._file.read(size)
        self.hash.update(block)
        return block


def _item(path: Path, name: str) -> Item:
    if not path.is_file():
        raise PackError(f"{path}: expected a file, found something else")
    if any(bad in name for bad in "\n\r\\"):
        raise PackError(f"{path}: expected a name without line breaks and backslashes")
    return Item(path, name)


def _add(tar: tarfile.TarFile, item: Item) -> tuple[str, int]:
    try:
        with item.path.open("rb") as file:
            info = tarfile.TarInfo(item.name)
            state = os.fstat(file.fileno())
            info.size, info.mtime, info.mode = state.st_size, int(state.st_mtime), 0o644
            hashing = _Hashing(file)
            tar.addfile(info, hashing)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise PackError(f"{item.path}: cannot be read whole: {error}") from error
    return hashing.hash.hexdigest(), info.size


def _extract(stream: IO[bytes], staging: Path) -> tuple[dict[str, str], str | None]:
    found: dict[str, str] = {}
    sums = None
    with tarfile.open(fileobj=stream, mode="r|", bufsize=_BLOCK) as tar:
        for member in tar:
            content = tar.extractfile(member)
            if content is None or not _is_inside(member.name):
                raise PackError(f"{member.name!r}: expected a file within the folder")
            if member.name == SUMS:
                sums = content.read().decode()
                continue
            path = staging / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            hashing = _Hashing(content)
            with path.open("wb") as out:
                shutil.copyfileobj(hashing, out, _BLOCK)
            found[member.name] = hashing.hash.hexdigest()
    return found, sums


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts


def _compare(found: dict[str, str], sums: str | None) -> None:
    if sums is None:
        raise PackError("the stream is not whole: its checksums are missing")
    wanted = {line[66:].removeprefix("./"): line[:64] for line in sums.splitlines()}
    wrong = [name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)]
    if wrong:
        raise PackError(f"checksum differs: {', '.join(sorted(wrong)[:5])}")


def _commit(staging: Path, target: Path) -> None:
    for entry in sorted(staging.iterdir()):
        place = target / entry.name
        if place.is_dir():
            shutil.rmtree(place)
        entry.replace(place)
