"""Putting an entry into its place, in a folder where receivers of other pods may do the same."""

import contextlib
import errno
import secrets
import shutil
from pathlib import Path

from dglrun.transfer.pull.manifest import STAGING

_TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR, errno.ENOTDIR)
_ATTEMPTS = 100
"""Another receiver may have placed the same entry since it was removed, once; any other does it once, too."""


def move(source: Path, target: Path) -> None:
    """Rename a file, link or folder, over whatever has its name.

    Raises:
        OSError: it cannot be renamed.
    """
    for attempt in range(_ATTEMPTS):
        try:
            source.rename(target)
        except OSError as error:
            if error.errno not in _TAKEN or attempt == _ATTEMPTS - 1:
                raise
            remove(target)
        else:
            return


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all that is in it, if it is there.

    A folder goes under another name first: what somebody else places there meanwhile is not emptied.

    Raises:
        OSError: it cannot be removed.
    """
    if path.is_dir() and not path.is_symlink():
        aside = path.with_name(f"{STAGING}-old-{secrets.token_hex(8)}")
        with contextlib.suppress(FileNotFoundError):  # somebody else has removed it
            path.rename(aside)
            _remove_alone(aside)
    else:
        with contextlib.suppress(IsADirectoryError):  # somebody else has placed one meanwhile
            path.unlink(missing_ok=True)


def _remove_alone(path: Path) -> None:
    """Remove what nobody else knows by this name."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
