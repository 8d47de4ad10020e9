"""Whether an object already is what is wanted, so that nothing is written for nothing."""

from typing import Any


def is_met(wanted: Any, actual: Any) -> bool:
    """Whether every field that we render stands in the stored object with our value.

    What others added (defaults, their own labels, data of the report) does not count. Lists are ours as
    a whole and have our length; owner references alone may have company. Both are JSON values.
    """
    if isinstance(wanted, dict):
        if not isinstance(actual, dict):
            return False
        return all(_field_is_met(key, value, actual.get(key)) for key, value in wanted.items())
    if isinstance(wanted, list):
        if not isinstance(actual, list) or len(actual) != len(wanted):
            return False
        return all(is_met(one, other) for one, other in zip(wanted, actual, strict=True))
    return bool(wanted == actual)


def _field_is_met(key: str, wanted: Any, actual: Any) -> bool:
    if key == "ownerReferences":
        return all(any(is_met(one, other) for other in actual or ()) for one in wanted)
    return is_met(wanted, actual)
