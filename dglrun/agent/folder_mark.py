"""Whether two pods see one folder: by an empty file with a random name in it, never by what they mount.

One pod leaves the file, the other one looks for it by name: a name that was never asked for is in no cache of
a network's file system.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

PREFIX = ".dglrun-shared-"
"""Begins the names; files with such names are never copied."""


@contextlib.contextmanager
def marked(folder: Path, name: str) -> Iterator[bool]:
    """Within it the file lies in the folder; gives False where it cannot be written, so that nobody sees it.

    Args:
        folder: Where.
        name: Of the file; empty: none is wanted.
    """
    is_there = bool(name) and leave(folder, name)
    try:
        yield is_there
    finally:
        if is_there:
            remove(folder, name)


def put(folder: Path, name: str) -> None:
    """Leave the file.

    Raises:
        OSError: it cannot be written.
    """
    (folder / name).touch()


def leave(folder: Path, name: str) -> bool:
    """Leave the file; whether it could be written."""
    try:
        put(folder, name)
    except OSError:  # read-only, full, or away: what cannot be found out counts as not shared
        return False
    return True


def remove(folder: Path, name: str) -> None:
    """Remove the file if it is there."""
    with contextlib.suppress(OSError):
        (folder / name).unlink()


def is_seen(folder: Path, name: str) -> bool:
    """Whether the file is in the folder as this pod sees it."""
    try:
        return (folder / name).exists()
    except OSError:
        return False


def seen(folder: Path, beginning: str) -> tuple[str, ...]:
    """What follows `beginning` in the names of all files there that begin so, sorted.

    To be asked after `leave` in the same folder: its change makes a network's file system list it anew.
    """
    try:
        names = [path.name for path in folder.iterdir()]
    except OSError:
        return ()
    return tuple(sorted(name.removeprefix(beginning) for name in names if name.startswith(beginning)))
