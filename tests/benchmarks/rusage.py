"""`python -m tests.benchmarks.rusage FILE COMMAND...`: run a command, note its CPU time and peak memory.

FILE gets `.<rank>` appended where mpirun or torch say the rank.
"""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path


def main(argv: list[str]) -> int:
    """Run, measure, pass the exit code on."""
    rank = os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("RANK", "0"))
    code = subprocess.run(argv[1:], check=False).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    found = {"user": used.ru_utime, "system": used.ru_stime, "rss_mib": used.ru_maxrss / 1024}
    Path(f"{argv[0]}.{rank}").write_text(json.dumps(found))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
