"""Waiting: what counts as there, and what is still missing."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.wait import wait_for


@pytest.mark.parametrize("missing", [None, False, [], {}, ""])
def test_what_is_empty_is_not_there_yet(missing: Any) -> None:
    """A test that took an empty list of answers for an answer went on too early, and failed now and then."""
    looks: Iterator[Any] = iter([missing, missing, "found"])

    assert wait_for("an answer", lambda: next(looks), 20) == "found"


@pytest.mark.parametrize("found", [0, 0.0, True, "x", [0]])
def test_zero_is_there(found: Any) -> None:
    """An exit code of 0 is one."""
    assert wait_for("an exit code", lambda: found, 20) == found


def test_what_does_not_come_is_named() -> None:
    """With the deadline."""
    with pytest.raises(TimeoutError, match=r"an answer: did not come within 0 s"):
        wait_for("an answer", lambda: None, 0)
