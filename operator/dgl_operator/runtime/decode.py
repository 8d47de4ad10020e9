"""JSON from the API server with a bound on its depth: one object must never make the others unreadable.

Python's decoders recurse, and what a template may hold under a key that the schema does not know is nested
as deeply as the API server lets it pass (10,000 levels). An object beyond the bound is read as far as it
goes, what lies deeper is null, and the key `UNREADABLE` says why. Pure: no cluster, no clock.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from pydantic_core import from_json

Json = dict[str, Any]

MAX_DEPTH = 200
"""Levels that pydantic's decoder takes; a DGLJob that makes sense has fewer than 30."""
UNREADABLE = "dgl-operator/unreadable"
"""Key at the top of an object that could not be read whole; its value is the reason."""

_KEPT_LEVELS = 12
"""Levels of an unreadable object that are kept: enough for its metadata and status."""
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[{]|[\]}]', re.DOTALL)
_OPEN, _CLOSE = b"[{", b"]}"
_ITEM_LEVEL = 3
"""`{"items": [{`: an item of a list begins here."""


class DecodeError(ValueError):
    """The text is no JSON object."""


def one(data: bytes) -> Json:
    """Return the object.

    Raises:
        DecodeError: the text is no JSON object.
    """
    try:
        return _object(parsed(data))
    except ValueError as error:
        return _cut(data, error)


def listed(data: bytes) -> Json:
    """Return a list answer; items that are nested too deeply are marked, and the others are whole.

    Raises:
        DecodeError: the text is no JSON object.
    """
    try:
        return _object(parsed(data))
    except ValueError as error:
        answer = _cut(data, error)
    return {**answer, "items": [one(data[start:end]) for start, end in _items(data)]}


def event(data: bytes) -> tuple[str, Json]:
    """Return type and object of one line of a watch.

    Raises:
        DecodeError: the line is no watch event.
    """
    try:
        found = _object(parsed(data))
        item = found["object"]
    except ValueError as error:
        found = _cut(data, error)
        item = {**found["object"], UNREADABLE: found[UNREADABLE]}
    except KeyError as error:
        raise DecodeError(f"expected a watch event, got an object without {error}") from error
    return str(found.get("type")), _object(item)


def parsed(data: bytes) -> Any:
    """Return the value; none of its texts is remembered.

    Pydantic's decoder would keep the last 16,384, among them what users made up, for ever and scattered over
    memory that could be given back else.

    Raises:
        ValueError: the text is no JSON, or nested too deeply.
    """
    return from_json(data, cache_strings="none")


def encoded(value: Any) -> bytes:
    """Return the JSON text of what was decoded, in UTF-8.

    Pydantic's encoder takes 2.9 kB of the thread's stack for each level, Python's 0.1. No stack goes back:
    half a megabyte for each thread that has seen a deep object would stay for ever.
    """
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _object(found: Any) -> Json:
    if not isinstance(found, dict):
        raise DecodeError(f"expected a JSON object, got {type(found).__name__}")
    return found


def _cut(data: bytes, error: ValueError) -> Json:
    """Read what is deeper than the kept levels as null."""
    kept, at = [], 0
    for start, end in _deeper(data):
        kept += [data[at:start], b"null"]
        at = end
    if not kept:
        raise DecodeError(f"expected JSON, got: {error}") from error
    try:
        found = _object(parsed(b"".join([*kept, data[at:]])))
    except DecodeError:
        raise
    except ValueError as broken:
        raise DecodeError(f"expected JSON, got: {broken}") from broken
    return {**found, UNREADABLE: f"expected at most {MAX_DEPTH} levels of nesting, got more"}


def _levels(data: bytes) -> Iterator[tuple[int, re.Match[bytes], bool]]:
    """Yield (level inside, bracket, whether it opens); strings are passed over."""
    level = 0
    for token in _TOKEN.finditer(data):
        first = data[token.start()]
        if first in _OPEN:
            level += 1
            yield level, token, True
        elif first in _CLOSE:
            yield level, token, False
            level -= 1


def _deeper(data: bytes) -> Iterator[tuple[int, int]]:
    start = 0
    for level, token, opens in _levels(data):
        if level != _KEPT_LEVELS + 1:
            continue
        if opens:
            start = token.start()
        else:
            yield start, token.end()


def _items(data: bytes) -> Iterator[tuple[int, int]]:
    """Spans of a list's items; no other object of a list answer lies on their level."""
    start = 0
    for level, token, opens in _levels(data):
        if level != _ITEM_LEVEL:
            continue
        if opens:
            start = token.start()
        else:
            yield start, token.end()
