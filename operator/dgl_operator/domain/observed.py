"""What is seen of a job's children, read once into values, so that no decision digs in nested dictionaries.

Containers are judged one by one: a pod with sidecars stays Running after its main container has ended,
and ends Failed when a sidecar does (pod phase, KEP-753).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dglrun.contract import names
from dglrun.contract.address import ipv4
from dglrun.contract.names import Role

_BLOCKING = {
    "ErrImagePull": "ImagePullBackOff",
    "ImagePullBackOff": "ImagePullBackOff",
    "ErrImageNeverPull": "ErrImageNeverPull",
    "RegistryUnavailable": "ImagePullBackOff",
    "CreateContainerConfigError": "CreateContainerConfigError",
    "CreateContainerError": "CreateContainerError",
}
"""Reasons of a waiting container that may pass -> the reason we report (the first two alternate)."""

_LAST_WORDS = 2048
"""Characters of a termination message that are passed on; its end names the cause."""


@dataclass(frozen=True)
class Problem:
    """Something that keeps the job from going on but may pass; shown as condition `Blocked`."""

    reason: str
    message: str


@dataclass(frozen=True)
class Ended:
    """A container that has ended."""

    container: str
    exit_code: int
    reason: str = ""
    message: str = ""
    at: datetime | None = None


@dataclass(frozen=True)
class Pod:
    """One pod of the job.

    Attributes:
        index: Worker index from 0; 0 for the other roles.
        ip: IPv4 address, None while it has none (DGL takes no other family).
        begun: Whether any container, init containers included, has run.
        main_started: Whether the main container has run.
        main_end: How the main container ended.
        all_ended: Whether every container has ended and none of the init containers (native sidecars) runs.
            The kubelet says so a second or two before it gives the pod its final phase.
        first_failure: The first container that ended non-zero, init containers included.
        disruption: Why Kubernetes took the pod away (eviction, preemption, lost node), "" if it did not.
        invalid_image: The kubelet's message about an image name that can never be pulled.
        problem: What the pod waits for, if that is more than time.
    """

    name: str
    uid: str
    role: Role
    index: int = 0
    phase: str = "Pending"
    ip: str | None = None
    ready: bool = False
    deleting: bool = False
    begun: bool = False
    main_started: bool = False
    main_end: Ended | None = None
    all_ended: bool = False
    first_failure: Ended | None = None
    disruption: str = ""
    invalid_image: str = ""
    problem: Problem | None = None
    config_hash: str | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the main container ended with 0, whatever sidecars do."""
        return self.main_end.exit_code == 0 if self.main_end else self.phase == "Succeeded"

    @property
    def failed(self) -> bool:
        """Whether the main container failed or can never run."""
        return not self.succeeded and (self.phase == "Failed" or self.main_end is not None)

    @property
    def stopped(self) -> bool:
        """Whether nothing of the pod runs any more, sidecars included: with restartPolicy Never, for good."""
        return self.all_ended or self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True)
class Observed:
    """All children of one job that carry its UID.

    Attributes:
        pods: Sorted by role and integer index.
        objects: The other children by (kind, name), as the API server stores them.
    """

    pods: tuple[Pod, ...] = ()
    objects: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, children: Iterable[Mapping[str, Any]], uid: str) -> "Observed":
        """Sort the children of the job with this UID; what another owner has is not seen."""
        own = [child for child in children if controller_uid(child) == uid]
        pods = [_pod(child) for child in own if child["kind"] == "Pod"]
        others = {
            (child["kind"], child["metadata"]["name"]): child for child in own if child["kind"] != "Pod"
        }
        return cls(tuple(sorted(pods, key=lambda pod: (pod.role.value, pod.index))), others)

    def of_role(self, role: Role) -> tuple[Pod, ...]:
        """Pods of one role in the order of their index."""
        return tuple(pod for pod in self.pods if pod.role is role)

    def one(self, role: Role) -> Pod | None:
        """The pod of a role that has one, None while it is not there."""
        return next(iter(self.of_role(role)), None)

    def report(self, name: str) -> Mapping[str, str]:
        """Data of the report ConfigMap, empty while there is none."""
        return self.objects.get(("ConfigMap", name), {}).get("data") or {}


def controller_uid(child: Mapping[str, Any]) -> str | None:
    """UID of the controller that owns the object, None without one."""
    owners = child["metadata"].get("ownerReferences") or ()
    return next((owner["uid"] for owner in owners if owner.get("controller")), None)


