"""Whether a node is gone, by what the control plane says of it."""

from collections.abc import Mapping
from typing import Any

from dgl_operator.domain import fields

_GONE = ("node.kubernetes.io/unreachable", "node.kubernetes.io/out-of-service")


def is_gone(node: Mapping[str, Any] | None) -> bool:
    """Whether a node has been removed, is tainted as gone, or has not been heard of for its lease.

    Args:
        node: The Node, None where there is none of the name.
    """
    if node is None:
        return True
    taints = fields.items(fields.mapping(node.get("spec")).get("taints"))
    if any(taint.get("key") in _GONE for taint in taints):
        return True
    conditions = fields.items(fields.mapping(node.get("status")).get("conditions"))
    return any(each.get("type") == "Ready" and each.get("status") == "Unknown" for each in conditions)
