"""What a run tells of the operator's end and of its memory."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fuzz import run
from tests.fuzz.findings import Finding
from tests.fuzz.judge import LOOKS
from tests.fuzz.run import GROWTH, SETTLE_SECONDS, Options, Run
from tests.fuzz.watched import LogError


class Clock:
    """Time that passes only where somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Operator:
    """One that the run watches.

    Attributes:
        memory: MiB of each second, the last one for ever.
        logged: Errors that were logged since the last look.
        looks: How many looks it has taken at jobs.
    """

    def __init__(self, clock: Clock, log: Path) -> None:
        self.memory, self.logged, self.looks = [100.0], list[LogError](), 0
        self.problem: Finding | None = None
        self.peak_mib = 0.0
        log.write_text("")
        self.process: Any = SimpleNamespace(
            memory_mib=lambda: self.memory[min(int(clock.now), len(self.memory) - 1)],
            wait_idle=lambda: None,
            is_running=True,
            reconciles=lambda: self.looks,
            poll=lambda: 1,
            log=log,
        )

    def errors(self) -> list[LogError]:
        found, self.logged = self.logged, []
        return found

    def counted_errors(self) -> float:
        return 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(run, "time", made)
    return made


@pytest.fixture
def operator(clock: Clock, tmp_path: Path) -> Operator:
    return Operator(clock, tmp_path / "operator.log")


@pytest.fixture
def a_run(operator: Operator) -> Run:
    """A run of no cases, whose innocent jobs are played by nobody and leave nothing."""
    raw = SimpleNamespace(names=lambda _kind, _place: {"kube-root-ca.crt"})
    stage = SimpleNamespace(api=None, raw=raw, tenant="a", quiet="b", operator=operator)
    stage.stop = stage.start = lambda: None
    made = Run(Options(1, ()), stage)  # type: ignore[arg-type]
    kept: list[Finding] = []
    made.findings = SimpleNamespace(add=kept.append, kept=kept)  # type: ignore[assignment]
    nothing = SimpleNamespace(
        warm_up=lambda _number: None,
        measure=lambda _rounds: None,
        begin=lambda: None,
        stop=lambda: None,
        times={"a": None, "b": None},
        played=20,
    )
    made._innocents = nothing  # type: ignore[assignment]
    return made


def told(a_run: Run) -> list[str]:
    return [each.kind for each in a_run.findings.kept]  # type: ignore[attr-defined]


def test_the_start_is_the_memory_when_what_is_not_needed_was_given_back(
    a_run: Run, operator: Operator
) -> None:
    """As the end is: else the limit would be higher by what the first jobs have left behind."""
    operator.memory = [130.0] * 15 + [100.0] * 5 + [110.0]

    a_run.warm_up()
    operator.memory = [131.0]
    a_run.settle()

    assert told(a_run) == ["memory has not come back"]
    assert a_run._memory() == "100 MiB at the start, 0 MiB at its peak, 131 MiB at the end"


def test_memory_that_comes_back_in_time_is_no_finding(a_run: Run, clock: Clock, operator: Operator) -> None:
    """And no longer waited for then."""
    a_run.warm_up()
    begun = clock.now
    operator.memory = [300.0] * int(begun + 20) + [GROWTH * 100.0]

    a_run.settle()

    assert told(a_run) == []
    assert clock.now == begun + 20 < begun + SETTLE_SECONDS


@pytest.mark.parametrize("problem", [None, Finding("/healthz is not 200", "500: a thread has ended")])
def test_an_operator_that_ends_in_the_last_clean_up_is_told(
    a_run: Run, operator: Operator, problem: Finding | None
) -> None:
    """No batch comes any more that would notice."""
    a_run.warm_up()
    operator.problem, operator.process.is_running, operator.memory = problem, problem is not None, [0.0]

    a_run.fuzz()
    a_run.settle()

    kind = problem.kind if problem else "the operator's process ended"
    assert told(a_run) == [f"{kind} (no traceback)"]
    assert a_run._deaths == 1


@pytest.mark.parametrize(("more", "kinds"), [(0, []), (1, ["too many looks"])])
def test_an_operator_that_looks_over_and_over_is_told(
    a_run: Run, operator: Operator, more: int, kinds: list[str]
) -> None:
    """It would keep the API server so busy that no innocent job is judged by its time."""
    a_run.warm_up()
    operator.looks = LOOKS * 20 + more

    a_run.settle()

    assert told(a_run) == kinds


def test_what_an_operator_has_logged_is_judged_before_another_takes_its_place(
    a_run: Run, operator: Operator
) -> None:
    """Its log is not read from the beginning afterwards."""
    operator.logged = [LogError("", "boom", "KeyError")]

    a_run._restart()

    assert told(a_run) == ["logged: KeyError (not counted by a metric)"]
