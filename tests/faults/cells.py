"""The matrix: which pod meets which fault in which phase, and what must become of its job."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from dgl_operator.api.v1alpha1 import Phase
from dglrun.contract.names import Mode, Role

PHASES = (Phase.PENDING, Phase.STARTING, Phase.PARTITIONING, Phase.PARTITIONED, Phase.TRAINING)
"""Phases in which a job has pods that matter to it."""


class Fault(Enum):
    """What happens to the pod; the value is its name in the table."""

    EXIT = "exits non-zero"
    OOM = "OOM kill"
    DELETED = "pod deleted"
    EVICTED = "evicted through the API"
    REJECTED = "rejected by the kubelet"
    NODE_LOST = "node lost"
    IMAGE = "image cannot be pulled"
    UNSCHEDULABLE = "unschedulable past the limit"
    INIT = "init container fails"


AT_START = (Fault.REJECTED, Fault.IMAGE, Fault.UNSCHEDULABLE)
"""Met by a pod of which nothing has run yet."""
OF_MAIN = (Fault.EXIT, Fault.OOM)
"""Met by a main container that runs."""
OF_ANY = (Fault.DELETED, Fault.EVICTED, Fault.NODE_LOST)
"""Come from outside, and may meet a pod at any time."""


IN_TRAINING = (*OF_MAIN, *OF_ANY)
"""What a worker can meet while all train."""


class End(Enum):
    """What becomes of the job; the value is its name in the table."""

    FAILED = "Failed"
    RETRIED = "new attempt, Completed"
    REPLACED = "new pod, Completed"
    UNDISTURBED = "Completed"


@dataclass(frozen=True)
class Expected:
    """What must become of the job of a cell.

    Attributes:
        reason: Of the failure, where the job fails or a counted attempt follows.
        is_counted: Whether the attempt that follows counts towards `backoffLimit`.
    """

    end: End
    reason: str = ""
    is_counted: bool = False

    def __str__(self) -> str:
        return f"{self.end.value}: {self.reason}" if self.end is End.FAILED else self.end.value


@dataclass(frozen=True)
class Cell:
    """One fault that a pod of a role meets while the job is in a phase.

    Attributes:
        backoff_limit: The job's; with 1 a failure must be made good by another attempt.
        replaces: Whether the launcher says that it goes on when a worker is replaced alone.
    """

    role: Role
    phase: Phase
    fault: Fault
    backoff_limit: int = 0
    replaces: bool = False

    @property
    def name(self) -> str:
        """A name that a job may have."""
        words = "".join(word[0] for word in self.fault.value.split())
        place = f"{self.role.lower}-{self.phase.value.lower()}"
        more = f"{'-again' if self.backoff_limit else ''}{'-replaces' if self.replaces else ''}"
        return f"{place}-{words.lower()}{more}"

    @property
    def mode(self) -> Mode:
        """In DGL-API workers come after the partitioning, which a pod of its own does."""
        early = (Phase.PENDING, Phase.STARTING, Phase.PARTITIONING)
        is_workers = self.role is Role.WORKER and self.phase in early
        is_launchers = (
            self.role is Role.LAUNCHER and self.phase is Phase.PARTITIONING and self.fault in OF_MAIN
        )
        return Mode.DIST_PARMETIS if is_workers or is_launchers else Mode.DGL_API

    @property
    def victim(self) -> str:
        """The pod that meets the fault, without the job's name."""
        return "worker-1" if self.role is Role.WORKER else self.role.lower

    @property
    def expected(self) -> Expected:
        """What must become of the job, by docs/reference/operator.md."""
        if reason := self._reason():
            can_retry = self.backoff_limit > 0 and self.fault not in AT_START
            return Expected(End.RETRIED if can_retry else End.FAILED, reason, can_retry)
        if self._has_ended():
            return Expected(End.UNDISTURBED)
        return Expected(End.RETRIED if self._has_work() else End.REPLACED)

    def _reason(self) -> str:
        """Why the job fails, "" where what happened is no failure of its own."""
        if self.fault is Fault.EXIT:
            is_partitioning = self.phase is Phase.PARTITIONING and self.role is not Role.WORKER
            own = {Role.LAUNCHER: "TrainingFailed", Role.PARTITIONER: "PartitionFailed"}
            return "PartitionFailed" if is_partitioning else own.get(self.role, "PodFailed")
        return {
            Fault.OOM: "OOMKilled",
            Fault.INIT: "PodFailed",
            Fault.IMAGE: "StartDeadlineExceeded",
            Fault.UNSCHEDULABLE: "StartDeadlineExceeded",
        }.get(self.fault, "")

    def _has_ended(self) -> bool:
        return self.role is Role.PARTITIONER and self.phase in (Phase.PARTITIONED, Phase.TRAINING)

    def _has_work(self) -> bool:
        """Whether what the pod has on its disk, or what it waits for, is lost with it."""
        return not self.replaces and (
            self.phase
            in {
                Role.LAUNCHER: (Phase.PARTITIONING, Phase.PARTITIONED, Phase.TRAINING),
                Role.PARTITIONER: (Phase.PARTITIONING,),
                Role.WORKER: (Phase.PARTITIONING, Phase.TRAINING),
            }[self.role]
        )


