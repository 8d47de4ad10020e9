"""DGL's own loader on every part, with its checks switched on, in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from dglrun.dglformat.folder import PartitionFolder

_PROGRAM = """
import sys, warnings
warnings.simplefilter("ignore")
import dgl
dgl.distributed.load_partition(sys.argv[1], int(sys.argv[2]))
"""
_LAST_LINES = 3


def problems(folder: PartitionFolder, python: Path | None = None, deadline: float = 3600) -> Iterator[str]:
    """Say which parts `dgl.distributed.load_partition` refuses under DGL_DIST_DEBUG.

    Args:
        folder: The partition.
        python: A Python with torch and dgl; None: this one.
        deadline: Seconds for each part.
    """
    environment = os.environ | {"DGL_DIST_DEBUG": "1", "DGLBACKEND": "pytorch"}
    for part in range(folder.parts):
        argv = (str(python or sys.executable), "-c", _PROGRAM, str(folder.path.absolute()), str(part))
        try:
            ended = subprocess.run(
                argv, env=environment, capture_output=True, text=True, timeout=deadline, check=False
            )
        except subprocess.TimeoutExpired:
            yield f"part {part}: DGL's loader took longer than {deadline:g} s"
            continue
        if ended.returncode:
            last = " | ".join(ended.stderr.strip().splitlines()[-_LAST_LINES:])
            yield f"part {part}: DGL's loader refuses it (exit code {ended.returncode}): {last}"
