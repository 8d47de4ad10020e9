"""One case of the fuzzer: objects to submit, what happens to them, and what must come of it.

Case number i of a seed is the same whatever was drawn before it, so that one case can be repeated alone.
"""

import random
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from dgl_operator.runtime.kinds import Kind
from tests.fuzz.acts import Act
from tests.fuzz.json_text import encode

Json = dict[str, Any]


class Place(Enum):
    """Where a case lives.

    TENANT shares its namespace with an innocent job; NARROW has a quota of a few pods.
    """

    TENANT = "tenant"
    NARROW = "narrow"


class Expect(Enum):
    """What must come of the case's job."""

    STATUS = "a phase or a condition"
    END = "a final phase or condition Stalled"
    BLOCKED = "condition Blocked or Stalled, or a final phase"
    NOTHING = "nothing: it has no job, or the job may be gone"


@dataclass(frozen=True)
class Submission:
    """One object as it is sent."""

    kind: Kind
    name: str
    body: bytes

    @classmethod
    def of(cls, body: Json) -> "Submission":
        """An object by its own kind and name."""
        metadata = body.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        kind = Kind.of(body)
        return cls(kind, str(name or ""), encode({"apiVersion": kind.api_version, **body}))


@dataclass(frozen=True)
class Case:
    """What the fuzzer does once.

    Attributes:
        kind: Kind of oddity, for the summary.
        what: What is odd about this one, for a finding.
        job: Name of its job.
        acts: Done one after the other once the objects are there.
    """

    number: int
    kind: str
    what: str
    job: str
    submissions: tuple[Submission, ...]
    acts: tuple[Act, ...] = ()
    expect: Expect = Expect.STATUS
    place: Place = Place.TENANT

    def numbered(self, number: int) -> "Case":
        """The same under a number."""
        return replace(self, number=number)


def rng_of(seed: int, number: int) -> random.Random:
    """The random numbers of one case; text seeds are the same in every process."""
    return random.Random(f"{seed}/{number}")  # noqa: S311 - repeatable, not secret
