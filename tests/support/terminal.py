"""Programs that find a terminal at their three streams."""

import os
import pty
import subprocess
import sys

from tests.support.dglrun_pods import ROOT


def in_a_terminal(*argv: str) -> tuple[int, str]:
    """Run a Python program at a terminal; its exit code and what it shows there."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        (sys.executable, *argv), stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT
    ) as started:
        os.close(theirs)
        shown = b""
        try:
            while block := os.read(ours, 4096):
                shown += block
        except OSError:  # how a terminal tells that the other end is closed
            pass
        os.close(ours)
    return started.returncode, shown.decode()
