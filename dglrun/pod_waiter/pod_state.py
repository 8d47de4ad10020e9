"""What is known of one watched pod, and what that means for the wait. Pure."""

from dataclasses import dataclass, replace
from enum import Enum

from dglrun.kube import pods
from dglrun.pod_waiter.config import WatchMode


class WaitState(Enum):
    """How one pod stands to what is waited for."""

    UNSEEN = "not seen yet"
    WAITING = "waiting"
    DONE = "done"
    LOST = "lost"


@dataclass(frozen=True)
class PodSnapshot:
    """The little of a Pod that counts here; so that hundreds of pods stay small.

    Attributes:
        uid: The pod's identity.
        phase: Its phase.
        ip: Its IP, None without.
        is_ready: Its Ready condition.
        is_being_deleted: Whether its deletion was asked for.
        reason: Why it waits or failed.
    """

    uid: str
    phase: str
    ip: str | None
    is_ready: bool
    is_being_deleted: bool
    reason: str

    @classmethod
    def at(cls, pod: pods.Pod) -> "PodSnapshot":
        """Take what counts from a Pod object."""
        phase = pods.phase(pod)
        return cls(
            uid=pods.uid(pod),
            phase=phase,
            ip=pods.ip(pod),
            is_ready=pods.is_ready(pod),
            is_being_deleted=pods.is_being_deleted(pod),
            reason=pods.failure_reason(pod) if phase == "Failed" else pods.waiting_reason(pod),
        )


@dataclass(frozen=True)
class PodState:
    """What all snapshots of one pod add up to.

    Attributes:
        wait: How far it is.
        reason: Why it waits or is lost.
        uid: Identity in the first snapshot; another one later means that the first pod vanished.
        ip: Its IP in the last snapshot.
        forbidden: The API server's words when it last refused to show the pod; None: it showed it.
    """

    wait: WaitState = WaitState.UNSEEN
    reason: str = WaitState.UNSEEN.value
    uid: str | None = None
    ip: str | None = None
    forbidden: str | None = None


def after(state: PodState, snapshot: PodSnapshot | None, mode: WatchMode) -> PodState:
    """What is known after one more snapshot; None means that no such pod exists.

    What finished stays finished, also when the pod is deleted afterwards, and what is lost stays lost.
    """
    if state.wait is WaitState.LOST or (mode is WatchMode.FINISHED and state.wait is WaitState.DONE):
        return state
    state = replace(state, forbidden=None)
    if snapshot is None:
        return state if state.uid is None else _lost(state, "vanished: it was there and is deleted")
    if state.uid not in (None, snapshot.uid):
        return _lost(state, "vanished: another pod has taken its name")
    seen = replace(state, uid=snapshot.uid, ip=snapshot.ip)
    if snapshot.phase == "Failed":
        return _lost(seen, f"failed: {snapshot.reason}")
    return _finished(seen, snapshot) if mode is WatchMode.FINISHED else _ready(seen, snapshot)


def refused(state: PodState, message: str) -> PodState:
    """What is known after the API server answered 403: the account may get its rights later."""
    return replace(state, forbidden=message)


def _finished(seen: PodState, snapshot: PodSnapshot) -> PodState:
    if snapshot.phase == "Succeeded":
        return replace(seen, wait=WaitState.DONE, reason="finished")
    return _deleted_or_waiting(seen, snapshot)


def _ready(seen: PodState, snapshot: PodSnapshot) -> PodState:
    if snapshot.phase == "Succeeded":
        return _lost(seen, "ended before the training began: its containers exited with 0")
    if snapshot.is_ready and not snapshot.is_being_deleted:
        return replace(seen, wait=WaitState.DONE, reason="ready")
    return _deleted_or_waiting(seen, snapshot)


def _deleted_or_waiting(seen: PodState, snapshot: PodSnapshot) -> PodState:
    if snapshot.is_being_deleted:
        return _lost(seen, "is being deleted")
    return replace(seen, wait=WaitState.WAITING, reason=snapshot.reason)


def _lost(state: PodState, reason: str) -> PodState:
    return replace(state, wait=WaitState.LOST, reason=reason)
