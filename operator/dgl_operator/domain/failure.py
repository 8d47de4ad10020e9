"""The root cause: which of a job's pods failed first, and how the status says it.

Failures spread: a dead partitioner ends the launcher's watcher, a lost worker ends dglrun. The launcher
is therefore named only when no other pod failed or was lost before it.
"""

import signal
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from dgl_operator.domain.observed import Ended, Observed, Pod
from dglrun.contract import exitcodes, names
from dglrun.contract.names import Role

SPREAD = timedelta(seconds=2)
"""Finish times have whole seconds, and a failure reaches the launcher within one."""

_DEADLINE = "DeadlineExceeded"
_WATCHERS = (names.WATCHER_PARTITIONER, names.WATCHER_WORKER)
_NODES_REASONS = (_DEADLINE, "OutOf", "UnexpectedAdmissionError", "NodeAffinity")


@dataclass(frozen=True)
class Failure:
    """Why the attempt failed: a CamelCase reason and the pod, container, exit code and last log lines.

    Attributes:
        is_disruption: Whether the pod did not fail by itself: it was evicted, preempted or deleted, or lost.
        is_permanent: Whether another attempt would fail in the same way.
    """

    reason: str
    message: str
    pod: str
    at: datetime | None = None
    is_disruption: bool = False
    is_permanent: bool = False


def first_failure(seen: Observed, lost: Iterable[str]) -> Failure | None:
    """Return the root cause, None while all is well.

    Args:
        seen: The job's pods.
        lost: Names of pods that must be there and are not, or are being deleted.
    """
    gone = [_lost(name, seen) for name in lost]
    unknown = {each.pod for each in gone}
    failed = [_failed(pod, seen) for pod in seen.pods if pod.failed and pod.name not in unknown]
    failed += [_unpullable(pod) for pod in seen.pods if pod.invalid_image and not pod.failed]
    failed += [_ended_early(pod) for pod in seen.of_role(Role.WORKER) if pod.succeeded]
    launcher = next((each for each in failed if _is_launcher(each, seen)), None)
    others = sorted((each for each in failed if each is not launcher), key=_time)
    if launcher is None:
        return next(iter([*others, *gone]), None)
    if others and _time(others[0]) <= _time(launcher) + SPREAD.total_seconds():
        return others[0]
    return gone[0] if gone and _says_lost(seen) else launcher


def is_lost(pod: Pod) -> bool:
    """Whether the pod is going away before it has ended by itself, well or not."""
    return pod.deleting and not pod.succeeded and not _failed_by_itself(pod)


def is_replaceable(pod: Pod) -> bool:
    """Whether a pod without work on its disk may be made anew: no container of it failed by itself.

    It was deleted or evicted, or rejected by the kubelet before anything of it ran.
    """
    if pod.succeeded or _failed_by_itself(pod) or pod.invalid_image:
        return False
    return pod.deleting or pod.is_disrupted or _is_rejected(pod)


def _is_rejected(pod: Pod) -> bool:
    """Whether its kubelet refused it before anything of it ran; the user's own deadline is no refusal."""
    return pod.phase == "Failed" and not pod.begun and not pod.disruption.startswith(_DEADLINE)


def of_pod(pod: Pod) -> Failure:
    """Say why a pod cannot be used."""
    seen = Observed((pod,))
    return _failed(pod, seen) if pod.failed else _lost(pod.name, seen)


def _failed_by_itself(pod: Pod) -> bool:
    """Whether a container ended with another code than 0 before anything began to end its pod."""
    if pod.is_disrupted:
        return False
    if pod.main_end:
        return pod.main_end.exit_code != 0 and not pod.interrupted
    return pod.phase == "Failed" and pod.first_failure is not None and not pod.deleting


def _is_launcher(failure: Failure, seen: Observed) -> bool:
    launcher = seen.one(Role.LAUNCHER)
    return launcher is not None and failure.pod == launcher.name


