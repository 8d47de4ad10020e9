"""The reference says what the command line takes."""

import re
import shlex

import pytest

from dglrun import cli
from dglrun.cli import COMMANDS, INTERNAL, workflow_parser
from dglrun.cli.workflow import workflow
from dglrun.contract import exitcodes
from tests.support.dglrun_pods import ROOT

REFERENCE = (ROOT / "docs/reference/dglrun.md").read_text()


def test_every_flag_and_command_stands_in_the_reference() -> None:
    """And no other flag of dglrun itself does."""
    actions = workflow_parser()._actions
    flags = {flag for action in actions for flag in action.option_strings if flag not in ("-h", "--help")}
    told = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*(?![\w_])", REFERENCE))

    assert flags <= told
    assert all(f"`{name}`" in REFERENCE for name in (*COMMANDS, *INTERNAL))
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


def command_lines() -> list[str]:
    """Each command line of dglrun in a block of any page, its continuations joined."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    blocks = [
        block for page in pages for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.S | re.M)
    ]
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line.startswith("dglrun ")]


def test_pages_have_command_lines() -> None:
    """Or the next test would check nothing."""
    assert {line.split()[1] for line in command_lines()} >= set(COMMANDS)


@pytest.mark.parametrize("line", command_lines())
def test_every_command_line_of_the_pages_is_understood(line: str) -> None:
    """No flag there is unknown, misspelt or missing."""
    name, *rest = shlex.split(line, comments=True)[1:]

    if name in COMMANDS:
        cli.command_parser(name).read([word for word in rest if word not in ("[", "]")])
    else:
        cli.parse([name, *rest])
