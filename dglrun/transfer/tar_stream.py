"""Files as a tar stream that carries its own checksums; `dglrun pack DIR` writes one to stdout.

The sums come last, under the name SUMS, so that each file is read once. There are two other ends: `RECEIVE`
in dglrun.transfer.copy, a shell with tar and sha256sum, which takes a partition's files and needs names that
fit on a line; and `unpack` here, which takes an output folder with any names that Linux knows.
"""

import errno
import hashlib
import os
import shutil
import tarfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from dglrun.agent import folder_mark
from dglrun.contract import exitcodes
from dglrun.errors import RunError

SUMS = ".dglrun-sums"
STAGING = ".dglrun-incoming"
SHARED = folder_mark.PREFIX
"""Begins the name of the file by which a worker notices that its output folder is the launcher's own."""
BLOCK = 1 << 20
_OURS = (SUMS, STAGING, SHARED)
_FULL = (errno.ENOSPC, errno.EDQUOT)

PACK = "dglrun pack: "
"""Begins each line that `dglrun pack` says on stderr."""
NOTE = f"{PACK}note: "

LINES, ZEROS = "\n", "\0"
"""What ends an entry of the sums: sha256sum(1) needs lines and simple names, a zero byte fits any name."""


class PackError(Exception):
    """A file cannot be packed, or a stream is not whole; names the file."""


class CutShortError(PackError):
    """The stream has ended too soon, or is none of ours."""


class NameTakenError(RunError):
    """A stream has a name that belongs to another worker; nothing of it has appeared."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{shown(name)}: the name belongs to another worker", exitcodes.IO)


class WriteError(RunError):
    """A received file cannot be written here; names it, and has an exit code of its own for a full disk."""

    def __init__(self, path: Path, error: OSError) -> None:
        code = exitcodes.FULL if error.errno in _FULL else exitcodes.IO
        super().__init__(f"{shown(str(path))}: cannot be written: {error.strerror}", code)


class Item(NamedTuple):
    """One file to pack: where it lies, its name in the stream (relative, with `/`), a link's target."""

    path: Path
    name: str
    link: str = ""


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
            if not name.startswith(_OURS):
                found.append(_item(file, str(PurePosixPath(under) / file.relative_to(folder).as_posix())))
        folders[:] = [name for name in folders if not name.startswith(STAGING)]
    return found


def output_items(folder: Path, unless: str = "") -> tuple[list[Item], list[str]]:
    """The files of an output folder with any names, and notes on what is left out; no link is followed.

    A link to something within the folder is packed as a link. Other links, pipes and sockets are left out.

    Args:
        folder: Which; if it is missing it has no files.
        unless: Name of a file by which the receiver marks its own folder: of that nothing is packed.
    """
    if unless and (folder / unless).exists():
        return [], [f"{folder} is the launcher's own output folder: nothing has to be copied"]
    found, links, notes = list[Item](), list[Item](), list[str]()
    for path, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted([*files, *(each for each in folders if Path(path, each).is_symlink())]):
            file = Path(path, name)
            item = Item(file, file.relative_to(folder).as_posix())
            if name.startswith(_OURS):
                continue
            if file.is_symlink():
                target = os.readlink(file)  # noqa: PTH115 - a Path would lose a trailing slash
                is_kept = _leads_inside(item.name, target) and file.exists()
                links += [item._replace(link=target)] if is_kept else []
                notes += [] if is_kept else [f"not copied: {shown(str(file))} is a link to {shown(target)}"]
            elif file.is_file():
                found.append(item)
            else:
                notes.append(f"not copied: {shown(str(file))} is no file")
        folders[:] = [name for name in folders if not name.startswith(STAGING)]
    return [*found, *links], notes


def shown(name: str) -> str:
    """A file's name as it fits into one line of a log: quoted where it cannot be printed."""
    return name if name.isprintable() else repr(name)


def pack(files: Iterable[Item], stream: IO[bytes], end: str = LINES) -> Packed:
    """Write files and their sums as a tar stream.

    Args:
        files: What to pack; links have no sum.
        stream: Takes it.
        end: Of each entry in the sums (LINES or ZEROS).

    Raises:
        PackError: a file is gone, cannot be read, or changed meanwhile.
        BrokenPipeError: the reader is gone.
    """
    sums, count, size = b"", 0, 0
    with _tar(stream, "w|") as tar:
        tar.copybufsize = BLOCK  # type: ignore[attr-defined]
        for item in files:
            if item.link:
                _add_link(tar, item)
                continue
            digest, length = _add(tar, item)
            # A file named - would be stdin to sha256sum.
            sums += os.fsencode(f"{digest}  ./{item.name}{end}")
            count, size = count + 1, size + length
        info = tarfile.TarInfo(SUMS)
        info.size = len(sums)
        tar.addfile(info, BytesIO(sums))
    return Packed(count, size, hashlib.sha256(sums).hexdigest())


