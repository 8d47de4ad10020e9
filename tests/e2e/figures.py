"""Figures that the e2e run measures: latencies and sizes, written by the run and not by hand.

Each run writes build/e2e-figures.json; with DGL_OPERATOR_WRITE_FIGURES=1 it also renews
docs/reference/figures.md, which is committed.
"""

import json
import os
import platform
import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[2]
JSON = ROOT / "build" / "e2e-figures.json"
PAGE = ROOT / "docs" / "reference" / "figures.md"


@dataclass(frozen=True)
class Figure:
    """One measured value with its unit and what it means."""

    name: str
    value: float
    unit: str
    meaning: str


@dataclass
class Figures:
    """The figures of one run."""

    found: dict[str, Figure] = field(default_factory=dict)

    def add(self, name: str, value: float, unit: str, meaning: str) -> None:
        """Keep a figure; a later one of the same name replaces it."""
        self.found[name] = Figure(name, round(value, 3), unit, meaning)

    def write(self) -> None:
        """Write build/e2e-figures.json, merged with what earlier runs found, and the page if asked for."""
        if not self.found:
            return
        JSON.parent.mkdir(exist_ok=True)
        known = json.loads(JSON.read_text()) if JSON.exists() else {}
        known.update({name: vars(figure) for name, figure in self.found.items()})
        JSON.write_text(json.dumps(known, indent=2) + "\n")
        if os.environ.get("DGL_OPERATOR_WRITE_FIGURES") == "1":
            PAGE.write_text(page(known))


def page(known: dict[str, dict[str, object]]) -> str:
    """The figures as a Markdown page."""
    rows = [f"| {f['meaning']} | {f['value']} {f['unit']} |" for _, f in sorted(known.items())]
    return "\n".join(
        [
            "# Figures",
            "",
            "<!-- written by the e2e run (DGL_OPERATOR_WRITE_FIGURES=1 make e2e); do not edit -->",
            f"Measured on {datetime.now(UTC):%Y-%m-%d} at commit {_commit()}: one node,",
            f"{os.cpu_count()} cores,",
            f"{platform.system()} {platform.release().split('-')[0]}, default stack.",
            "Kubernetes times have a resolution of 1 s.",
            "Your machine differs; the tests assert deadlines, never these values.",
            "",
            "| What | Measured |",
            "|---|---|",
            *rows,
            "",
        ]
    )


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    return done.stdout.strip() or "unknown"
