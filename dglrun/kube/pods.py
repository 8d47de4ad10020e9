"""What a Pod object says: pure readers, so that nobody else digs in its nested dictionaries."""

from typing import Any

from dglrun.contract import address, disruption, names

Pod = dict[str, Any]
"""A core/v1 Pod as the API server sends it."""

_MESSAGE_LIMIT = 3000
"""Characters of a container's termination message that are passed on; it has 4096 bytes."""


def uid(pod: Pod) -> str:
    """The pod's identity: another pod of the same name has another one."""
    return str(pod["metadata"]["uid"])


def phase(pod: Pod) -> str:
    """Pending, Running, Succeeded, Failed or Unknown.

    A pod of a job is judged by the end of its main container: with a sidecar that runs on it would stay
    Running for ever, and a sidecar that fails afterwards would make it Failed.
    """
    code = _main_exit_code(pod)
    if code is not None:
        return "Failed" if code else "Succeeded"
    return str(_status(pod).get("phase") or "Pending")


def _main_exit_code(pod: Pod) -> int | None:
    name = (pod["metadata"].get("annotations") or {}).get(names.ANNOTATION_MAIN)
    for container in _status(pod).get("containerStatuses") or ():
        if container.get("name") == name and "exitCode" in _terminated(container):
            return int(_terminated(container)["exitCode"])
    return None


def image_digest(pod: Pod) -> str | None:
    """What the kubelet says of the image that the main container runs; None while it has not said it.

    The digest alone, where it stands behind a name: the same image may come from another registry.
    """
    name = (pod["metadata"].get("annotations") or {}).get(names.ANNOTATION_MAIN)
    for container in _status(pod).get("containerStatuses") or ():
        if container.get("name") == name and container.get("imageID"):
            return str(container["imageID"]).rpartition("@")[2]
    return None


def ip(pod: Pod) -> str | None:
    """The pod's IPv4 address, the one that the operator publishes; None while it has none."""
    return address.ipv4(_status(pod))


def is_ready(pod: Pod) -> bool:
    """Whether the condition Ready is true; a Running pod need not be."""
    return any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in _status(pod).get("conditions") or ()
    )


def is_being_deleted(pod: Pod) -> bool:
    """Whether someone has asked for its deletion."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_disrupted(pod: Pod) -> bool:
    """Whether Kubernetes has ended it, or is about to, for reasons that are not the pod's own."""
    status = _status(pod)
    for condition in status.get("conditions") or ():
        if condition.get("type") == disruption.CONDITION and condition.get("status") == "True":
            return True
    return status.get("phase") == "Failed" and status.get("reason") in disruption.ENDED_BY_NODE


def waiting_reason(pod: Pod) -> str:
    """Why the pod is not Ready yet, in a few words for a progress line."""
    for status in _container_statuses(pod):
        if waiting := (status.get("state") or {}).get("waiting"):
            return f"{status.get('name')}: {waiting.get('reason') or 'waiting'}"
    for condition in _status(pod).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"{condition.get('reason') or 'not scheduled'}: {condition.get('message') or ''}".rstrip(
                ": "
            )
    return phase(pod) if phase(pod) != "Running" else "Running, not Ready"


def failure_reason(pod: Pod) -> str:
    """Why a pod failed: eviction and the like, else the termination message of the first failed container."""
    status = _status(pod)
    if status.get("reason"):
        return f"{status['reason']}: {status.get('message') or ''}".rstrip(": ")
    failed = [container for container in _container_statuses(pod) if _terminated(container).get("exitCode")]
    if failed:
        return _last_words(min(failed, key=lambda container: str(_terminated(container).get("finishedAt"))))
    return str(status.get("message") or "no reason given")


def _terminated(container: dict[str, Any]) -> dict[str, Any]:
    return (container.get("state") or {}).get("terminated") or {}


def _last_words(container: dict[str, Any]) -> str:
    terminated = _terminated(container)
    words = f"container {container.get('name')} exited with {terminated['exitCode']}"
    if reason := terminated.get("reason"):
        words += f" ({reason})"
    message = str(terminated.get("message") or "").strip()
    return f"{words}: {message[-_MESSAGE_LIMIT:]}" if message else words


def _status(pod: Pod) -> dict[str, Any]:
    return pod.get("status") or {}


def _container_statuses(pod: Pod) -> list[dict[str, Any]]:
    status = _status(pod)
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
