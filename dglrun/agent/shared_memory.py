"""Shared-memory segments: which a run has left, and their removal."""

import contextlib
import os
import stat
from pathlib import Path


def names(folder: Path) -> frozenset[str]:
    """The segments that are there now; none where the folder is missing."""
    try:
        return frozenset(os.listdir(folder))  # noqa: PTH208 - names only
    except FileNotFoundError:
        return frozenset()


def remove_new(folder: Path, before: frozenset[str]) -> tuple[str, ...]:
    """Remove our own user's segments which were not there `before`; returns their names, sorted."""
    gone = []
    for name in sorted(names(folder) - before):
        path = folder / name
        with contextlib.suppress(OSError):
            info = path.lstat()
            if stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid():
                path.unlink()
                gone.append(name)
    return tuple(gone)
