"""Reads fields of API objects, whatever stands there: who may write an object's status may write oddities.

Objects are dictionaries and lists, as JSON is decoded; to ask for just these is several times faster than to
ask for the abstract types.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

_NOTHING: Mapping[str, Any] = {}


def mapping(value: Any) -> Mapping[str, Any]:
    """Return an object, the empty one for anything else."""
    return value if isinstance(value, dict) else _NOTHING


def items(value: Any) -> list[Mapping[str, Any]]:
    """Return the objects of a list; what is no object is left out."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def text(value: Any) -> str:
    """Return a text, the empty one for anything else."""
    return value if isinstance(value, str) else ""


def whole(value: Any) -> int | None:
    """Return an integer, None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def time(value: Any) -> datetime | None:
    """Return an RFC 3339 time, None for anything else."""
    try:
        found = datetime.fromisoformat(text(value))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