def _says_lost(seen: Observed) -> bool:
    launcher = seen.one(Role.LAUNCHER)
    end = launcher.first_failure if launcher else None
    return end is not None and end.exit_code in (exitcodes.LOST, exitcodes.UNAVAILABLE)


def _says_so(pod: Pod, end: Ended, seen: Observed) -> bool:
    """Whether the launcher says that it has lost another pod: its watcher, or dglrun in its main container.

    dglrun knows of a lost node some seconds before Kubernetes does, and minutes before the pod is deleted. A
    launcher without workers has none to lose: there the code is one of the user's own.
    """
    if end.exit_code != exitcodes.LOST:
        return False
    is_main = pod.role is Role.LAUNCHER and end is pod.main_end
    return end.container in _WATCHERS or (is_main and bool(seen.of_role(Role.WORKER)))


def _time(failure: Failure) -> float:
    return failure.at.timestamp() if failure.at else 0.0


def _lost(name: str, seen: Observed) -> Failure:
    pod = next((pod for pod in seen.pods if pod.name == name), None)
    if pod and pod.disruption:
        return _evicted(pod, pod.main_end.at if pod.main_end else None)
    how = "is being deleted" if pod else "is gone"
    return Failure("PodLost", f"pod {name} {how}; its local data is lost", name, is_disruption=True)


def _evicted(pod: Pod, at: datetime | None) -> Failure:
    """The node's own reasons are no eviction: it refused the pod, or the user's deadline passed."""
    if pod.disruption.startswith(_NODES_REASONS):
        is_disruption = pod.is_disrupted or _is_rejected(pod)
        return Failure("PodFailed", f"pod {pod.name}: {pod.disruption}", pod.name, at, is_disruption)
    return Failure("Evicted", f"pod {pod.name} was evicted: {pod.disruption}", pod.name, at, pod.is_disrupted)


def _unpullable(pod: Pod) -> Failure:
    return Failure("InvalidImageName", f"pod {pod.name}, {pod.invalid_image}", pod.name, is_permanent=True)


def _ended_early(pod: Pod) -> Failure:
    words = "ended with exit code 0; a worker's main container must live until the job ends"
    return Failure(
        "PodFailed", f"pod {pod.name} {words}", pod.name, pod.main_end.at if pod.main_end else None
    )


def _failed(pod: Pod, seen: Observed) -> Failure:
    end = pod.main_end if pod.main_end and pod.main_end.exit_code else pod.first_failure
    at = end.at if end else None
    if pod.disruption:
        return _evicted(pod, at)
    if pod.ended_with_zero:  # deletion is all else that interrupts a pod
        words = "is being deleted; its local data is lost"
        return Failure("PodLost", f"pod {pod.name} {words}", pod.name, at, is_disruption=True)
    if end is None:
        return Failure("PodFailed", f"pod {pod.name} failed; the node reported no container's end", pod.name)
    return Failure(
        _reason(pod, end), f"pod {pod.name}, {_words(end)}", pod.name, at, _says_so(pod, end, seen)
    )


def _reason(pod: Pod, end: Ended) -> str:
    if end.reason == "OOMKilled":
        return "OOMKilled"
    if pod.main_end is None:
        return "PodFailed"
    if pod.role is Role.LAUNCHER and end.exit_code == exitcodes.HUNG:
        return "TrainingHung"
    return {
        Role.LAUNCHER: "TrainingFailed",
        Role.PARTITIONER: "PartitionFailed",
        Role.WORKER: "PodFailed",
    }[pod.role]


def _words(end: Ended) -> str:
    code = f"container {end.container}, exit code {end.exit_code}{_signal(end.exit_code)}"
    if end.reason not in ("", "Error"):
        code += f", {end.reason}"
    return f"{code}: {end.message}" if end.message else code


def _signal(exit_code: int) -> str:
    try:
        return f" ({signal.Signals(exit_code - 128).name})"
    except ValueError:
        return ""
