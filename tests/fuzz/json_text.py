"""JSON that Python's own module can neither write nor read: nested too deep, duplicate keys, odd numbers."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_MARK = "@@verbatim-{}@@"
_MARKED = re.compile('"@@verbatim-([0-9]+)@@"')
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)


@dataclass(frozen=True)
class Verbatim:
    """JSON text that is put into the document as it stands."""

    text: str


def encode(value: Any) -> bytes:
    """Return the JSON text of a value that may hold `Verbatim` parts."""
    held: list[str] = []

    def hold(part: Verbatim) -> str:
        held.append(part.text)
        return _MARK.format(len(held) - 1)

    text = json.dumps(value, default=hold)
    return (_MARKED.sub(lambda found: held[int(found[1])], text) if held else text).encode()


def nested(levels: int, opening: str = '{"a":', closing: str = "}", inside: str = "1") -> Verbatim:
    """Return so many objects (or lists, by other brackets) inside each other."""
    return Verbatim(opening * levels + inside + closing * levels)


def depth(text: bytes) -> int:
    """How many levels of objects and lists the text has."""
    return max((level for _, level, _ in _tokens(text)), default=0)


def top_value(text: bytes, key: str) -> bytes | None:
    """Return the text of an object or list under a key of the outermost object, None when it has none.

    It reads objects that no recursive reader takes: those are what the operator is fuzzed with.
    """
    wanted, begins = json.dumps(key).encode(), None
    for token, level, end in _tokens(text):
        if begins is not None and token in b"}]" and level == 1:
            return text[begins:end]
        if begins is None and level == 1 and token == wanted:
            after = re.compile(rb"\s*:\s*(?=[{\[])").match(text, end)
            begins = after.end() if after else None
    return None


def _tokens(text: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Strings and brackets with the level after each, and where each ends."""
    level = 0
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token in b"{[":
            level += 1
        elif token in b"}]":
            level -= 1
        yield token, level, found.end()
