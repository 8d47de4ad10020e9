"""How many requests an account has made, from the API server's audit log."""

import json
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

VARIABLE = "DGL_OPERATOR_AUDIT_LOG"


class AuditLog:
    """The part of the log that is written from now on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start = path.stat().st_size

    @classmethod
    def of_cluster(cls) -> "AuditLog | None":
        """The cluster's log, None where it is out of reach."""
        path = os.environ.get(VARIABLE)
        return cls(Path(path)) if path and Path(path).exists() else None

    def count(self, user: str) -> Counter[str]:
        """Requests of a user by verb and resource."""
        start = self._start if self._path.stat().st_size >= self._start else 0  # it was rotated
        with self._path.open() as lines:
            lines.seek(start)
            return count(lines, user)


def count(lines: Iterable[str], user: str) -> Counter[str]:
    """Count a user's requests for resources as `<verb> <resource>[/<subresource>]`.

    The log has a long request twice, when it starts and when it ends: the end counts. A last line that is
    not whole is left out.
    """
    found: Counter[str] = Counter()
    for line in lines:
        if user not in line or not line.endswith("\n"):
            continue
        record = json.loads(line)
        about = record.get("objectRef") or {}
        if record["user"].get("username") != user or not about.get("resource"):
            continue
        if record.get("stage") == "ResponseStarted":
            continue
        subresource = f"/{about['subresource']}" if about.get("subresource") else ""
        found[f"{record['verb']} {about['resource']}{subresource}"] += 1
    return found
