"""DGL-API's stage on a chunked graph beside `partition_graph` in one run: `make bench ONLY=dgl-api`.

    python -m tests.benchmarks.dgl_api_bench [--nodes 500000] [--edges 5000000] [--parts 4]

A power law with communities, parquet, each edge in both directions. The peer is a script that loads the same
files and calls `dgl.distributed.partition_graph` (dgl_api_peer.py). After it come what a job runs with
`--chunked-graph` and the same method, and `dglrun partition` with `dglrun dispatch` in one process, which it
runs with other back ends. CPU seconds and memory are robust; compare wall times on an idle machine.
BENCH_FOLDER names a folder with room, else /tmp.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks import partition_graphs, rusage
from tests.support import measured

NODES, EDGES, PARTS = 500_000, 5_000_000, 4
Command = tuple[str, ...]
"""A module and its arguments."""


@dataclass(frozen=True)
class Used:
    """What a way to the parts has used.

    Attributes:
        wall: Seconds.
        cpu: CPU seconds.
        peak: MiB of the largest process.
    """

    wall: float
    cpu: float
    peak: float


def ways(source: Path, folder: Path, parts: int) -> Iterator[tuple[str, str, list[Command]]]:
    """Method, name and commands of each way; of each method the peer's comes first."""
    given, number = ("--in-dir", str(source)), ("--num-parts", str(parts))
    out, split = str(folder / "out"), str(folder / "split")
    to, kept = ("--out-dir", out), ("--save-orig-nids", "--save-orig-eids", "--ranks", "1")
    assign = ("dglrun", "partition", *given, "--out-dir", split, *number, "--backend")
    dispatch: Command = ("dglrun", "dispatch", *given, "--partitions-dir", split, *to, *kept)
    for method in ("random", "metis"):
        peer = ("tests.benchmarks.dgl_api_peer", str(source), out, str(parts), method)
        yield method, "partition_graph", [peer]
        yield method, "job", [("dglrun.commands.dgl_api", *given, *to, *number, "--method", method)]
        yield method, "partition, dispatch", [(*assign, method), dispatch]
    yield "kaminpar", "partition, dispatch", [(*assign, "kaminpar"), dispatch]


_ENV = {**os.environ, "DGLBACKEND": "pytorch"}


def run(commands: Sequence[Command], folder: Path) -> Used:
    """Run one after the other; the peak is that of the largest."""
    used, note = [], folder / "rusage"
    for command in commands:
        began = time.monotonic()
        argv = (*rusage.noting(note), sys.executable, "-m", *command)
        with (folder / "log").open("wb") as log:
            code = subprocess.call(argv, stdout=log, stderr=subprocess.STDOUT, env=_ENV)
        if code:
            raise SystemExit((folder / "log").read_text())
        found = rusage.used(note)
        used.append(Used(time.monotonic() - began, found.cpu, found.rss))
    return Used(sum(u.wall for u in used), sum(u.cpu for u in used), max(u.peak for u in used))


def measure(nodes: int, edges: int, parts: int) -> Iterator[list[str]]:
    """Rows of the table; the shares are of partition_graph by the same method, of kaminpar by METIS."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")) as name:
        source = Path(name, "in")
        # About a tenth of the pairs are drawn twice and fall away.
        size = (str(nodes), str(edges * 11 // 20), str(source), "--format", "parquet")
        partition_graphs.main(["communities", *size])
        first = Used(0, 0, 0)
        work = Path(name, "work")
        for method, way, commands in ways(source, work, parts):
            work.mkdir()
            used = run(commands, work)
            shutil.rmtree(work)
            first = used if way == "partition_graph" else first
            pairs = ((used.wall, first.wall), (used.cpu, first.cpu), (used.peak, first.peak))
            shares = ["" if used is first else f"{mine / theirs:.2f}" for mine, theirs in pairs]
            yield [method, way, f"{used.wall:.1f} / {used.cpu:.1f}", f"{used.peak:.0f}", *shares]


def main(argv: Sequence[str]) -> int:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--edges", type=int, default=EDGES, help="in both directions together")
    parser.add_argument("--parts", type=int, default=PARTS)
    args = parser.parse_args(argv)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors", file=sys.stderr)
    print(measured.TABLES["dgl-api"].head, flush=True)
    for cells in measure(args.nodes, args.edges, args.parts):
        print(measured.row(cells), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
