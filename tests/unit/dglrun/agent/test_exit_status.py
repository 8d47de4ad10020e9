"""How a process ended."""

import signal
from dataclasses import asdict

from dglrun.agent.exit_status import ExitStatus, ProcessFailure


def test_ends_are_told_as_a_shell_does() -> None:
    """128 + n, with the signal's name."""
    assert str(ExitStatus.of_status(signal.SIGKILL)) == "exit code 137 (SIGKILL)"
    assert str(ExitStatus.of_status(7 << 8)) == "exit code 7"


def test_an_agent_of_an_earlier_image_is_an_agent() -> None:
    """The launcher blames an agent's own end last, by this name."""
    told = asdict(ProcessFailure("supervisor", 75, "was ended by SIGTERM"))

    assert ProcessFailure.of(told) == ProcessFailure("agent", 75, "was ended by SIGTERM")
