"""The number of this contract, and which numbers work together.

The operator gives its number to every container that runs code of this project. The images may be of other
releases: the code in each of them reads the number before it does anything, and refuses one with which it
cannot work. A job image may be one number older or newer than the operator, as users build theirs at other
times; the images of the init containers come with the operator and are never older.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from dglrun.contract import env

CURRENT = 2
"""Grows by one, and at most once in a release, when this package changes so that the other side must know."""
OLDEST = 1
"""Of the operators with which this code works."""
UNNAMED = 1
"""Of an operator that gives no number, up to release 0.2."""


@dataclass(frozen=True)
class Reader:
    """Code that reads the operator's number.

    Attributes:
        image: Its image, for messages.
        newest: Newest operator with which it works.
        remedy: What to do about a newer operator.
    """

    image: str
    newest: int
    remedy: str


JOB_IMAGE = Reader(
    "the job image", CURRENT + 1, "build the job image anew from the one of the operator's release"
)
"""An operator serves job images one number older, so that these may take it for granted."""
INIT_CONTAINER = Reader(
    "the init container's image",
    CURRENT,
    "use the images watcher-loop and kubectl-download of the operator's release",
)


def refusal(environment: Mapping[str, str], reader: Reader) -> str | None:
    """Say in one line why the reader cannot work with the operator, None when it can."""
    text = environment.get(env.CONTRACT_VERSION) or str(UNNAMED)
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        return f"{env.CONTRACT_VERSION}: expected a whole number, got {text[:100]!r}"
    number, served = int(text), f"{reader.image} serves {OLDEST} to {reader.newest}"
    if number > reader.newest:
        return f"the operator has contract version {number}, {served}: {reader.remedy}"
    if number < OLDEST:
        remedy = "update the operator, or use images of its release"
        return f"the operator has contract version {number}, {served}: {remedy}"
    return None
