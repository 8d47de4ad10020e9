"""Adding to the user's pod template without losing anything of it: lists merge by their key.

Every function returns a new value and leaves its arguments alone.
"""

from collections.abc import Iterable, Mapping
from typing import Any

Json = dict[str, Any]


def with_defaults(mapping: Mapping[str, Any], defaults: Mapping[str, Any]) -> Json:
    """Add the keys that the user has not set."""
    return {**defaults, **mapping}


def with_items(
    mapping: Mapping[str, Any], key: str, items: Iterable[Mapping[str, Any]], by: str = "name"
) -> Json:
    """Append to the list at `key`; an item whose `by` is there already replaces the old one in place.

    What the user wrote twice stays twice: the last variable wins, and of two volumes the API server tells.
    """
    ours = {item[by]: dict(item) for item in items}
    users = [ours.pop(item[by], dict(item)) for item in mapping.get(key) or ()]
    merged = [*users, *ours.values()]
    return {**mapping, key: merged} if merged else dict(mapping)


def with_first(mapping: Mapping[str, Any], key: str, items: Iterable[Mapping[str, Any]]) -> Json:
    """Put items before those of the list at `key`."""
    merged = [*(dict(item) for item in items), *(mapping.get(key) or ())]
    return {**mapping, key: merged} if merged else dict(mapping)


def without(mapping: Mapping[str, Any], keys: Iterable[str]) -> Json:
    """Leave keys out."""
    dropped = set(keys)
    return {key: value for key, value in mapping.items() if key not in dropped}


def with_main(pod: Mapping[str, Any], main: Mapping[str, Any]) -> Json:
    """Exchange the main container, the first one of the pod spec."""
    return {**pod, "containers": [dict(main), *pod["containers"][1:]]}
