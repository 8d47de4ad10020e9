"""Can an output be written? Asked before hours of work, without leaving a trace."""

import tempfile
from pathlib import Path

from dglrun.errors import UnwritableError


def require_folder(folder: Path) -> None:
    """Check that a folder can be made, or written into if it exists.

    Raises:
        UnwritableError: it cannot; names the folder and the reason.
    """
    try:
        place = next(each for each in (folder, *folder.absolute().parents) if each.exists())
        if not place.is_dir():
            raise UnwritableError(f"{folder}: cannot be written: {place} is not a folder")
        _try(place)
    except OSError as error:
        raise UnwritableError(f"{folder}: cannot be written: {error.strerror}") from None


def require_file(path: Path) -> None:
    """Check that a file can be written; its folder must exist.

    Raises:
        UnwritableError: it cannot; names the file and the reason.
    """
    try:
        if path.is_dir():
            raise UnwritableError(f"{path}: cannot be written: is a folder")
        if not path.parent.is_dir():
            raise UnwritableError(f"{path}: cannot be written: {path.parent} is not a folder")
        if path.is_file() or not path.exists():  # also an existing one is replaced by renaming
            _try(path.resolve().parent)
    except OSError as error:
        raise UnwritableError(f"{path}: cannot be written: {error.strerror}") from None


def _try(folder: Path) -> None:
    """Write a byte into a file without a name: modes alone do not tell of read-only and full file systems."""
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"0")