def unpack(stream: IO[bytes], target: Path, taken: Collection[str] = ()) -> list[str]:
    """Read a stream with ZEROS into a folder; nothing appears there unless all of it is right.

    Args:
        stream: What a worker sends.
        target: The folder.
        taken: Names directly in the folder that belong to others.

    Returns:
        Names of the files and links, relative to the folder, sorted.

    Raises:
        PackError: the stream is cut short, a checksum differs, or a name is none that a worker may send.
        NameTakenError: a name is one of those taken, or lies below it.
        WriteError: a file cannot be written here.
    """
    staging = target / STAGING
    shutil.rmtree(staging, ignore_errors=True)
    with _writing(target):
        staging.mkdir(parents=True)
    try:
        found, links, sums = _extract(stream, staging, target, taken)
        _compare(found, sums)
        _place_links(links, staging, target)
        _commit(staging, target)
    except (tarfile.TarError, EOFError) as error:
        raise CutShortError(f"the stream is not whole: {error}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return sorted((*found, *links))


def _tar(stream: IO[bytes], mode: str) -> tarfile.TarFile:
    """A stream whose names may have any bytes."""
    return tarfile.open(  # type: ignore[call-overload,no-any-return]
        fileobj=stream,
        mode=mode,
        format=tarfile.PAX_FORMAT,
        bufsize=BLOCK,
        encoding="utf-8",
        errors="surrogateescape",
    )


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


def _add_link(tar: tarfile.TarFile, item: Item) -> None:
    info = tarfile.TarInfo(item.name)
    info.type, info.linkname = tarfile.SYMTYPE, item.link
    tar.addfile(info)


def _leads_inside(name: str, target: str) -> bool:
    """Whether a link stays within the folder, whatever other such links lie on its way.

    So `..` counts at the start only, where no link comes before it, and no higher than the folder itself.
    """
    parts, depth = PurePosixPath(target).parts, len(PurePosixPath(name).parts) - 1
    up = next((at for at, part in enumerate(parts) if part != ".."), len(parts))
    return not target.startswith("/") and up <= depth and ".." not in parts[up:]


def _extract(
    stream: IO[bytes], staging: Path, target: Path, taken: Collection[str]
) -> tuple[dict[str, str], dict[str, str], bytes | None]:
    """Write what a stream has; returns the sums of the files, the targets of the links, the stream's sums."""
    found, links, sums = dict[str, str](), dict[str, str](), None
    with _tar(stream, "r|") as tar:
        for member in tar:
            if not _is_inside(member.name):
                raise PackError(f"{member.name!r}: expected a file within the folder")
            if _is_ours(member.name):
                raise PackError(f"{member.name!r}: expected a name that is not dglrun's own")
            if PurePosixPath(member.name).parts[0] in taken:
                raise NameTakenError(member.name)
            if member.issym():
                links[member.name] = member.linkname
                continue
            content = tar.extractfile(member)
            if content is None:
                raise PackError(f"{member.name!r}: expected a file")
            if member.name == SUMS:
                sums = content.read()
                continue
            found[member.name] = _save(content, staging / member.name, target / member.name)
    return found, links, sums


def _save(content: IO[bytes], path: Path, final: Path) -> str:
    """Write one file; its SHA-256."""
    hashing = _Hashing(content)
    with _writing(final):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as out:
            shutil.copyfileobj(hashing, out, BLOCK)
    return hashing.hash.hexdigest()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WriteError(path, error) from error


def _is_inside(name: str) -> bool:
    """Whether a name stays within the folder, written in the one way in which names can be compared."""
    path = PurePosixPath(name)
    is_plain = bool(path.parts) and str(path) == name and "\0" not in name
    return is_plain and not path.is_absolute() and ".." not in path.parts


def _is_ours(name: str) -> bool:
    """Whether a file of this name in the target would be taken for one of dglrun's own."""
    first, _, rest = name.partition("/")
    return first.startswith(STAGING) or (not rest and name != SUMS and first.startswith(_OURS))


def _compare(found: dict[str, str], sums: bytes | None) -> None:
    if sums is None:
        raise CutShortError("the stream is not whole: its checksums are missing")
    entries = os.fsdecode(sums).split(ZEROS)[:-1]
    wanted = {entry[66:].removeprefix("./"): entry[:64] for entry in entries}
    wrong = [name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)]
    if wrong:
        raise PackError(f"checksum differs: {', '.join(map(shown, sorted(wrong)[:5]))}")


def _place_links(links: dict[str, str], staging: Path, target: Path) -> None:
    """Last: no file is written through a link, and no link is placed through another one."""
    for name, to in links.items():
        if any(str(parent) in links for parent in PurePosixPath(name).parents):
            raise PackError(f"{name!r}: expected a folder above it, found a link")
        if not _leads_inside(name, to):
            raise PackError(f"{name!r}: expected a link to something within the folder, found {to!r}")
        with _writing(target / name):
            (staging / name).parent.mkdir(parents=True, exist_ok=True)
            (staging / name).symlink_to(to)


def _commit(staging: Path, target: Path) -> None:
    for entry in sorted(staging.iterdir()):
        place = target / entry.name
        with _writing(place):
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)
            elif entry.is_dir() and not entry.is_symlink():
                place.unlink(missing_ok=True)
            entry.replace(place)
