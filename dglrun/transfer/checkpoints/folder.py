"""A rank's folder as a keeper sees it: which files are whole, and which have changed."""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

UNFINISHED = (".tmp", ".part")
"""Endings of names that never travel, of files and of folders: they are renamed when they are whole."""
RANKS_FILE = "ranks.json"
"""Lies beside the folders of the ranks: of how many ranks they are."""
OWN = ".dglrun-"
"""Begins the names that dglrun gives to its own files."""


@dataclass(frozen=True)
class Version:
    """What tells one content of a file from another without reading it."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, state: os.stat_result) -> "Version":
        """That of a file as the kernel describes it."""
        return cls(state.st_size, state.st_mtime_ns, state.st_ino)


def is_whole(name: str) -> bool:
    """Whether a file of this name (relative, with `/`) counts as whole.

    A bucket may have names that would lead out of the rank's folder, or are those of two files there: no rank
    has left them.
    """
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return False
    is_unfinished = any(part.endswith(UNFINISHED) or part.startswith(OWN) for part in parts)
    return not is_unfinished and not parts[0].startswith(".")


def whole_files(folder: Path) -> dict[str, Version]:
    """The whole files below a folder by their names, those that were written first in front.

    What is written last into a folder of files so arrives last, too. Links are no files.
    """
    found = {name: version for name, version in _files(folder) if is_whole(name)}
    return dict(sorted(found.items(), key=lambda each: each[1].mtime_ns))


def all_whole_files(folders: Mapping[str, str]) -> dict[str, Version]:
    """Those of several folders, each name behind that of its folder."""
    found = {
        f"{rank}/{name}": version
        for rank, folder in folders.items()
        for name, version in whole_files(Path(folder)).items()
    }
    return dict(sorted(found.items(), key=lambda each: each[1].mtime_ns))


def has_kept(names: Iterable[str]) -> bool:
    """Whether one of these files of a place is a whole one of a rank."""
    return any(rest and is_whole(rest) for _rank, _, rest in (name.partition("/") for name in names))


def in_the_way(name: str, others: Mapping[str, object]) -> list[str]:
    """Those of `others` that cannot be beside `name`: files where it needs a folder, or below it."""
    above = {str(parent) for parent in PurePosixPath(name).parents}
    return [other for other in others if other in above or other.startswith(f"{name}/")]


def _files(folder: Path) -> Iterator[tuple[str, Version]]:
    for path, _folders, files in os.walk(folder):
        for name in files:
            file = Path(path, name)
            try:
                state = file.lstat()
            except OSError:  # removed meanwhile
                continue
            if stat.S_ISREG(state.st_mode):
                yield file.relative_to(folder).as_posix(), Version.of(state)
