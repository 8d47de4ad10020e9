"""The API server's audit log, where the cluster gives it."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "DGL_OPERATOR_AUDIT_LOG"


def log() -> Path:
    """The log's path; skips the test on a cluster whose log is out of reach."""
    path = os.environ.get(VARIABLE)
    if not path:
        pytest.skip(f"{VARIABLE} is not set: this cluster's audit log is out of reach")
    return Path(path)


def records(about: str = "") -> Iterator[dict[str, Any]]:
    """Records that contain a text; the server may be writing its last line just now."""
    with log().open() as lines:
        for line in lines:
            if not line.endswith("\n"):
                return  # its rest would come as a line of its own
            if about in line:
                yield json.loads(line)


def requests(account: str) -> Iterator[dict[str, Any]]:
    """Records of an account's requests for resources."""
    for record in records(account):
        resource = (record.get("objectRef") or {}).get("resource")
        if resource and record["user"].get("username") == account:
            yield record
