"""Kubelets that the test plays: what a node does next with a pod, by what the pod and its job show.

A pod is bound to its node by the test, too, since one that is bound ends as a real one does: with a grace
period, in which its containers end and only then its object goes.
"""

import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from dgl_operator.api.v1alpha1 import Phase
from dglrun.contract import names
from dglrun.contract.names import Mode, Role
from tests.support.jobs import ended, running, waiting
from tests.support.played_job import reported

Json = dict[str, Any]
PREPARE = "prepare"
"""The init container of partitioner and workers; the launcher's are the operator's."""
FIRST_WATCHER = "watcher-loop-partitioner"
TERMINATED = 143

_ORDER = tuple(Phase)


class Step(Enum):
    """What a node does with a pod."""

    BIND = "give it to its node"
    INIT = "start an init container"
    RUN = "start the main container"
    SUCCEED = "end with 0"
    END = "end the containers of a pod that is being deleted"
    REMOVE = "say that nothing of it runs any more"


def now() -> str:
    """The time as objects have it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def next_step(pod: Json, pods: Sequence[Json], mode: Mode, until: Phase, workers: int = 2) -> Step | None:
    """Return what is to be done with a pod so that its job gets to a phase, None when nothing is.

    Args:
        pod: The pod.
        pods: All pods of its job.
        mode: The job's.
        until: The job is brought to this phase and no further.
        workers: How many the job has.
    """
    is_bound = bool(pod["spec"].get("nodeName"))
    if "deletionTimestamp" in pod["metadata"]:  # one without a node is removed by the API server
        return _ending(pod) if is_bound else None
    if _phase(pod) in ("Succeeded", "Failed"):
        return None
    if not is_bound:
        return Step.BIND
    if _runs(pod, "containerStatuses"):
        return Step.SUCCEED if _is_due(_ends(pod), until) else None
    if _is_due(_begins(pod, mode), until) and _may_begin(pod, pods, mode, workers):
        return Step.RUN
    is_due = _is_due(Phase.STARTING if _is_early(pod, mode) else Phase.PARTITIONED, until)
    return Step.INIT if is_due and not _runs(pod, "initContainerStatuses") else None


def _ending(pod: Json) -> Step:
    return Step.END if _runs(pod, "initContainerStatuses", "containerStatuses") else Step.REMOVE


def status_after(step: Step, pod: Json) -> Json:
    """Return the pod's status after a step that changes it."""
    address = pod["status"].get("podIP") or _address(pod["metadata"]["uid"])
    name = FIRST_WATCHER if role(pod) is Role.LAUNCHER else PREPARE
    if step is Step.INIT:
        return reported("Pending", ip=address, containers=[waiting()], init=[running(name)])
    if step is Step.RUN:
        return reported("Running", ip=address, ready=True, init=[ended(name, at=now())])
    if step is Step.SUCCEED:
        return reported("Succeeded", ip=address, containers=[ended(at=now())], init=[ended(name, at=now())])
    keys = ("initContainerStatuses", "containerStatuses")
    return {"phase": "Failed", **{key: [_ended(each) for each in _containers(pod, key)] for key in keys}}


def role(pod: Json) -> Role:
    """The pod's role."""
    return Role(pod["metadata"]["labels"][names.LABEL_REPLICA_TYPE])


def attempt(pod: Json) -> int:
    """The attempt that the pod belongs to."""
    return int(pod["metadata"]["labels"].get(names.LABEL_ATTEMPT, 0))


def _is_due(phase: Phase, until: Phase) -> bool:
    return _ORDER.index(phase) <= _ORDER.index(until)


def _is_early(pod: Json, mode: Mode) -> bool:
    """Whether the pod is there from the beginning."""
    return role(pod) is not Role.WORKER or mode is Mode.DIST_PARMETIS


def _begins(pod: Json, mode: Mode) -> Phase:
    """The phase in which the main container of a pod starts."""
    if mode is Mode.DIST_PARMETIS or role(pod) is Role.PARTITIONER:
        return Phase.PARTITIONING
    return Phase.TRAINING


def _ends(pod: Json) -> Phase:
    """The phase to which the main container's success brings the job; a worker's never ends of itself."""
    return {Role.LAUNCHER: Phase.COMPLETED, Role.PARTITIONER: Phase.PARTITIONED, Role.WORKER: Phase.FAILED}[
        role(pod)
    ]


def _may_begin(pod: Json, pods: Sequence[Json], mode: Mode, workers: int) -> bool:
    """Whether nothing holds the main container up: the launcher's waits until all workers are Ready."""
    if role(pod) is not Role.LAUNCHER:
        return True
    ready = [
        each
        for each in pods
        if role(each) is Role.WORKER
        and attempt(each) == attempt(pod)
        and "deletionTimestamp" not in each["metadata"]
        and _runs(each, "containerStatuses")
    ]
    return len(ready) == (workers if mode.has_workers else 0)


def _phase(pod: Json) -> str:
    return str(pod.get("status", {}).get("phase", "Pending"))


def _containers(pod: Mapping[str, Any], key: str) -> list[Json]:
    return list(pod.get("status", {}).get(key) or [])


def _runs(pod: Json, *keys: str) -> bool:
    return any("running" in each.get("state", {}) for key in keys for each in _containers(pod, key))


def _ended(container: Json) -> Json:
    if "running" not in container["state"]:
        return container
    return {**container, "ready": False, **ended(container["name"], code=TERMINATED, at=now())}


def _address(uid: str) -> str:
    """An address of the pod's own, where nothing listens."""
    number = zlib.crc32(uid.encode())
    return f"10.{128 + number % 64}.{number // 64 % 256}.{1 + number // 16384 % 254}"
