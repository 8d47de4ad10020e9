"""docs/reference/operator-benchmark.md, written by the benchmark."""

import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.benchmarks.operator_bench import figures
from tests.benchmarks.operator_bench.figures import SideFigures

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "reference" / "operator-benchmark.md"


def tables(sides: Sequence[SideFigures]) -> str:
    """All tables of a run."""
    parts = [figures.table(sides), figures.cpu_table(sides)]
    if any(side.requests for side in sides):
        parts.append(figures.requests_table(sides))
    return "\n\n".join(parts)


def page(sides: Sequence[SideFigures]) -> str:
    """The page."""
    return f"""\
# Operator benchmark

<!-- written by `DGL_OPERATOR_WRITE_FIGURES=1 make bench ONLY=operator`; do not edit -->
Measured on {datetime.now(UTC):%Y-%m-%d} at commit {_commit()}: one node with API server, etcd, controllers
and scheduler on the same {os.cpu_count()} cores, {platform.system()} {platform.release().split("-")[0]}.

All jobs are submitted at once, over several namespaces. A job has four pods: launcher, partitioner and two
workers; mpi-operator's has a launcher and three workers. Pods run on nodes that kwok plays: init containers
run, the partitioner and the launcher work for a second, deletions are honoured. A launcher's main container
starts a second after the partitioner has succeeded, the workers are Ready and the address file is whole.
mpi-operator runs with 16 threads and without client-side limits; both clean up running pods.

{tables(sides)}

RSS and CPU are those of the operator's process; time to Completed counts from the submission of each job.
Requests are counted in the API server's audit log, Events by their objects; watches that never end are not
counted. `others` is everything else on the machine: with more than a few milliseconds a job, or a load from
outside, compare the ratios only.
"""


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    return done.stdout.strip() or "unknown"
