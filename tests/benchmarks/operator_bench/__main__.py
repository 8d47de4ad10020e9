"""Many jobs at once on fake nodes, ours and mpi-operator's, in one run, as ratios.

    python -m tests.benchmarks.operator_bench --jobs 1000 [--mpi-operator PROGRAM]

Every job has four pods (launcher, partitioner, two workers; the peer: launcher, three workers) on nodes that
kwok plays, against a real API server (KUBECONFIG) with the real scheduler. The peer runs when its binary is
named; its manifests are expected in `manifests/base` beside it. Ratios are robust, jobs per second belong to
a machine: compare them on an idle one only.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import uuid
from dataclasses import asdict
from pathlib import Path

from tests.benchmarks.operator_bench import fake_nodes, page
from tests.benchmarks.operator_bench.figures import SideFigures
from tests.benchmarks.operator_bench.measure import Measurement, Size
from tests.benchmarks.operator_bench.sides import DglOperator, MpiOperator, Side
from tests.cluster import daemons
from tests.cluster.places import Places
from tests.support.api_client import ApiServer

ROOT = Path(__file__).parents[3]
JSON = ROOT / "build" / "operator-benchmark.json"


def main(argv: list[str]) -> int:
    """Measure the sides one after the other, print the tables."""
    args = parse(argv)
    if not os.environ.get("KUBECONFIG"):
        raise SystemExit('KUBECONFIG is not set: run "make bench ONLY=operator", or name a cluster')
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing stays in the cluster
    api, run = ApiServer(), f"bench-{uuid.uuid4().hex[:6]}"
    size = Size(args.jobs, args.namespaces, args.timeout, args.settle)
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.logs or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with fake_nodes.running(api, run, folder) as kwok:
            processes = {**cluster_processes(), "kwok": kwok, "benchmark": os.getpid()}
            found = [Measurement(api, side, size, run, folder).run(processes) for side in sides(args)]
    report(found, write=args.write or os.environ.get("DGL_OPERATOR_WRITE_FIGURES") == "1")
    return 0


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the flags."""
    peer = os.environ.get("MPI_OPERATOR")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="operator_bench"
    )
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--namespaces", type=int, default=4)
    parser.add_argument("--sides", default="dgl,mpi", help="which, in this order (default: dgl,mpi)")
    parser.add_argument(
        "--mpi-operator", type=Path, default=Path(peer) if peer else None, help="the peer's program"
    )
    parser.add_argument("--timeout", type=float, default=1800.0, metavar="SECONDS", help="of each side")
    parser.add_argument(
        "--settle",
        type=float,
        default=20.0,
        metavar="SECONDS",
        help="from the end of all jobs to the reading",
    )
    parser.add_argument("--logs", type=Path, help="where the operators' logs stay")
    parser.add_argument("--write", action="store_true", help=f"renew {page.PAGE.relative_to(ROOT)}")
    return parser.parse_args(argv)


def sides(args: argparse.Namespace) -> list[Side]:
    """The operators to measure, without the peer when it is not there."""
    known: dict[str, Side] = {"dgl": DglOperator()}
    if args.mpi_operator is not None:
        known["mpi"] = MpiOperator(args.mpi_operator, args.mpi_operator.parent / "manifests" / "base")
    return [known[name] for name in args.sides.split(",") if name in known]


def cluster_processes() -> dict[str, int]:
    """The control plane's processes, where the cluster is ours."""
    running = daemons.recorded(Places.here())
    return {name: running[name] for name in CONTROL_PLANE if name in running}


CONTROL_PLANE = ("apiserver", "etcd", "controller-manager", "scheduler")


def report(found: list[SideFigures], *, write: bool) -> None:
    """Print the tables; keep the figures in build/ and, if asked, in the docs."""
    print(page.tables(found))
    if len(found) < 2:
        print("\nmpi-operator did not run: name its binary by MPI_OPERATOR or --mpi-operator")
    JSON.parent.mkdir(exist_ok=True)
    JSON.write_text(json.dumps([asdict(side) for side in found], indent=1) + "\n")
    if write:
        page.PAGE.write_text(page.page(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
