"""Reads fields of API objects, whatever stands there: who may write an object's status may write oddities."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

_NOTHING: Mapping[str, Any] = {}


def mapping(value: Any) -> Mapping[str, Any]:
    """Return an object, the empty one for anything else."""
    return value if isinstance(value, Mapping) else _NOTHING


def items(value: Any) -> list[Mapping[str, Any]]:
    """Return the objects of a list; what is no object is left out."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list | tuple) else []


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
