"""What a training script says of its progress, from its process to the one that has started it: one file.

The script replaces the file as a whole, so that it waits for nobody, however often it tells; its reader sees
the newest values and looks now and then.
"""

import contextlib
import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path

from dglrun.agent import PROGRESS_VARIABLE
from dglrun.contract import report

EVERY_SECONDS = 1.0
"""News are passed on so often at most."""
_MOST_BYTES = 4096


def tell(values: Mapping[str, object]) -> None:
    """Leave values for the reader; those that are none are left out. Never raises.

    Args:
        values: By their names in the report.
    """
    path = os.environ.get(PROGRESS_VARIABLE)
    if not path:
        return
    part = f"{path}.{os.getpid()}-{threading.get_ident()}"  # a script may tell from several threads
    with contextlib.suppress(Exception):
        found = report.script_values(values)
        try:
            Path(part).write_text(json.dumps(found))
            Path(part).replace(path)
        except OSError:
            Path(part).unlink()


class ProgressFile:
    """The reader's side.

    Args:
        path: The file; one that an earlier run has left is removed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._looked = float("-inf")
        path.unlink(missing_ok=True)

    def news(self, now: float, is_last: bool = False) -> dict[str, int | str] | None:
        """The values if there are new ones, None else and where a look is not due yet.

        Args:
            now: Monotonic seconds.
            is_last: Whether to look in any case, as nobody writes any more.
        """
        if now - self._looked < EVERY_SECONDS and not is_last:
            return None
        self._looked = now
        try:
            with self._path.open("rb") as file:
                found = os.fstat(file.fileno())
                if (seen := (found.st_ino, found.st_mtime_ns)) == self._seen:
                    return None
                self._seen = seen
                raw = json.loads(file.read(_MOST_BYTES))
        except (OSError, ValueError, RecursionError):
            return None
        return (report.script_values(raw) or None) if isinstance(raw, dict) else None
