"""KaMinPar, streaming and random beside METIS on the same graphs, in one run: `make bench ONLY=assign`.

    python -m tests.benchmarks.assign_bench [--nodes 4194304] [--edges 40000000] [--parts 8 64] [--alone]
        [--graphs communities rmat] [--backends kaminpar streaming] [--by-ranks]

Power law (RMAT) and power law with communities, parquet, each edge in both directions; with --alone METIS,
which needs far more memory, is left out. Streaming runs on 1, 2 and 4 ranks. With --by-ranks it runs alone,
on 1 to 8 ranks: what a rank takes for the graph, and that beside half the ranks.
BENCH_FOLDER names a folder with room for the graphs, else /tmp.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dglrun.formats.chunked.metadata import ChunkedGraph
from tests.benchmarks import partition_graphs, partition_speed
from tests.benchmarks.partition_speed import QUALITY, Row
from tests.support import measured

NODES, EDGES, PARTS = 1 << 22, 40_000_000, (8, 64)
LARGE = 1 << 24, 160_000_000
SMALL = 2000, 10_000
RANKS = (1, 2, 4, 8)
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


def measure(
    size: tuple[int, int], parts: Sequence[int], backends: Sequence[Backend], kinds: Sequence[str] = KINDS
) -> Iterator[list[str]]:
    """Rows of the table; those of METIS come first and are what the others are compared with.

    Args:
        size: Nodes at most and edges.
        parts: Numbers of parts.
        backends: What is measured.
        kinds: Of which graphs.
    """
    for kind in kinds:
        with drawn(kind, size) as source:
            for number in parts:
                rows = [partition_speed.ours(source, *backend, number) for backend in backends]
                for row in rows:
                    yield [kind, str(number), *_cells(row, rows[0])]


def measure_large(size: tuple[int, int], parts: int, kinds: Sequence[str] = KINDS) -> Iterator[list[str]]:
    """Rows of KaMinPar alone, with bytes of memory for each edge."""
    for kind in kinds:
        with drawn(kind, size) as source:
            graph = ChunkedGraph.load(source)
            nodes, edges = sum(graph.num_nodes), sum(graph.num_edges)
            row = partition_speed.ours(source, "kaminpar", 1, parts)
            memory = [f"{row.peak:.0f}", f"{row.peak * 2**20 / edges:.0f}"]
            quality = [f"{row.quality[key]:{form}}" for key, form in QUALITY]
            amount = f"{nodes / 1e6:.1f}M / {edges / 1e6:.1f}M"
            yield [kind, amount, str(parts), f"{row.wall:.1f} / {row.cpu:.1f}", *memory, *quality]


def measure_ranks(size: tuple[int, int], parts: int, kinds: Sequence[str] = KINDS) -> Iterator[list[str]]:
    """Rows of streaming by ranks: what a process takes for the graph, and that beside half the ranks.

    For the graph is what it takes more than for a graph of some thousand edges on as many ranks: Python,
    its libraries and MPI are there without any graph.
    """
    for kind in kinds:
        with drawn("rmat", SMALL) as small, drawn(kind, size) as source:
            before = 0.0
            for ranks in RANKS:
                row = partition_speed.ours(source, "streaming", ranks, parts)
                taken = row.peak - partition_speed.ours(small, "streaming", ranks, parts).peak
                memory = [f"{row.peak:.0f}", f"{taken:.0f}", f"{taken / before:.2f}" if before else ""]
                before = taken
                quality = [f"{row.quality[key]:{form}}" for key, form in QUALITY]
                yield [kind, str(ranks), f"{row.wall:.1f} / {row.cpu:.1f}", *memory, *quality]


@contextmanager
def drawn(kind: str, size: tuple[int, int]) -> Iterator[Path]:
    """A graph of at most so many nodes and about so many edges, in a folder that goes away."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")) as folder:
        # About a tenth of the pairs are drawn twice and fall away. Its own process gives its memory back.
        argv = (kind, str(size[0]), str(size[1] * 11 // 20), folder, "--format", "parquet")
        module = partition_graphs.__name__
        subprocess.run((sys.executable, "-m", module, *argv), check=True, stdout=sys.stderr)
        yield Path(folder)


def _cells(row: Row, first: Row) -> list[str]:
    quality = [f"{row.quality[key]:{form}}" for key, form in QUALITY]
    is_first = row is first or first.name != "metis"
    shares = ["" if is_first else f"{mine / theirs:.2f}" for mine, theirs in _pairs(row, first)]
    ranks = "1 rank" if row.ranks == 1 else f"{row.ranks} ranks"
    name = f"{row.name}, {ranks}" if row.name in partition_speed.RANKS else row.name
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
    parser.add_argument("--graphs", nargs="+", choices=KINDS, default=KINDS)
    names = sorted({name for name, _ in BACKENDS})
    parser.add_argument("--backends", nargs="+", choices=names, default=names, help="these alone")
    parser.add_argument("--by-ranks", action="store_true", help="memory of streaming on 1 to 8 ranks")
    args = parser.parse_args(argv)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors", file=sys.stderr)
    size = args.nodes, args.edges
    wanted = [each for each in (OTHERS if args.alone else BACKENDS) if each[0] in args.backends]
    print(measured.TABLES["streaming" if args.by_ranks else "assign"].head, flush=True)
    by_ranks = (cells for number in args.parts for cells in measure_ranks(size, number, args.graphs))
    for cells in by_ranks if args.by_ranks else measure(size, args.parts, wanted, args.graphs):
        print(measured.row(cells), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
