"""Whether a node is gone, by what the control plane says of it."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from dgl_operator.domain import clocks, fields

_UNREACHABLE = "node.kubernetes.io/unreachable"
_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


def is_gone(node: Mapping[str, Any] | None, now: datetime) -> bool:
    """Whether a node has been removed, is out of service, or has not been heard of for a minute.

    A node that is only slow, or was cut off for a moment, may run its containers still.

    Args:
        node: The Node, None where there is none of the name.
        now: The clock's value.
    """
    if node is None:
        return True
    if any(taint.get("key") == _OUT_OF_SERVICE for taint in _taints(node)):
        return True
    return any(clocks.is_due(clocks.later(time, clocks.FORCE_AFTER), now) for time in _not_heard_since(node))


def _not_heard_since(node: Mapping[str, Any]) -> Iterator[datetime | None]:
    for taint in _taints(node):
        if taint.get("key") == _UNREACHABLE:
            yield fields.time(taint.get("timeAdded"))
    for each in fields.items(fields.mapping(node.get("status")).get("conditions")):
        if each.get("type") == "Ready" and each.get("status") == "Unknown":
            yield fields.time(each.get("lastTransitionTime"))


def _taints(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return fields.items(fields.mapping(node.get("spec")).get("taints"))
