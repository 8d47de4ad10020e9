"""What is known of one watched pod, and what that means for the wait. Pure."""

from dataclasses import dataclass, replace
from enum import Enum

from dglrun.kube import pods
from dglrun.pod_waiter.config import WatchMode


class Standing(Enum):
    """How one pod stands to what is waited for."""

    UNSEEN = "not seen yet"
    WAITING = "waiting"
    DONE = "done"
    LOST = "lost"


@dataclass(frozen=True)
class Look:
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
    def at(cls, pod: pods.Pod) -> "Look":
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
class Sight:
    """What all looks at one pod together say.

    Attributes:
        standing: How it stands.
        reason: Why it waits or is lost.
        uid: Identity at the first look; another one later means that the first pod vanished.
        ip: Its IP at the last look.
        forbidden: The API server's words when it last refused to show the pod; None: it showed it.
    """

    standing: Standing = Standing.UNSEEN
    reason: str = Standing.UNSEEN.value
    uid: str | None = None
    ip: str | None = None
    forbidden: str | None = None


def after(sight: Sight, look: Look | None, mode: WatchMode) -> Sight:
    """What is known after one more look; None means that no such pod exists.

    What finished stays finished, also when the pod is deleted afterwards, and what is lost stays lost.
    """
    if sight.standing is Standing.LOST or (mode is WatchMode.FINISHED and sight.standing is Standing.DONE):
        return sight
    sight = replace(sight, forbidden=None)
    if look is None:
        return sight if sight.uid is None else _lost(sight, "vanished: it was there and is deleted")
    if sight.uid not in (None, look.uid):
        return _lost(sight, "vanished: another pod has taken its name")
    seen = replace(sight, uid=look.uid, ip=look.ip)
    if look.phase == "Failed":
        return _lost(seen, f"failed: {look.reason}")
    return _finished(seen, look) if mode is WatchMode.FINISHED else _ready(seen, look)


def refused(sight: Sight, message: str) -> Sight:
    """What is known after the API server answered 403: the account may get its rights later."""
    return replace(sight, forbidden=message)


def _finished(seen: Sight, look: Look) -> Sight:
    if look.phase == "Succeeded":
        return replace(seen, standing=Standing.DONE, reason="finished")
    return _deleted_or_waiting(seen, look)


def _ready(seen: Sight, look: Look) -> Sight:
    if look.phase == "Succeeded":
        return _lost(seen, "ended before the training began: its containers exited with 0")
    if look.is_ready and not look.is_being_deleted:
        return replace(seen, standing=Standing.DONE, reason="ready")
    return _deleted_or_waiting(seen, look)


def _deleted_or_waiting(seen: Sight, look: Look) -> Sight:
    if look.is_being_deleted:
        return _lost(seen, "is being deleted")
    return replace(seen, standing=Standing.WAITING, reason=look.reason)


def _lost(sight: Sight, reason: str) -> Sight:
    return replace(sight, standing=Standing.LOST, reason=reason)
