"""Run other programs from argument lists, with errors that show what they said."""

import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.cluster import steps

TAIL = 25
"""Lines of output that an error shows."""


def run(
    *argv: str | Path,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
) -> str:
    """Run a program and return its standard output.

    Raises:
        StepError: it ended with a code other than 0; the message holds the end of what it printed.
    """
    code, out, err = attempt(*argv, stdin=stdin, env=env, cwd=cwd, timeout=timeout)
    if code != 0:
        words = [str(word) for word in argv]
        said = "\n".join((out + err).splitlines()[-TAIL:])
        raise steps.StepError(f"{shlex.join(words)} ended with {code}:\n{said}")
    return out


def attempt(
    *argv: str | Path,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
) -> tuple[int, str, str]:
    """Run a program that may fail; return its code, standard output and standard error."""
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words,
            input=stdin or "",
            env=env,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError as error:
        return 127, "", str(error)
    except subprocess.TimeoutExpired:
        return 124, "", f"no end after {timeout:.0f} s"
    return done.returncode, done.stdout, done.stderr


def tail(path: Path, lines: int = TAIL) -> str:
    """Return the end of a log file, or say that there is none."""
    if not path.exists():
        return f"({path.name}: no such log)"
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
