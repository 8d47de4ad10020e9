"""What was sent, what was taken, and what became of it, counted by kind of oddity."""

import threading
from collections import Counter, defaultdict
from collections.abc import Mapping


class Tally:
    """Counts of one run; several threads add to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cases: Counter[str] = Counter()
        self._accepted: Counter[str] = Counter()
        self._refusals: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._statuses: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._acts: Counter[str] = Counter()

    def case(self, kind: str) -> None:
        """Count a case."""
        with self._lock:
            self._cases[kind] += 1

    def submission(self, kind: str, refusal: str | None) -> None:
        """Count an object that was sent; None: it was taken."""
        with self._lock:
            if refusal is None:
                self._accepted[kind] += 1
            else:
                self._refusals[kind][refusal] += 1

    def act(self, kind: str, refusal: str | None) -> None:
        """Count what happened to an object."""
        with self._lock:
            self._acts["done" if refusal is None else refusal] += 1

    def status(self, kind: str, reason: str) -> None:
        """Count what became of a job."""
        with self._lock:
            self._statuses[kind][reason] += 1

    def lines(self) -> list[str]:
        """The table."""
        head = f"{'kind':<26}{'cases':>6}{'accepted':>10}{'refused':>9}  statuses of the accepted jobs"
        rows = [self._row(kind) for kind in sorted(self._cases, key=lambda kind: -self._cases[kind])]
        return [head, *rows, "", *self._totals()]

    def _row(self, kind: str) -> str:
        refused = sum(self._refusals[kind].values())
        counts = f"{self._cases[kind]:>6}{self._accepted[kind]:>10}{refused:>9}"
        return f"{kind:<26}{counts}  {_listed(self._statuses[kind])}"

    def _totals(self) -> list[str]:
        return [
            f"refused: {_listed(_sum(self._refusals))}",
            f"statuses: {_listed(_sum(self._statuses))}",
            f"acts: {_listed(self._acts)}",
        ]


def _sum(parts: Mapping[str, Counter[str]]) -> Counter[str]:
    return sum(parts.values(), Counter())


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common()) or "none"
