"""What is seen of a job's children, read once into values, so that no decision digs in nested dictionaries.

Containers are judged one by one: a pod with sidecars stays Running after its main container has ended,
and ends Failed when a sidecar does (pod phase, KEP-753). Reads raw and `reduced` objects alike. What a pod
is in the job follows from its name, which nobody can change, and never from its labels.
"""

import math
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dgl_operator.domain import fields
from dglrun.contract import disruption, names
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

_EVICTIONS = ("Evicted", "Preempting", "Terminated", "NodeShutdown", "Shutdown", "NodeLost")
"""Reasons of a failed pod by which kubelets before DisruptionTarget said that they had ended it."""

_ENDED_BY_DELETION = (0, 128 + signal.SIGKILL, 128 + signal.SIGTERM)
"""Exit codes of a main container that was told to end: one that traps SIGTERM ends with 0."""
_MAX_DIGITS = 10
_LAST_LINES = 2048
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
        is_prepared: Whether it has init containers and all of them have ended with 0.
        main_started: Whether the main container has run.
        main_end: How the main container ended.
        all_ended: Whether every container has ended and none of the init containers (native sidecars) runs.
            The kubelet says so a second or two before it gives the pod its final phase.
        first_failure: The first container that ended non-zero, init containers included.
        disruption: Why Kubernetes ended the pod (eviction, preemption, lost node), "" if it did not.
        interrupted: Whether the pod was being evicted, deleted or ended at the time when its main container
            ended, so that an exit code of 0 only says how it took the signal.
        active_deadline: `activeDeadlineSeconds`, None without one.
        invalid_image: The kubelet's message about an image name that can never be pulled.
        problem: What the pod waits for, if that is more than time.
        attempt: The attempt that it belongs to, by its label; 0 without one, as an older operator made it.
        label: That label's number, None without a readable one. Others may take it off or change it.
        is_disrupted: Whether Kubernetes ended the pod for reasons that are not the pod's own.
        failures: The containers that ended with another code than 0, init containers included.
        conditions: `<type>=<status>` of each condition.
        node: The node that it was given to, "" before.
        created: When it was created.
        deleted_at: When its grace period ends or has ended, None of a pod that stays.
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
    is_prepared: bool = False
    main_started: bool = False
    main_end: Ended | None = None
    all_ended: bool = False
    first_failure: Ended | None = None
    disruption: str = ""
    interrupted: bool = False
    active_deadline: int | None = None
    invalid_image: str = ""
    problem: Problem | None = None
    config_hash: str | None = None
    attempt: int = 0
    label: int | None = 0
    is_disrupted: bool = False
    failures: tuple[Ended, ...] = ()
    conditions: tuple[str, ...] = ()
    node: str = ""
    created: datetime | None = None
    deleted_at: datetime | None = None

    @property
    def ended_with_zero(self) -> bool:
        """Whether the main container ended with 0, whatever sidecars do and whatever the cause was."""
        return self.main_end.exit_code == 0 if self.main_end else self.phase == "Succeeded"

    @property
    def succeeded(self) -> bool:
        """Whether the main container ended with 0 of itself."""
        return self.ended_with_zero and not self.interrupted

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
    """All children of one job that carry its UID and a name that it gives.

    Attributes:
        pods: Sorted by role and integer index.
        objects: The other children by (kind, name), as they are stored.
        hears_kueue: Whether a Workload that is absent or leaving is Kueue's word: not where the operator does
            not ask for it, or the cluster does not serve it.
    """

    pods: tuple[Pod, ...] = ()
    objects: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    hears_kueue: bool = True

    @classmethod
    def of(cls, children: Iterable[Mapping[str, Any]], uid: str, job_name: str) -> "Observed":
        """Sort the children of the job with this UID and name; all others are ignored."""
        own = [child for child in children if controller_uid(child) == uid]
        pods = [found for child in own if child["kind"] == "Pod" and (found := pod_of(child, job_name))]
        return cls.from_pods(pods, [child for child in own if child["kind"] != "Pod"])

    @classmethod
    def from_pods(cls, pods: Iterable[Pod], others: Iterable[Mapping[str, Any]]) -> "Observed":
        """Put together what has been read of a job's pods, and its other children."""
        objects = {(child["kind"], _name(child)): child for child in others}
        return cls(tuple(sorted(pods, key=lambda pod: (pod.role.value, pod.index))), objects)

    def of_role(self, role: Role) -> tuple[Pod, ...]:
        """Pods of one role in the order of their index."""
        return tuple(pod for pod in self.pods if pod.role is role)

    def one(self, role: Role) -> Pod | None:
        """The pod of a role that has one, None while it is not there."""
        return next(iter(self.of_role(role)), None)

    def report(self, name: str) -> Mapping[str, str]:
        """Data of the report ConfigMap, empty while there is none."""
        return fields.mapping(self.objects.get(("ConfigMap", name), {}).get("data"))

    def report_attempt(self, name: str) -> int:
        """The attempt that the report ConfigMap belongs to."""
        return attempt_of(self.objects.get(("ConfigMap", name), {}))


