"""How a process ended."""

import signal

from dglrun.agent.exit_status import ExitStatus


def test_ends_are_told_as_a_shell_does() -> None:
    """128 + n, with the signal's name."""
    assert str(ExitStatus.of_status(signal.SIGKILL)) == "exit code 137 (SIGKILL)"
    assert str(ExitStatus.of_status(7 << 8)) == "exit code 7"
