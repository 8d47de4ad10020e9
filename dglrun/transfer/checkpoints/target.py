"""Where a keeper brings files: what it needs of the launcher, or of a place of the user's."""

import os
from pathlib import Path
from typing import Protocol

from dglrun.transfer.checkpoints.folder import Version


class KeepError(Exception):
    """A file cannot be kept or brought back; says why.

    Attributes:
        code: The exit code of a run that fails of it.
    """

    def __init__(self, what: str, code: int) -> None:
        super().__init__(what)
        self.code = code


class ChangedError(Exception):
    """The file has changed while it was read: it was not renamed into place, and nothing of it is kept."""


class Target(Protocol):
    """Names have the rank in front. All raise KeepError."""

    def ranks(self, ranks: int) -> int:
        """Of how many ranks the checkpoints are that lie there; so many from now on if there are none.

        What was recorded by a training that has kept nothing binds nobody.
        """

    def kept(self) -> set[str]:
        """The names of the files that are kept."""

    def fetch(self, name: str, path: Path) -> None:
        """Write a kept file; the caller lets it appear under its name."""

    def put(self, name: str, file: int, version: Version, is_limited: bool) -> None:
        """Keep the file that is open here under a name, whole or not at all, in place of what had it.

        Raises:
            ChangedError: it is not of this version, or is not when it has been read.
        """

    def remove(self, name: str) -> None:
        """Keep a file no longer."""


def require_unchanged(file: int, version: Version) -> None:
    """Compare an open file with what was seen of it.

    Raises:
        ChangedError: it has changed.
    """
    if Version.of(os.fstat(file)) != version:
        raise ChangedError
