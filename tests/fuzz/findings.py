"""What did not hold, each kind of it once with its smallest object, and kept in files."""

import json
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.cases import Case

SHOWN = 1_500
"""Characters of an object that are printed; the file has all."""


@dataclass(frozen=True)
class Finding:
    """One thing that did not hold.

    Attributes:
        kind: What was demanded, in a few words; findings of one kind are counted together.
        details: What was found.
        case: The case that it is about, if that can be told.
    """

    kind: str
    details: str
    case: Case | None = None

    @property
    def size(self) -> int:
        """Bytes of the objects, to keep the smallest."""
        return sum(len(each.body) for each in self.case.submissions) if self.case else 0


class Findings:
    """All findings of a run."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._seed = seed
        self._count: Counter[str] = Counter()
        self._smallest: dict[str, Finding] = {}
        self._lock = threading.Lock()

    def add(self, found: Finding) -> None:
        """Count a finding; print it when it is the first of its kind or smaller than that."""
        with self._lock:
            self._count[found.kind] += 1
            known = self._smallest.get(found.kind)
            if known is None or (found.case and (known.case is None or found.size < known.size)):
                self._smallest[found.kind] = found
                self._write(found)
                print(f"FINDING {self._line(found)}", flush=True)

    def __bool__(self) -> bool:
        return bool(self._count)

    def lines(self) -> list[str]:
        """One for each kind, the most frequent first."""
        return [f"{count:5}  {self._line(self._smallest[kind])}" for kind, count in self._count.most_common()]

    def _line(self, found: Finding) -> str:
        about = (
            f" [case {found.case.number}, {found.case.kind}: {found.case.what[:300]}]" if found.case else ""
        )
        lines = found.details.strip().splitlines() or [""]
        told = lines[0][:300] + (f" … {lines[-1][:300]}" if len(lines) > 1 else "")
        return f"{found.kind}: {told}{about}"

    def _write(self, found: Finding) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        place = self._folder / f"{list(self._smallest).index(found.kind):03}.json"
        kept = {
            "seed": self._seed,
            "kind": found.kind,
            "details": found.details,
            "repeat": f"python -m tests.fuzz --seed {self._seed} --only {found.case.number}"
            if found.case
            else "",
            "case": _told(found.case) if found.case else None,
        }
        place.write_text(json.dumps(kept, indent=1))


def _told(case: Case) -> dict[str, object]:
    return {
        "number": case.number,
        "kind": case.kind,
        "what": case.what,
        "objects": [each.body.decode(errors="replace") for each in case.submissions[:5]],
        "acts": [
            f"{act.method} {act.kind.value[0]} {act.name} {act.subresource} {act.body.decode()}"
            for act in case.acts
        ],
    }


def cut(case: Case) -> str:
    """The case's first object, cut for the screen."""
    text = case.submissions[0].body.decode(errors="replace")
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}… ({len(text)} characters)"