def controller_uid(child: Mapping[str, Any]) -> str | None:
    """UID of the controller that owns the object, None without one."""
    owners = fields.items(fields.mapping(child.get("metadata")).get("ownerReferences"))
    return next((fields.text(owner.get("uid")) for owner in owners if owner.get("controller") is True), None)


def attempt_of(raw: Mapping[str, Any]) -> int:
    """Return the attempt that an object belongs to, 0 without a readable label."""
    return _attempt_label(raw) or 0


def _attempt_label(raw: Mapping[str, Any]) -> int | None:
    labels = fields.mapping(fields.mapping(raw.get("metadata")).get("labels"))
    text = fields.text(labels.get(names.LABEL_ATTEMPT))
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else None


def pod_of(raw: Mapping[str, Any], job_name: str) -> Pod | None:
    """Read a pod of the job; None for a name that the job gives to no pod."""
    place = names.role_of(job_name, _name(raw))
    return _pod(raw, *place) if place else None


def _name(child: Mapping[str, Any]) -> str:
    return fields.text(fields.mapping(child.get("metadata")).get("name"))


def _pod(raw: Mapping[str, Any], role: Role, index: int) -> Pod:
    metadata, status = fields.mapping(raw.get("metadata")), fields.mapping(raw.get("status"))
    containers = fields.items(status.get("containerStatuses"))
    main = _by_name(containers).get(_main_container(raw), {})
    before = fields.items(status.get("initContainerStatuses"))
    everyone = [*before, *containers]
    ip = _ipv4(status)
    ends_before, main_end = [_end(each) for each in before], _end(main)
    failures = tuple(
        end for end in (*ends_before, *map(_end, containers)) if end is not None and end.exit_code != 0
    )
    return Pod(
        name=_name(raw),
        uid=fields.text(metadata.get("uid")),
        role=role,
        index=index,
        phase=fields.text(status.get("phase")) or "Pending",
        ip=ip,
        ready=_condition(status, "Ready").get("status") == "True",
        deleting=fields.text(metadata.get("deletionTimestamp")) != "",
        begun=any(_has_run(container) for container in everyone),
        is_prepared=bool(before) and all(end and end.exit_code == 0 for end in ends_before),
        main_started=_has_run(main),
        main_end=main_end,
        all_ended=_all_ended(raw, status),
        first_failure=_first_failure(failures),
        disruption=_disruption(status),
        interrupted=_interrupted(raw, status, main_end),
        active_deadline=fields.whole(_spec(raw).get("activeDeadlineSeconds")),
        invalid_image=_invalid_image(everyone),
        problem=_problem(_name(raw), status, everyone, ip),
        config_hash=_annotations(raw).get(names.ANNOTATION_CONFIG_HASH),
        attempt=attempt_of(raw),
        label=_attempt_label(raw),
        is_disrupted=_is_disrupted(status),
        failures=failures,
        conditions=_conditions(status),
        node=fields.text(_spec(raw).get("nodeName")),
        created=fields.time(metadata.get("creationTimestamp")),
        deleted_at=fields.time(metadata.get("deletionTimestamp")),
    )


