"""A pytest plugin: a run fails for each skip that is not expected, and for each expectation that is stale."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.support.expected_skips import EXPECTED, ExpectedSkip
from tests.support.suites import whole_suite

SUMMARY = "DGL_OPERATOR_GATE_SKIPS"
"""Names a file that the skips of a run are appended to; the gate prints it at its end."""


def unexpected(skips: Mapping[str, str], expected: Sequence[ExpectedSkip]) -> list[str]:
    """A line for each skip that is not on the list, or whose reason does not hold here.

    Args:
        skips: The reason of each skipped test, by node id.
        expected: The list.
    """
    return [
        f"{nodeid}: skipped, and tests/support/expected_skips.py does not allow it here: {reason}"
        for nodeid, reason in skips.items()
        if not any(entry.allows(nodeid, reason) for entry in expected)
    ]


def stale(
    skips: Mapping[str, str], collected: Iterable[str], suite: str, expected: Sequence[ExpectedSkip]
) -> list[str]:
    """A line for each entry of a suite that names a test which is not there, or is not skipped.

    Args:
        skips: The reason of each skipped test, by node id.
        collected: All tests of the suite, by node id.
        suite: Its folder.
        expected: The list.
    """
    wrong, names = [], {nodeid: nodeid.partition("::")[2] for nodeid in collected}
    for entry in (entry for entry in expected if entry.suite == suite):
        for pattern in entry.tests:
            one = ExpectedSkip(entry.suite, (pattern,), entry.reason, entry.when)
            if not any(one.covers(nodeid) for nodeid in names):
                wrong.append(f"{suite}: expected a test named {pattern!r} to skip, got no such test")
        if entry.is_certain and entry.when() and not any(entry.allows(*skip) for skip in skips.items()):
            wrong.append(f"{suite}: expected skips for {entry.reason!r}, got none: remove the entry")
    return wrong


class SkipCheck:
    """Collects what was skipped, in this process or in the workers of pytest-xdist."""

    def __init__(self, config: pytest.Config, expected: Sequence[ExpectedSkip] = EXPECTED) -> None:
        self._config, self._expected = config, expected
        self._skips: dict[str, str] = {}
        self._collected: set[str] = set()
        self._wrong: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the reason of a skipped test; an expected failure is none that ran well, either."""
        if report.skipped:
            self._skips[report.nodeid] = _reason(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep the reason of a skipped module."""
        if report.skipped:
            self._skips[f"{report.nodeid}::"] = _reason(report)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Keep the names of all tests, where this process runs them itself."""
        self._collected.update(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Keep the names of all tests, where workers run them."""
        self._collected.update(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Judge; a run that failed for another reason keeps that reason."""
        self._wrong = unexpected(self._skips, self._expected)
        suite = whole_suite(self._config)
        if suite and not session.shouldstop and not session.shouldfail:
            self._wrong += stale(self._skips, self._collected, suite, self._expected)
        if self._wrong and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if file := os.environ.get(SUMMARY):
            with Path(file).open("a") as lines:
                lines.writelines(f"{nodeid}: {reason}\n" for nodeid, reason in self._skips.items())

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name what is wrong."""
        if self._wrong:
            terminalreporter.section("skips that fail this run", red=True)
            for line in self._wrong:
                terminalreporter.line(line, red=True)


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The reason without pytest's prefix."""
    if xfail := getattr(report, "wasxfail", None):
        return f"expected failure: {xfail}"
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")
