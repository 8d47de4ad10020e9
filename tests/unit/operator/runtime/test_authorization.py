"""Tokens are kept for a moment, and never beyond a refusal."""

from collections.abc import Iterator
from itertools import count

from dgl_operator.runtime.authorization import KEPT_SECONDS, Authorization


class Rotating:
    """Another token each time that it is asked, on a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self._numbers: Iterator[int] = count()
        self.authorization = Authorization(self._ask, lambda: self.now)

    def _ask(self) -> dict[str, dict[str, str]]:
        return {"BearerToken": {"key": "authorization", "value": f"Bearer {next(self._numbers)}"}}

    @property
    def token(self) -> str:
        """The token that a request would have."""
        return self.authorization.headers()["authorization"]


def test_a_token_is_asked_for_once_in_a_while() -> None:
    """Not for each request."""
    rotating = Rotating()

    assert [rotating.token for _ in range(3)] == ["Bearer 0"] * 3


def test_a_newer_token_is_found() -> None:
    """The kubelet writes another one before the old one ends."""
    rotating = Rotating()
    assert rotating.token == "Bearer 0"

    rotating.now = KEPT_SECONDS

    assert [rotating.token, rotating.token] == ["Bearer 1", "Bearer 1"]


def test_a_refused_token_is_not_used_again() -> None:
    """It may have ended before its time."""
    rotating = Rotating()
    assert rotating.token == "Bearer 0"

    rotating.authorization.forget({"authorization": "Bearer 0"})

    assert rotating.token == "Bearer 1"


def test_a_newer_token_than_the_refused_one_stays() -> None:
    """Several threads may be refused with the old one, after one of them has asked for another."""
    rotating = Rotating()
    assert rotating.token == "Bearer 0"
    rotating.authorization.forget({"authorization": "Bearer 0"})
    assert rotating.token == "Bearer 1"

    rotating.authorization.forget({"authorization": "Bearer 0"})

    assert rotating.token == "Bearer 1"
