"""`python -m tests.benchmarks.rusage FILE COMMAND...`: run a command, note its CPU time and peak memory.

FILE gets `.<rank>` appended where mpirun or torch say the rank.
"""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class Used(NamedTuple):
    """CPU seconds of all ranks, of them the user seconds, and the peak memory of the largest in MiB."""

    cpu: float
    user: float
    rss: float


def noting(file: Path) -> tuple[str, ...]:
    """What stands before a command that shall note here what it uses."""
    return (sys.executable, "-m", "tests.benchmarks.rusage", str(file))


def used(file: Path) -> Used:
    """What the commands, or the ranks of one, have used that noted it here."""
    found = [json.loads(path.read_text()) for path in file.parent.glob(f"{file.name}.*")]
    user, system = (sum(rank[kind] for rank in found) for kind in ("user", "system"))
    return Used(user + system, user, max(rank["rss_mib"] for rank in found))


def main(argv: list[str]) -> int:
    """Run, measure, pass the exit code on."""
    rank = os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("RANK", "0"))
    code = subprocess.run(argv[1:], check=False).returncode
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = {"user": spent.ru_utime, "system": spent.ru_stime, "rss_mib": spent.ru_maxrss / 1024}
    Path(f"{argv[0]}.{rank}").write_text(json.dumps(found))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