NOTHING_RUNS = "nothing of the pod runs yet"
ALL_RUNS = "its containers run"
HAS_ENDED = "its work is done, and its containers have ended"
NO_CONTAINER = "its main container has not started"


def impossible(role: Role, phase: Phase, fault: Fault) -> str:
    """Say why a pod of the role cannot meet the fault in the phase, "" when it can."""
    if fault in OF_ANY:
        return ""
    if role is Role.PARTITIONER and phase in (Phase.PARTITIONED, Phase.TRAINING):
        return HAS_ENDED
    if fault in AT_START:
        return _cannot_start_so_late(role, phase, fault)
    if phase is Phase.PENDING:
        return NOTHING_RUNS
    return _has_no_init_left(role, phase) if fault is Fault.INIT else _has_no_main_yet(role, phase)


def _has_no_main_yet(role: Role, phase: Phase) -> str:
    """A worker of which an init container runs may get to its main container at any time."""
    before = {Role.LAUNCHER: (Phase.STARTING, Phase.PARTITIONED), Role.PARTITIONER: (Phase.STARTING,)}
    return NO_CONTAINER if phase in before.get(role, ()) else ""


def _cannot_start_so_late(role: Role, phase: Phase, fault: Fault) -> str:
    """The launcher receives what the partitioner makes; the image of its main container is pulled later."""
    is_main_image = role is Role.LAUNCHER and fault is Fault.IMAGE
    last = {
        Role.LAUNCHER: Phase.PARTITIONED if is_main_image else Phase.PARTITIONING,
        Role.PARTITIONER: Phase.STARTING,
        Role.WORKER: Phase.PARTITIONED,
    }[role]
    is_between = role is Role.WORKER and phase is Phase.PARTITIONING
    return ALL_RUNS if is_between or PHASES.index(phase) > PHASES.index(last) else ""


def _has_no_init_left(role: Role, phase: Phase) -> str:
    if phase is Phase.TRAINING:
        return ALL_RUNS
    is_running = role is not Role.LAUNCHER and phase is Phase.PARTITIONING
    return ALL_RUNS if is_running else ""


def cells() -> Iterator[Cell]:
    """All that can be, in the order of the table; each failure also with an attempt to spare."""
    for role in (Role.LAUNCHER, Role.PARTITIONER, Role.WORKER):
        for fault in Fault:
            for phase in PHASES:
                if impossible(role, phase, fault):
                    continue
                yield Cell(role, phase, fault)
                if fault in (*OF_MAIN, Fault.INIT):
                    yield Cell(role, phase, fault, backoff_limit=1)
    yield from (Cell(Role.WORKER, Phase.TRAINING, fault, replaces=True) for fault in IN_TRAINING)


def of_the_gate() -> Iterator[Cell]:
    """All but some repeats: with an attempt to spare only exits, in each role. `make faults` plays all."""
    return (cell for cell in cells() if cell.backoff_limit == 0 or cell.fault is Fault.EXIT)
