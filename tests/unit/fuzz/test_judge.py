"""What counts as a finding in the operator's log."""

import json
from http.client import IncompleteRead
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fuzz import judge, watched
from tests.fuzz.batch import reason_of
from tests.fuzz.cases import Case
from tests.fuzz.findings import Finding, Findings
from tests.fuzz.run import Options, Run
from tests.fuzz.watched import LogError, Watched
from tests.support import operator_process
from tests.support.operator_process import OperatorProcess

TRACE = """Traceback (most recent call last):
  File "/x/dgl_operator/runtime/queue.py", line 9, in _one
    outcome = await run(key)
  File "/x/dgl_operator/domain/observed.py", line 150, in _pod
    role=Role(labels[names.LABEL_REPLICA_TYPE]),
KeyError: 'dgl-replica-type'
"""
JOB = ("team", "sage")
CASE = Case(1, "mutant", "odd", "sage", ())
STALLED = {"conditions": [{"type": "Stalled", "status": "True", "reason": "InternalError"}]}


def a_log(*records: object) -> str:
    return "".join(f"{record if isinstance(record, str) else json.dumps(record)}\n" for record in records)


def test_an_exception_is_named_by_its_type_and_the_operators_innermost_frame() -> None:
    """Findings of one bug are counted together."""
    record = {"level": "error", "message": "team/sage: reconcile failed", "error": TRACE}

    (found,) = watched.errors_of(a_log({"level": "info", "message": "team/sage: Pending"}, record))

    assert (found.job, found.bug) == ("team/sage", "KeyError in domain/observed.py _pod")


def test_an_exception_of_several_lines_is_named_by_its_first() -> None:
    """As those of pydantic are."""
    trace = TRACE.replace(
        "KeyError: 'dgl-replica-type'", "pydantic_core.ValidationError: 1 error\nmessage\n  long"
    )

    assert watched.bug_of(trace) == "ValidationError in domain/observed.py _pod"
    assert watched.bug_of('{"level": "info"}') == ""


def test_text_that_no_logger_wrote_is_an_error_when_it_is_a_traceback() -> None:
    """That is how Python itself ends a process."""
    (found,) = watched.errors_of(a_log("usage: dgl-operator", *TRACE.splitlines()))

    assert found.job == ""
    assert found.bug.startswith("KeyError")
    assert watched.errors_of(a_log("a note")) == []


@pytest.mark.parametrize(
    ("bug", "status", "counted", "expected"),
    [
        ("", STALLED, 1.0, []),
        ("", STALLED, 0.0, ["logged: error (not counted by a metric)"]),
        ("", STALLED, None, []),
        ("", {"phase": "Pending"}, None, ["logged: error (its job does not say so)"]),
        ("", {"phase": "Pending"}, 1.0, ["logged: error (its job does not say so)"]),
        ("KeyError", STALLED, 1.0, ["logged: KeyError"]),
        ("KeyError", {}, 0.0, ["logged: KeyError (not counted by a metric, its job does not say so)"]),
    ],
)
def test_an_error_is_fine_when_metric_and_status_say_so_and_no_bug_made_it(
    bug: str, status: dict[str, object], counted: float | None, expected: list[str]
) -> None:
    """An object that cannot be read is quarantined; an exception is a bug."""
    error = LogError("team/sage", "unreadable", bug)

    found = judge.log_findings([error], {JOB: CASE}, {JOB: status}, counted)

    assert [each.kind for each in found] == expected


def test_counters_that_nobody_could_read_once_are_compared_with_what_they_were_before() -> None:
    """A metrics port that does not answer for a moment is no start from zero."""
    error = LogError("", "unreadable", "")
    logs, counters = [[error], [], [error]], [3.0, None, 3.0]
    operator = SimpleNamespace(errors=lambda: logs.pop(0), counted_errors=lambda: counters.pop(0))
    run = Run(Options(1, ()), SimpleNamespace(api=None, tenant="a", quiet="b", operator=operator))  # type: ignore[arg-type]
    found: list[str] = []
    run.findings = SimpleNamespace(add=lambda finding: found.append(finding.kind))  # type: ignore[assignment]

    for _ in range(3):
        run._judge({}, {})

    assert found == ["logged: error (not counted by a metric)"]


@pytest.mark.parametrize("error", [ConnectionResetError(), IncompleteRead(b"dgl_operator_")])
def test_a_scrape_that_breaks_off_counts_nothing(error: Exception) -> None:
    """Not zero errors either."""
    seen = object.__new__(Watched)

    def fail() -> str:
        raise error

    seen.process = SimpleNamespace(metrics=fail)  # type: ignore[assignment]

    assert seen.counted_errors() is None


def test_another_answer_than_metrics_is_no_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sum would be 0, and the next scrape would seem to have counted all errors since the start."""
    monkeypatch.setattr(operator_process, "_get", lambda _url: (500, "a thread has ended\n"))
    process = object.__new__(OperatorProcess)
    process._metrics = 1

    with pytest.raises(OSError, match="/metrics: 500: a thread has ended"):
        process.metrics()


def test_a_status_is_counted_by_the_condition_that_explains_it() -> None:
    """Phase alone where none does."""
    assert reason_of(STALLED) == "no phase Stalled: InternalError"
    assert reason_of({"phase": "Pending"}) == "Pending"
    assert reason_of(None) == "gone"


def test_findings_keep_the_smallest_case_of_each_kind(tmp_path: Path) -> None:
    """In a file with what repeats it."""
    findings = Findings(tmp_path, 5)
    findings.add(Finding("a job has no status", "team/sage"))

    findings.add(Finding("a job has no status", "team/sage", CASE))

    kept = json.loads((tmp_path / "000.json").read_text())
    assert kept["repeat"] == "python -m tests.fuzz --seed 5 --only 1"
    assert findings.lines() == ["    2  a job has no status: team/sage [case 1, mutant: odd]"]
