"""Figures that the integration and e2e tests measure: latencies, sizes, accuracies.

Each run writes its own and no others to build/figures-<suite>.json. With DGL_OPERATOR_WRITE_FIGURES=1 a run
of the whole suite in which no test failed renews its table in docs/reference/figures.md.
"""

import json
import os
from dataclasses import dataclass, field

import pytest

from tests.support import measured
from tests.support.suites import whole_suite


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

    def rows(self) -> list[tuple[str, str]]:
        """The rows of the table: what, and the value with its unit."""
        figures = [figure for _, figure in sorted(self.found.items())]
        return [(figure.meaning, f"{figure.value} {figure.unit}".strip()) for figure in figures]

    def write(self, suite: str, session: pytest.Session) -> None:
        """Write this run's figures: always the file, the page if asked for and if the run is whole.

        Args:
            suite: `integration` or `e2e`.
            session: The run.
        """
        if not self.found:
            return
        file = measured.ROOT / "build" / f"figures-{suite}.json"
        file.parent.mkdir(exist_ok=True)
        run = {"measured": measured.circumstances(), "figures": [vars(f) for f in self.found.values()]}
        file.write_text(json.dumps(run, indent=2) + "\n")
        if os.environ.get(measured.WRITE) != "1":
            return
        if session.testsfailed or whole_suite(session.config) != f"tests/{suite}":
            print(f"\n{file}: the page is renewed by a whole run without failures only, and stays as it was")
            return
        measured.write(suite, self.rows())
