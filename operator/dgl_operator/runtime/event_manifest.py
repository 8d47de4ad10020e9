"""Events as the API server wants them."""

import uuid
from datetime import datetime

from dgl_operator.domain.events import Event
from dgl_operator.runtime.kinds import Json, Kind

COMPONENT = "dgl-operator"
_LONGEST = 1024
"""The API server refuses longer messages."""


def manifest(raw: Json, event: Event, now: datetime) -> Json:
    """Return an Event about a job."""
    metadata, time = raw["metadata"], now.isoformat().replace("+00:00", "Z")
    return {
        "apiVersion": Kind.EVENT.api_version,
        "kind": Kind.EVENT.value[0],
        "metadata": {
            "name": f"{metadata['name']}.{uuid.uuid4().hex[:16]}",
            "namespace": metadata["namespace"],
        },
        "involvedObject": {
            "apiVersion": Kind.JOB.api_version,
            "kind": Kind.JOB.value[0],
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.message if len(event.message) <= _LONGEST else event.message[: _LONGEST - 1] + "…",
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": COMPONENT,
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
    }
