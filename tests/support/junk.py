"""Objects with something else at one place, for tests of what reads them."""

from typing import Any

Path = tuple[str | int, ...]


def paths(value: Any, before: Path = ()) -> list[Path]:
    """All places in a JSON value, the value itself first."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [before, *(path for key, each in inner for path in paths(each, (*before, key)))]


def put(value: Any, path: Path, junk: Any) -> Any:
    """The value with something else at one place; nothing that is given is changed."""
    if not path:
        return junk
    if isinstance(value, dict):
        return {**value, path[0]: put(value.get(path[0]), path[1:], junk)}
    return [put(each, path[1:], junk) if at == path[0] else each for at, each in enumerate(value)]
