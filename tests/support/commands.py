"""Commands of dglrun called in this process, and programs in one of their own."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from types import ModuleType

from dglrun import cli
from tests.support.measured import ROOT


def run_command(module: ModuleType, *argv: str) -> int:
    """Run `argv`, which starts with the name of the module's command, as dglrun would."""
    assert module.__name__ == f"dglrun.commands.{argv[0]}"
    return cli.run_command(argv)


def run_program(
    argv: Sequence[str], env: Mapping[str, str] | None = None, seconds: float = 120
) -> "subprocess.CompletedProcess[str]":
    """Run a program to its end in the checkout, which it may import; what it says is kept.

    Args:
        argv: Its words.
        env: Variables beside those of this process.
        seconds: It ends by then, or the test fails.
    """
    variables = os.environ | (env or {})
    return subprocess.run(
        argv, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=seconds, check=False
    )