def _annotations(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    return fields.mapping(fields.mapping(raw.get("metadata")).get("annotations"))


def _spec(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    return fields.mapping(raw.get("spec"))


def _containers(raw: Mapping[str, Any]) -> list[str]:
    listed = fields.items(_spec(raw).get("containers"))
    return [fields.text(each.get("name")) for each in listed]


def _main_container(raw: Mapping[str, Any]) -> str:
    """Name of the main container as it was rendered; webhooks may have put theirs before it."""
    return fields.text(_annotations(raw).get(names.ANNOTATION_MAIN)) or next(iter(_containers(raw)), "")


def _ipv4(status: Mapping[str, Any]) -> str | None:
    """The pod's IPv4 address; the API server takes spellings such as 010.0.0.1 that nobody here could use."""
    known = {"podIPs": fields.items(status.get("podIPs")), "podIP": fields.text(status.get("podIP"))}
    try:
        return ipv4(known)
    except ValueError:
        return None


def _by_name(statuses: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {fields.text(status.get("name")): status for status in statuses}


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    found = fields.items(status.get("conditions"))
    return next((each for each in found if each.get("type") == kind), {})


def _state(container: Mapping[str, Any], state: str) -> Mapping[str, Any] | None:
    found = fields.mapping(container.get("state")).get(state)
    return found if isinstance(found, dict) else None


def _has_run(container: Mapping[str, Any]) -> bool:
    before = fields.mapping(container.get("lastState")).get("terminated")
    now = _state(container, "running"), _state(container, "terminated")
    return isinstance(before, dict) or any(state is not None for state in now)


def _end(container: Mapping[str, Any]) -> Ended | None:
    terminated = _state(container, "terminated")
    if terminated is None:
        return None
    return Ended(
        container=fields.text(container.get("name")),
        exit_code=fields.whole(terminated.get("exitCode")) or 0,
        reason=fields.text(terminated.get("reason")),
        message=fields.text(terminated.get("message")).strip()[-_LAST_LINES:],
        at=fields.time(terminated.get("finishedAt")),
    )


def _all_ended(raw: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    known = _by_name(fields.items(status.get("containerStatuses")))
    inits = fields.items(status.get("initContainerStatuses"))
    is_running = any(_state(each, "running") is not None for each in inits)
    named = {*known, *_containers(raw)}
    return (
        bool(named)
        and not is_running
        and all(_state(known.get(name, {}), "terminated") is not None for name in named)
    )


def _first_failure(failed: Iterable[Ended]) -> Ended | None:
    return min(failed, key=lambda end: (end.at is None, end.at.timestamp() if end.at else 0), default=None)


def _disruption(status: Mapping[str, Any]) -> str:
    target = _condition(status, disruption.CONDITION)
    if target.get("status") == "True":
        return _said(target)
    is_ended = status.get("phase") == "Failed" and fields.text(status.get("reason")) != ""
    return _said(status) if is_ended else ""


def _is_disrupted(status: Mapping[str, Any]) -> bool:
    """Whether Kubernetes says so; an eviction without this condition is for what the pod used itself."""
    if _condition(status, disruption.CONDITION).get("status") == "True":
        return True
    return status.get("phase") == "Failed" and status.get("reason") in disruption.ENDED_BY_NODE


def _conditions(status: Mapping[str, Any]) -> tuple[str, ...]:
    first: dict[str, str] = {}
    for each in fields.items(status.get("conditions")):
        first.setdefault(fields.text(each.get("type")), fields.text(each.get("status")))
    return tuple(sys.intern(f"{kind}={value}") for kind, value in first.items() if kind)


def _said(holder: Mapping[str, Any]) -> str:
    return f"{fields.text(holder.get('reason'))}: {fields.text(holder.get('message'))}".strip(": ")


def _waiting(container: Mapping[str, Any]) -> tuple[str, str]:
    """Reason and message of a waiting container."""
    waiting = _state(container, "waiting") or {}
    return fields.text(waiting.get("reason")), fields.text(waiting.get("message"))


def _invalid_image(containers: Iterable[Mapping[str, Any]]) -> str:
    for container in containers:
        reason, message = _waiting(container)
        if reason == "InvalidImageName":
            return f"container {fields.text(container.get('name'))}: {message}"
    return ""


def _problem(
    name: str, status: Mapping[str, Any], containers: Iterable[Mapping[str, Any]], ip: str | None
) -> Problem | None:
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        reason, message = fields.text(scheduled.get("reason")), fields.text(scheduled.get("message"))
        return Problem(reason or "Unschedulable", f"pod {name}: {message}")
    for container in containers:
        waiting, message = _waiting(container)
        if reason := _BLOCKING.get(waiting, ""):
            where = f"pod {name}, container {fields.text(container.get('name'))}"
            return Problem(reason, f"{where}: {message or reason}")
    if ip is None and (address := fields.text(status.get("podIP"))):
        return Problem("NoIPv4Address", f"pod {name} has the address {address}; DGL uses IPv4 only")
    return None


def _interrupted(raw: Mapping[str, Any], status: Mapping[str, Any], end: Ended | None) -> bool:
    """Whether something began to end the pod not later than its main container ended.

    Times have whole seconds. A cause in the same second counts as earlier, and so does one where a time is
    missing: a run that was cut short must not pass for a success.
    """
    if end is None and status.get("phase") != "Succeeded":
        return False
    ended = end.at.timestamp() if end and end.at else math.inf
    return any(begun <= ended for begun in _interruptions(raw, status, end))


def _interruptions(raw: Mapping[str, Any], status: Mapping[str, Any], end: "Ended | None") -> Iterator[float]:
    """When something began to end the pod, in seconds; minus infinity where nobody noted the time."""
    metadata, target = fields.mapping(raw.get("metadata")), _condition(status, disruption.CONDITION)
    if fields.text(metadata.get("deletionTimestamp")):
        yield _deletion_began(raw, end)
    if target.get("status") == "True":
        yield _shifted(target.get("lastTransitionTime"), 0)
    elif status.get("phase") == "Failed" and status.get("reason") in _EVICTIONS:
        yield -math.inf
    if status.get("phase") == "Failed" and status.get("reason") == "DeadlineExceeded":
        yield _shifted(status.get("startTime"), _seconds(_spec(raw), "activeDeadlineSeconds"))


def _deletion_began(raw: Mapping[str, Any], end: "Ended | None") -> float:
    """When the pod was deleted: by its grace period before its deletionTimestamp.

    Once the containers have ended, the kubelet deletes the pod again with a grace period of 0, and the API
    server puts its own time into the timestamp. The deletion was then at most the period of the pod's spec
    before: a main container that ended within it, as one does that is told to, was ended by it.
    """
    metadata, key = fields.mapping(raw.get("metadata")), "terminationGracePeriodSeconds"
    grace = _seconds(metadata, "deletionGracePeriodSeconds")
    if not grace and end is not None and end.exit_code in _ENDED_BY_DELETION:
        grace = _seconds(_spec(raw), key)
    return _shifted(metadata.get("deletionTimestamp"), -grace)


def _shifted(time: Any, seconds: int) -> float:
    found = fields.time(time)
    return found.timestamp() + seconds if found else -math.inf


def _seconds(holder: Mapping[str, Any], key: str) -> int:
    return fields.whole(holder.get(key)) or 0
