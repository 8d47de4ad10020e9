"""Files that a receiver sees where their owner has them: it gets links, or nothing if that is its target."""

import contextlib
import time
from pathlib import Path

from dglrun.contract import exitcodes
from dglrun.errors import RunError
from dglrun.transfer.pull import placing
from dglrun.transfer.pull.manifest import STAGING, Manifest

SEEN_SECONDS = 90.0
"""A network's file system shows what another pod has written when its caches have expired: after a minute."""
_TICK = 0.1


def place(manifest: Manifest, folder: Path, target: Path, receiver: str) -> bool:
    """Let the entries of a manifest appear in the target as links to those in a folder.

    Args:
        manifest: The files, by the names that they have in both folders.
        folder: Where they lie.
        target: Where they are wanted; the folder itself needs nothing.
        receiver: Whose links these are: others may be making theirs in the same target.

    Returns:
        Whether all are there; False if the target cannot have links.

    Raises:
        RunError: a file is not seen as its owner has it.
    """
    _await(manifest, folder)
    if _is_same(folder, target):
        return True
    draft = target / f"{STAGING}-link-{receiver}"
    try:
        target.mkdir(parents=True, exist_ok=True)
        for entry in manifest.entries:
            if not _is_same(folder / entry, target / entry):
                draft.unlink(missing_ok=True)
                draft.symlink_to((folder / entry).absolute())
                placing.move(draft, target / entry)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        return False
    return True


def _await(manifest: Manifest, folder: Path) -> None:
    """Wait until each file has its size here."""
    deadline = time.monotonic() + SEEN_SECONDS
    for file in manifest.files:
        while (found := _size(folder / file.name)) != file.size:
            if time.monotonic() > deadline:
                got = "nothing" if found is None else f"{found} bytes"
                raise RunError(
                    f"{folder / file.name}: expected {file.size} bytes, as the owner sees them on the same "
                    f"volume, got {got}",
                    exitcodes.IO,
                )
            time.sleep(_TICK)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
