"""`make bench`: dispatch beside DGL's pipeline, in one run, as ratios.

DGL_TOOLS names the `tools` of a DGL 2.1 checkout and DGL_PYTHON a Python that runs them; without them
only ours is measured, and the benchmark says so. BENCH_ARGS adds arguments (sizes, ranks, formats).
Assignment has its own command, since it takes a graph: `python -m tests.benchmarks.partition_speed FOLDER`.
"""

import os
import shlex
import subprocess
import sys


def main() -> int:
    """Run the benchmark; returns its exit code."""
    argv = [sys.executable, "-m", "tests.benchmarks.dispatch_bench"]
    for flag, variable in (("--dgl-tools", "DGL_TOOLS"), ("--dgl-python", "DGL_PYTHON")):
        if value := os.environ.get(variable):
            argv += [flag, value]
    return subprocess.call([*argv, *shlex.split(os.environ.get("BENCH_ARGS", ""))])


if __name__ == "__main__":
    sys.exit(main())
