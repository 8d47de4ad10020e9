"""Whether a training hangs: no process of any worker has shown activity for too long."""

from collections.abc import Mapping
from dataclasses import dataclass

from dglrun.contract import exitcodes
from dglrun.errors import RunError

FRESH_SECONDS = 15.0
"""A worker that has told nothing for so long may be active: a connection that broke is no hang."""
ALIKE_SECONDS = 3.0
"""Ranks that became idle this close to the first one are named with it: agents look every 3 s."""
NAMED = 4
LAST_LINES = 40


@dataclass(frozen=True)
class IdleRank:
    """A rank and how long it has been idle."""

    pod: str
    who: str
    rank: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.pod}: {self.who} (rank {self.rank}), {self.seconds:.0f} s"


class HangWatch:
    """What the agents have told of their processes.

    Args:
        ranks: Rank of each trainer, by its pod and name.
        pods: All workers.
        seconds: How long all must be idle; None: a training never hangs.
    """

    def __init__(
        self, ranks: Mapping[tuple[str, str], int], pods: tuple[str, ...], seconds: float | None
    ) -> None:
        self._ranks, self._pods, self._seconds = ranks, pods, seconds
        self._told: dict[str, tuple[float, Mapping[str, float]]] = {}
        self._wanted: set[str] = set()
        self._lines: dict[tuple[str, str], list[str]] = {}

    def heard(self, pod: str, idle: Mapping[str, float], now: float) -> None:
        """Take what an agent tells: idle seconds of each process that runs on its worker."""
        self._told[pod] = now, idle

    def idlest(self, now: float) -> list[IdleRank]:
        """The ranks that have been idle longest, of a training that hangs; none if it does not hang."""
        told = [self._told.get(pod, (0.0, {})) for pod in self._pods]
        seconds = [each for _time, idle in told for each in idle.values()]
        if self._seconds is None or min(seconds, default=0.0) < self._seconds:
            return []
        if any(now - time > FRESH_SECONDS for time, _idle in told):
            return []
        ranks = [
            IdleRank(pod, who, self._ranks[pod, who], each)
            for pod, (_time, idle) in zip(self._pods, told, strict=True)
            for who, each in idle.items()
            if (pod, who) in self._ranks
        ]
        ranks.sort(key=lambda rank: (-rank.seconds, rank.rank))
        return [rank for rank in ranks if rank.seconds > ranks[0].seconds - ALIKE_SECONDS]

    # --- stacks

    def want_stacks(self) -> None:
        """From now on lines are kept, until all workers have told that they have no more."""
        self._wanted = set(self._pods)

    @property
    def has_stacks(self) -> bool:
        """Whether all workers have told so."""
        return not self._wanted

    def told_stacks(self, pod: str) -> None:
        """A worker has no more lines."""
        self._wanted.discard(pod)

    def line(self, pod: str, who: str, text: str) -> None:
        """Keep a line that may be of a stack."""
        if self._wanted:
            self._lines.setdefault((pod, who), []).append(text)

    def error(self, idlest: list[IdleRank]) -> RunError:
        """The failure of a training that hangs, with the stack of the rank that is idle longest."""
        first = idlest[0]
        named = "; ".join(map(str, idlest[:NAMED])) + (
            f" and {len(idlest) - NAMED} more" * (len(idlest) > NAMED)
        )
        what = f"the training hangs: no process was active for {self._seconds:g} s (--hang-timeout)"
        words = "\n".join(self._lines.get((first.pod, first.who), [])[-LAST_LINES:])
        return RunError(f"{what}; idle longest: {named}", exitcodes.HUNG, words)
