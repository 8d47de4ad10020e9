"""KaMinPar, streaming and random beside METIS on the same graphs, in one run: `make bench ONLY=assign`.

    python -m tests.benchmarks.assign_bench [--nodes 4194304] [--edges 40000000] [--parts 8 64] [--alone]

Power law (RMAT) and power law with communities, parquet, each edge in both directions; with --alone METIS,
which needs far more memory, is left out. Streaming runs on 1, 2 and 4 ranks: bytes per rank.
BENCH_FOLDER names a folder with room for the graphs, else /tmp.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.benchmarks import partition_graphs, partition_speed
from tests.benchmarks.partition_speed import QUALITY, Row
from tests.support import measured

NODES, EDGES, PARTS = 1 << 22, 40_000_000, (8, 64)
KINDS = ("communities", "rmat")
Backend = tuple[str, int]
"""Its name and the number of ranks."""
OTHERS: tuple[Backend, ...] = (
    ("kaminpar", 1),
    ("streaming", 1),
    ("streaming", 2),
    ("streaming", 4),
    ("random", 1),
)
BACKENDS: tuple[Backend, ...] = (("metis", 1), *OTHERS)


def measure(nodes: int, edges: int, parts: Sequence[int], backends: Sequence[Backend]) -> Iterator[list[str]]:
    """Rows of the table; those of METIS come first and are what the others are compared with."""
    for kind in KINDS:
        with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")) as folder:
            # About a tenth of the pairs are drawn twice and fall away.
            size = (str(nodes), str(edges * 11 // 20), folder, "--format", "parquet")
            partition_graphs.main([kind, *size])
            for number in parts:
                rows = [partition_speed.ours(Path(folder), *backend, number) for backend in backends]
                for row in rows:
                    yield [kind, str(number), *_cells(row, rows[0])]


def _cells(row: Row, first: Row) -> list[str]:
    quality = [f"{row.quality[key]:{form}}" for key, form in QUALITY]
    is_first = row is first or first.name != "metis"
    shares = ["" if is_first else f"{mine / theirs:.2f}" for mine, theirs in _pairs(row, first)]
    name = f"{row.name}, {row.ranks} ranks" if row.name in partition_speed.RANKS else row.name
    return [name, f"{row.wall:.1f} / {row.cpu:.1f}", f"{row.peak:.0f}", *shares, *quality]


def _pairs(row: Row, first: Row) -> list[tuple[float, float]]:
    return [(row.wall, first.wall), (row.cpu, first.cpu), (row.peak, first.peak)]


def main(argv: Sequence[str]) -> int:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--edges", type=int, default=EDGES, help="in both directions together")
    parser.add_argument("--parts", type=int, nargs="+", default=PARTS)
    parser.add_argument("--alone", action="store_true", help="without METIS")
    args = parser.parse_args(argv)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors", file=sys.stderr)
    print(measured.TABLES["assign"].head, flush=True)
    for cells in measure(args.nodes, args.edges, args.parts, OTHERS if args.alone else BACKENDS):
        print(measured.row(cells), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
