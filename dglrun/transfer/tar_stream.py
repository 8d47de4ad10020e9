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
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from dglrun.agent import folder_mark
from dglrun.contract import exitcodes
from dglrun.errors import RunError

SUMS = ".dglrun-sums"
STAGING = ".dglrun-incoming"
ALIVE_SECONDS = 15.0
"""Between two signs that a folder is still being listed; whoever reads a stream waits for 60 s."""
SHARED = folder_mark.PREFIX
"""Begins the name of the file by which a worker notices that its output folder is the launcher's own."""
BLOCK = 1 << 20
_OURS = (SUMS, STAGING, SHARED)
_ALIVE = tarfile.TarInfo.create_pax_global_header({"comment": "the folder is being listed"})
_MOST_ALIVE = 200
"""Signs in one stream: tarfile reads each within the one before, and Python limits how deep that goes."""
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


def output_items(
    folder: Path, unless: str = "", alive: Callable[[], None] = lambda: None
) -> tuple[list[Item], list[str]]:
    """The files of an output folder with any names, and notes on what is left out; no link is followed.

    A link to something within the folder is packed as a link. Other links, pipes, sockets and folders that
    this account may not list, such as `lost+found`, are left out.

    Args:
        folder: Which; if it is missing it has no files.
        unless: Name of a file by which the receiver marks its own folder: of that nothing is packed.
        alive: Called for each entry, of which there may be millions.

    Raises:
        PackError: a folder cannot be listed for another reason than a missing right.
    """
    if unless and os.path.exists(folder / unless):  # noqa: PTH110 - a Path raises where a right is missing
        return [], [f"{shown(str(folder))} is the launcher's own output folder: nothing has to be copied"]
    listing = _OutputListing(folder, alive)
    listing.run()
    return [*listing.files, *listing.links], listing.notes


class Alive:
    """Shows whoever reads a stream that its folder is still being listed, before the first file of it.

    Args:
        stream: Gets a header without a meaning now and then, which `unpack` skips.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._told, self._count = stream, time.monotonic(), 0

    def __call__(self) -> None:
        """Go on; raises OSError if the stream has broken."""
        now = time.monotonic()
        if now - self._told >= ALIVE_SECONDS and self._count < _MOST_ALIVE:
            self._told, self._count = now, self._count + 1
            self._stream.write(_ALIVE)
            self._stream.flush()


class _OutputListing:
    """One walk through an output folder."""

    def __init__(self, folder: Path, alive: Callable[[], None]) -> None:
        self._folder, self._alive = folder, alive
        self.files, self.links, self.notes = list[Item](), list[Item](), list[str]()

    def run(self) -> None:
        """List everything, folder after folder; os.walk would say nothing before a large one is read."""
        waiting = [""]
        while waiting:
            waiting += reversed(self._below(waiting.pop()))

    def _below(self, name: str) -> list[str]:
        """Take what lies directly in a folder; the names of the folders there."""
        folders = list[str]()
        for entry in self._entries(name):
            path = f"{name}/{entry.name}" if name else entry.name
            try:
                if entry.is_dir(follow_symlinks=False):
                    folders += [] if entry.name.startswith(STAGING) else [path]
                elif not entry.name.startswith(_OURS):
                    self._take(entry, Item(Path(entry.path), path))
            except OSError as error:
                self._leave_out(entry.path, error)
        return folders

    def _entries(self, name: str) -> list["os.DirEntry[str]"]:
        found = list[os.DirEntry[str]]()
        for entry in self._scanned(name):
            found.append(entry)
            self._alive()
        return sorted(found, key=lambda entry: entry.name)

    def _scanned(self, name: str) -> Iterator["os.DirEntry[str]"]:
        path = self._folder / name
        try:
            with os.scandir(path) as entries:
                yield from entries
        except OSError as error:
            if name or not isinstance(error, FileNotFoundError | NotADirectoryError):
                self._leave_out(str(path), error)

    def _take(self, entry: "os.DirEntry[str]", item: Item) -> None:
        """Take a file, or a link that leads to something within the folder."""
        if entry.is_symlink():
            target = os.readlink(entry.path)  # noqa: PTH115 - a Path would lose a trailing slash
            if _leads_inside(item.name, target) and item.path.exists():
                self.links.append(item._replace(link=target))
            else:
                self.notes.append(f"not copied: {shown(entry.path)} is a link to {shown(target)}")
        elif entry.is_file(follow_symlinks=False):
            self.files.append(item)
        else:
            self.notes.append(f"not copied: {shown(entry.path)} is no file")

    def _leave_out(self, path: str, error: OSError) -> None:
        """Note what may not be read, or has gone; a disk that fails is no reason to go on without it.

        Raises:
            PackError: the latter.
        """
        what = f"{shown(path)}: cannot be read: {error.strerror or error}"
        if not isinstance(error, PermissionError | FileNotFoundError):
            raise PackError(what) from error
        self.notes.append(f"not copied: {what}")


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
        OSError: the stream has broken.
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


class _Source(_Hashing):
    """A file to pack: an error of its own is a PackError, so that any other is one of the stream."""

    def __init__(self, item: Item, file: IO[bytes]) -> None:
        super().__init__(file)
        self._item = item

    def read(self, size: int = -1) -> bytes:
        with _reading(self._item):
            block = super().read(size)
            if len(block) < size:
                raise OSError("unexpected end of data")
        return block


@contextmanager
def _reading(item: Item) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise PackError(f"{shown(str(item.path))}: cannot be read whole: {error}") from error


def _item(path: Path, name: str) -> Item:
    if not path.is_file():
        raise PackError(f"{path}: expected a file, found something else")
    if any(bad in name for bad in "\n\r\\"):
        raise PackError(f"{path}: expected a name without line breaks and backslashes")
    return Item(path, name)


def _add(tar: tarfile.TarFile, item: Item) -> tuple[str, int]:
    with _reading(item):
        file = item.path.open("rb")
    with file:
        info = tarfile.TarInfo(item.name)
        with _reading(item):
            state = os.fstat(file.fileno())
        info.size, info.mtime, info.mode = state.st_size, int(state.st_mtime), 0o644
        source = _Source(item, file)
        tar.addfile(info, source)
    return source.hash.hexdigest(), info.size


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
