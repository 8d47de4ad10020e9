"""The reference says what the command line takes."""

import re
import shlex

import pytest

from dglrun.__main__ import workflow
from dglrun.cli import COMMANDS, workflow_parser
from dglrun.contract import exitcodes
from tests.support.dglrun_pods import ROOT

REFERENCE = (ROOT / "docs/reference/dglrun.md").read_text()


def test_every_flag_and_command_stands_in_the_reference() -> None:
    """And no other flag of dglrun itself does."""
    actions = workflow_parser()._actions
    flags = {flag for action in actions for flag in action.option_strings if flag not in ("-h", "--help")}
    told = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*(?![\w_])", REFERENCE))

    assert flags <= told
    assert all(f"`{name}`" in REFERENCE for name in COMMANDS)
    assert {flag for flag in told if flag.startswith("--")} <= flags | {"--help", "--lr"}


def test_every_exit_code_stands_in_the_reference() -> None:
    """Those of the contract."""
    codes = [value for name, value in vars(exitcodes).items() if name.isupper()]

    assert [code for code in codes if f"| {code} |" not in REFERENCE] == []


def test_the_dry_run_of_the_reference_runs(capfd: pytest.CaptureFixture[str]) -> None:
    """As it stands there."""
    line = next(line for line in REFERENCE.splitlines() if line.startswith("dglrun --dry-run"))

    code = workflow(shlex.split(line)[1:])

    assert code == 0
    assert capfd.readouterr().out.startswith("role: Launcher\n")