def _pod(raw: Mapping[str, Any]) -> Pod:
    metadata, status = raw["metadata"], raw.get("status") or {}
    labels = metadata.get("labels") or {}
    main = _by_name(status.get("containerStatuses")).get(_main_container(raw), {})
    everyone = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        role=Role(labels[names.LABEL_REPLICA_TYPE]),
        index=_index(labels.get(names.LABEL_INDEX, "0")),
        phase=status.get("phase") or "Pending",
        ip=ipv4(status),
        ready=_condition(status, "Ready").get("status") == "True",
        deleting="deletionTimestamp" in metadata,
        begun=any(_has_run(container) for container in everyone),
        main_started=_has_run(main),
        main_end=_end(main),
        all_ended=_all_ended(raw, status),
        first_failure=_first_failure(everyone),
        disruption=_disruption(status),
        invalid_image=_invalid_image(everyone),
        problem=_problem(metadata["name"], status, everyone),
        config_hash=(metadata.get("annotations") or {}).get(names.ANNOTATION_CONFIG_HASH),
    )


def _main_container(raw: Mapping[str, Any]) -> str:
    """Name of the main container as it was rendered; webhooks may have put theirs before it."""
    annotations = raw["metadata"].get("annotations") or {}
    return str(annotations.get(names.ANNOTATION_MAIN) or raw["spec"]["containers"][0]["name"])


def _by_name(statuses: Iterable[Mapping[str, Any]] | None) -> dict[str, Mapping[str, Any]]:
    return {status["name"]: status for status in statuses or ()}


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    return next((found for found in status.get("conditions") or () if found.get("type") == kind), {})


def _has_run(container: Mapping[str, Any]) -> bool:
    state = container.get("state") or {}
    return bool(
        state.get("running")
        or state.get("terminated")
        or (container.get("lastState") or {}).get("terminated")
    )


def _end(container: Mapping[str, Any]) -> Ended | None:
    terminated = (container.get("state") or {}).get("terminated")
    if not terminated:
        return None
    finished = terminated.get("finishedAt")
    return Ended(
        container=container["name"],
        exit_code=int(terminated.get("exitCode", 0)),
        reason=terminated.get("reason") or "",
        message=str(terminated.get("message") or "").strip()[-_LAST_WORDS:],
        at=datetime.fromisoformat(finished) if finished else None,
    )


def _all_ended(raw: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    known = _by_name(status.get("containerStatuses"))
    inits = status.get("initContainerStatuses") or ()
    is_running = any((each.get("state") or {}).get("running") for each in inits)
    named = {*known, *(each["name"] for each in raw["spec"]["containers"])}
    return not is_running and all(_end(known.get(name, {})) for name in named)


def _index(label: str) -> int:
    """A worker's index; 0 for other roles, whatever their label says."""
    return int(label) if label.isascii() and label.isdigit() else 0


def _first_failure(containers: Iterable[Mapping[str, Any]]) -> Ended | None:
    failed = [end for end in map(_end, containers) if end and end.exit_code != 0]
    return min(failed, key=lambda end: (end.at is None, end.at.timestamp() if end.at else 0), default=None)


def _disruption(status: Mapping[str, Any]) -> str:
    target = _condition(status, "DisruptionTarget")
    if target.get("status") == "True":
        return f"{target.get('reason')}: {target.get('message') or ''}".rstrip(": ")
    if status.get("phase") == "Failed" and status.get("reason"):
        return f"{status['reason']}: {status.get('message') or ''}".rstrip(": ")
    return ""


def _waiting(container: Mapping[str, Any]) -> Mapping[str, Any]:
    return (container.get("state") or {}).get("waiting") or {}


def _invalid_image(containers: Iterable[Mapping[str, Any]]) -> str:
    bad = (found for found in containers if _waiting(found).get("reason") == "InvalidImageName")
    return next((f"container {found['name']}: {_waiting(found).get('message') or ''}" for found in bad), "")


def _problem(name: str, status: Mapping[str, Any], containers: Iterable[Mapping[str, Any]]) -> Problem | None:
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        return Problem(
            scheduled.get("reason") or "Unschedulable", f"pod {name}: {scheduled.get('message') or ''}"
        )
    for container in containers:
        waiting = _waiting(container)
        if reason := _BLOCKING.get(waiting.get("reason", "")):
            return Problem(
                reason, f"pod {name}, container {container['name']}: {waiting.get('message') or reason}"
            )
    if status.get("podIP") and ipv4(status) is None:
        return Problem("NoIPv4Address", f"pod {name} has the address {status['podIP']}; DGL speaks IPv4 only")
    return None
