"""What a partition is made of, and the fingerprint of that. Pure."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

FORMAT = 1
"""Grows when dglrun makes other files of the same input and options."""
LENGTH = 32
"""Hexadecimal digits of a fingerprint."""
SHOWN = 3
"""Differences that a message names; of the others it tells the number."""


@dataclass(frozen=True)
class PartitionInput:
    """What a partition is made of. Names have the form `kind: name`; values are texts.

    Attributes:
        source: The data or the script: for each file its size and time, or its hash.
        options: What else changes the result: graph, number of parts, back end, seed, versions.
    """

    source: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """The same for the same input, in whatever order it is given; another one after any change."""
        whole = {"format": FORMAT, "source": dict(self.source), "options": dict(self.options)}
        text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def is_fingerprint(word: str) -> bool:
    """Whether a word has the form of a fingerprint."""
    return len(word) == LENGTH and set(word) <= set("0123456789abcdef")


def decode(raw: Any) -> PartitionInput:
    """Read what `dataclasses.asdict` gave.

    Raises:
        ValueError: it is something else.
    """
    try:
        source, options = dict(raw["source"]), dict(raw["options"])
    except (TypeError, KeyError, ValueError):
        raise ValueError("expected source and options") from None
    words = [*source, *source.values(), *options, *options.values()]
    if not all(isinstance(word, str) for word in words):
        raise ValueError("expected texts as source and options")
    return PartitionInput(source, options)


def differences(wanted: PartitionInput, found: PartitionInput) -> str:
    """What differs, options first, in words: `seed: expected 1, got 2; 4 more`."""
    texts = [*_differences(wanted.options, found.options), *_differences(wanted.source, found.source)]
    if not texts:
        return "the same input and options, of another format"
    more = len(texts) - SHOWN
    return "; ".join((*texts[:SHOWN], *([f"{more} more"] if more > 0 else [])))


def _differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(wanted.keys() | found.keys()):
        expected, got = wanted.get(name, "none"), found.get(name, "none")
        if expected != got:
            yield f"{name}: expected {expected[:200]}, got {got[:200]}"
