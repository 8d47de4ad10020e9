"""Modules compiled before they are measured, as images have them: to compile them takes time and memory."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

COMPILED = {"PYTHONDONTWRITEBYTECODE": ""}
"""Variables under which a Python keeps and finds what is compiled, whatever this process is told."""


@cache
def compile_modules(*folders: Path, python: str = sys.executable) -> None:
    """Compile the modules of folders once, for this Python, except where the result cannot be written."""
    words = (python, "-m", "compileall", "-q", *map(str, folders))
    subprocess.run(words, check=False, env={**os.environ, **COMPILED}, stdout=subprocess.DEVNULL)
