"""The audit log is read while the API server writes it."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from tests.support import audit


def test_a_line_that_is_being_written_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is its rest, which comes as a line of its own when it is written between two reads."""
    lines = ['{"verb": "get"}\n', '{"verb": ', '"delete"}\n']
    log = SimpleNamespace(open=lambda: nullcontext(iter(lines)))
    monkeypatch.setattr(audit, "log", lambda: log)

    assert list(audit.records()) == [{"verb": "get"}]
