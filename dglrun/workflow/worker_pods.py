"""The worker pods of a run: where they are, whether one is still the one that it was, and its replacement.

A pod of the same name with another UID has an empty disk. Whether a loss costs an attempt is the operator's
to say: this side only waits, until the new pod is there or its own is deleted.
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from dglrun.contract import exitcodes, names
from dglrun.contract.hostfile import Host
from dglrun.errors import RunError
from dglrun.workflow.config import RunConfig
from dglrun.workflow.pod_access import ApiServer, living_pod
from dglrun.workflow.steps import Step

POLL_SECONDS = 0.5


class WorkersLostError(RunError):
    """Workers were lost with their pods, not by a failure of their own.

    Attributes:
        reasons: Why each of them is lost, by pod.
        cause: What the run fails with where they prove to be there.
    """

    def __init__(self, reasons: dict[str, str], cause: RunError | None = None) -> None:
        super().__init__("; ".join(f"worker lost: {why}" for why in reasons.values()), exitcodes.LOST)
        self.reasons, self.cause = reasons, cause


class Fate(Enum):
    """What the API server says of a pod."""

    LIVES = "lives"
    LOST = "lost"
    """It is gone; one of its name is another pod."""
    GOING = "going"
    """It is the one that it was, and is being deleted or disrupted."""
    FORBIDDEN = "forbidden"
    """It may not be read: it is not the job's own any more, or an API server that starts does not know."""
    ENDED = "ended"
    UNKNOWN = "unknown"

    @property
    def is_loss(self) -> bool:
        """Whether a pod is lost, where something has failed already."""
        return self in (Fate.LOST, Fate.GOING, Fate.FORBIDDEN)


@dataclass(frozen=True)
class WorkerPod:
    """A worker as it was found."""

    host: Host
    uid: str


def find(config: RunConfig, cluster: ApiServer) -> tuple[WorkerPod, ...]:
    """The workers by index, with their live IPs; their names are known before they exist.

    Raises:
        RunError: a worker has no IP within the deadline, or is gone.
    """
    deadline = time.monotonic() + config.start_timeout
    pods = names.workers(config.context.job, config.workers)
    return tuple(_find(cluster, pod, deadline) for pod in pods)


def _find(cluster: ApiServer, name: str, deadline: float) -> WorkerPod:
    from dglrun.kube import pods  # noqa: PLC0415 - not needed in a Skip job

    while True:
        pod = living_pod(cluster, name)
        if ip := pods.ip(pod):
            return WorkerPod(Host(ip, names.DGL_PORT, name), pods.uid(pod))
        if time.monotonic() > deadline:
            raise RunError(f"pod {name} has no IPv4 address: {pods.waiting_reason(pod)}", exitcodes.TIMEOUT)
        time.sleep(POLL_SECONDS)


def _fate_of(pod: dict[str, Any], name: str, uid: str) -> tuple[Fate, str]:
    from dglrun.kube import pods  # noqa: PLC0415 - as above

    if pods.uid(pod) != uid:
        return Fate.LOST, f"pod {name} was replaced"
    if pods.is_disrupted(pod):
        return Fate.GOING, f"pod {name} was evicted: {pods.failure_reason(pod)}"
    if pods.is_being_deleted(pod):
        return Fate.GOING, f"pod {name} is being deleted"
    has_ended = pods.phase(pod) in ("Failed", "Succeeded")
    return (Fate.ENDED if has_ended else Fate.LIVES), ""


class Replacements:
    """Waits for the pods that the operator makes in the place of lost ones.

    Args:
        cluster: The API server.
        workers: The workers that have their parts, by index.
        seconds: How long a replacement is waited for.
        steps: What brings the parts of some workers to them and trains again on all.
    """

    def __init__(
        self,
        cluster: ApiServer,
        workers: Sequence[WorkerPod],
        seconds: float,
        steps: Callable[[Sequence[Host], Collection[str]], tuple[Step, ...]],
    ) -> None:
        self._cluster, self._seconds, self._steps = cluster, seconds, steps
        self._workers = {each.host.name: each for each in workers}
        self._without_part: set[str] = set()

    def fate(self, name: str) -> tuple[Fate, str]:
        """What has become of a worker's pod, with the reason where it is lost."""
        from dglrun.kube import errors  # noqa: PLC0415 - as above

        try:
            pod = self._cluster.get_pod(name)
        except errors.NotFound:
            return Fate.LOST, f"pod {name} does not exist"
        except errors.Forbidden:
            return Fate.FORBIDDEN, f"pod {name} is not this job's any more"
        except errors.ApiError as error:
            return Fate.UNKNOWN, str(error)
        return _fate_of(pod, name, self._workers[name].uid)

    def lost(self) -> dict[str, str]:
        """Those workers that are lost now, with the reasons; each is asked for once."""
        found: dict[str, str] = {}
        for name in self._workers:
            fate, why = self.fate(name)
            if fate is Fate.UNKNOWN:  # the API server is away, which each further question would wait for
                break
            if fate.is_loss:
                found[name] = why
        return found

    def await_all(self, error: WorkersLostError) -> tuple[Step, ...]:
        """Wait for the replacements of lost workers; returns what trains again.

        Raises:
            RunError: one is not there within the time, or all are the pods that they were.
        """
        before, deadline = self._workers, time.monotonic() + self._seconds
        for name in error.reasons:
            found = self._await(name, deadline)
            if found is None:
                what = f"{error} [no replacement of {name} is Ready within {self._seconds:g} s]"
                raise RunError(what, error.code) from error
            if found.uid != self._workers[name].uid:
                self._without_part.add(name)
                self._workers = {**self._workers, name: found}
        if self._workers == before:  # whatever has failed would do so again
            raise error.cause or error
        hosts = [each.host for each in self._workers.values()]
        return self._steps(hosts, frozenset(self._without_part))

    def delivered(self) -> None:
        """Note that all workers have their parts."""
        self._without_part.clear()

    def _await(self, name: str, deadline: float) -> WorkerPod | None:
        while time.monotonic() <= deadline:
            if found := self._ready(name):
                return found
            time.sleep(POLL_SECONDS)
        return None

    def _ready(self, name: str) -> WorkerPod | None:
        from dglrun.kube import errors, pods  # noqa: PLC0415 - as above

        try:
            pod = self._cluster.get_pod(name)
        except errors.ApiError:  # it is not there yet, or not the job's own, or nobody says
            return None
        ip, is_leaving = pods.ip(pod), pods.is_being_deleted(pod) or pods.is_disrupted(pod)
        if not ip or is_leaving or not pods.is_ready(pod) or pods.phase(pod) != "Running":
            return None
        return WorkerPod(Host(ip, names.DGL_PORT, name), pods.uid(pod))
