"""`python -m tests.benchmarks.tables NAME [--dry-run]`: measure a table of docs/ and write it whole.

The inputs are fixed, so that two runs differ by the code and the machine only; leave the machine alone
meanwhile. `dispatch` needs DGL_TOOLS and DGL_PYTHON, `parmetis` needs PM_DGLPART, the paths of the peers; a
table without its peer is not written. `chunk-large` needs KUBECONFIG, as `python -m tests.cluster env` says,
and the job image on that cluster. BENCH_FOLDER names a folder with room for 20 GB, else /tmp is used.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dglrun.formats.chunked import input_file, read
from dglrun.formats.chunked.metadata import ChunkedGraph
from tests.benchmarks import (
    agents,
    assign_bench,
    chunk_bench,
    dgl_api_bench,
    dispatch_bench,
    dispatch_targets,
    partition_graphs,
    partition_speed,
    plan,
    training_bench,
    verify_bench,
)
from tests.benchmarks.chunk_bench import Case
from tests.benchmarks.dispatch_data import Size
from tests.benchmarks.partition_speed import QUALITY, Row
from tests.e2e.local import package_index
from tests.support import measured

Cells = list[str]

GRAPHS = {
    "S": ("rmat", "200000", "1060000"),
    "C": ("communities", "200000", "1060000"),
    "M": ("rmat", "1048576", "5600000"),
    "L": ("rmat", "4194304", "5250000"),
}
"""Arguments of partition_graphs: power law (S, M, L) and power law with communities (C)."""

CHUNK_CASES = (
    Case("csv", 2_000_000, 10_000_000, has_table=True),
    Case("csv", 2_000_000, 10_000_000, has_table=False),
    Case("parquet", 2_000_000, 10_000_000, has_table=True),
)

CHUNK_LARGE = (Case("csv", 20_000_000, 100_000_000, has_table=True),)

VERIFY_SIZES = (Size(2_000_000, 20_000_000, 64, 2, 2, "parquet"),)

PARTS = 4
EXAMPLE = measured.ROOT / "images" / "examples" / "graphsage" / "code"


@contextmanager
def graph(name: str, *flags: str) -> Iterator[Path]:
    """One of GRAPHS in a folder that goes away."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")) as folder:
        partition_graphs.main([*GRAPHS[name], folder, *flags])
        yield Path(folder)


def peer(*variables: str) -> list[str]:
    """The paths of a peer's programs.

    Raises:
        SystemExit: one is not named.
    """
    if missing := [name for name in variables if not os.environ.get(name)]:
        raise SystemExit(f"expected {' and '.join(missing)} in the environment: this table has a peer")
    return [os.environ[name] for name in variables]


def dispatch() -> Iterator[Cells]:
    """Ours and DGL's, large and small."""
    tools, python = peer("DGL_TOOLS", "DGL_PYTHON")
    args = dispatch_bench.parse(["--dgl-tools", tools, "--dgl-python", python, *_folder()])
    large = [Size(4_000_000, 40_000_000, 64, 2, 2, layout) for layout in ("csv", "parquet")]
    for size in (*large, Size(100_000, 1_000_000, 16, 2, 2, "csv")):
        yield from (run.cells() for run in dispatch_bench.measure(size, args))


def dispatch_growth() -> Iterator[Cells]:
    """Ours by edges, by the width of the features and by ranks."""
    args = dispatch_bench.parse(_folder())
    by_edges = [Size(4_000_000, edges * 1_000_000, 0, 2, 2, "parquet") for edges in (5, 10, 20, 40, 80)]
    others = (Size(500_000, 1_000_000, 1024, 2, 1, "parquet"), Size(500_000, 5_000_000, 64, 4, 4, "csv"))
    for size in (*by_edges, *others):
        yield from (run.cells() for run in dispatch_bench.measure(size, args))


def beside_targets() -> Iterator[Cells]:
    """Ours beside `cp`, by ranks and by edges."""
    return dispatch_targets.rows(dispatch_bench.parse(_folder()).folder)


def verify() -> Iterator[Cells]:
    """The check of the parts beside dispatch."""
    folder = dispatch_bench.parse(_folder()).folder
    for size in VERIFY_SIZES:
        yield from verify_bench.measure(size, folder)


def chunk() -> Iterator[Cells]:
    """Tables with string IDs: csv and Parquet, with a table of nodes and without."""
    for case in CHUNK_CASES:
        yield chunk_bench.measure(case)


def chunk_large() -> Iterator[Cells]:
    """As many edges as a container of 4 GiB shall take; on the one-node cluster of this machine."""
    for case in CHUNK_LARGE:
        yield chunk_bench.measure_in_pod(case, "4Gi")


def _folder() -> list[str]:
    return ["--folder", folder] if (folder := os.environ.get("BENCH_FOLDER")) else []


def partition() -> Iterator[Cells]:
    """The free back ends by graph and ranks."""
    quick = (("random", 1), ("metis", 1), ("streaming", 1), ("streaming", 2))
    small = (*quick, ("metis nodes", 1), ("zoltan", 1), ("zoltan", 2))
    for name, wanted in (("C", small), ("S", small), ("M", quick)):
        with graph(name) as source:
            for backend, ranks in wanted:
                yield [name, *_partition_cells(_balanced(source, backend, ranks), rest=False)]


def partition_stages() -> Iterator[Cells]:
    """All but the partitioner: one part has nothing to decide."""
    with graph("M") as source:
        for ranks in (1, 2, 4):
            row = partition_speed.ours(source, "zoltan", ranks, 1)
            yield [str(ranks), _pair((row.wall, row.cpu)), f"{row.peak:.0f}"]


def assign() -> Iterator[Cells]:
    """KaMinPar, streaming and random beside METIS, on graphs of 40M edges."""
    size = assign_bench.NODES, assign_bench.EDGES
    return assign_bench.measure(size, assign_bench.PARTS, assign_bench.BACKENDS)


def assign_large() -> Iterator[Cells]:
    """KaMinPar alone, on graphs of 160M edges."""
    return assign_bench.measure_large(assign_bench.LARGE, 8)


def streaming() -> Iterator[Cells]:
    """Memory by ranks, on graphs of 40M edges."""
    size = assign_bench.NODES, assign_bench.EDGES
    return assign_bench.measure_ranks(size, 8)


def dgl_api() -> Iterator[Cells]:
    """DGL-API's stage beside partition_graph."""
    return dgl_api_bench.measure(dgl_api_bench.NODES, dgl_api_bench.EDGES, dgl_api_bench.PARTS)


def parmetis() -> Iterator[Cells]:
    """ParMETIS by us, and by the program that comes with it."""
    (program,) = peer("PM_DGLPART")
    wanted = (
        ("random", 1),
        ("metis", 1),
        ("parmetis", 1),
        ("parmetis", 2),
        ("parmetis", 4),
        ("parmetis nodes", 2),
    )
    with graph("L") as source:
        for backend, ranks in wanted:
            yield _partition_cells(_balanced(source, backend, ranks), rest=True)
        for ranks in (1, 2, 4):
            yield _partition_cells(partition_speed.peer(source, Path(program), ranks, PARTS), rest=True)


def _balanced(source: Path, backend: str, ranks: int) -> tuple[str, Row] | Row:
    name, _, balance = backend.partition(" ")
    row = partition_speed.ours(source, name, ranks, PARTS, *(("--balance", balance) if balance else ()))
    return (f"{name}, `--balance {balance}`", row) if balance else row


def _partition_cells(found: tuple[str, Row] | Row, *, rest: bool) -> Cells:
    name, row = found if isinstance(found, tuple) else (found.name, found)
    pairs = [(row.wall, row.cpu), row.inside, *([row.rest] if rest else [])]
    quality = [f"{row.quality[key]:{form}}" if key in row.quality else "" for key, form in QUALITY]
    return [name, str(row.ranks), *map(_pair, pairs), f"{row.peak:.0f}", *quality]


def _pair(seconds: tuple[float, float] | None) -> str:
    return "" if seconds is None else f"{seconds[0]:.1f} / {seconds[1]:.1f}"


def readers() -> Iterator[Cells]:
    """Edges of each format, checked, by one process."""
    for layout in ("csv", "parquet", "numpy"):
        with graph("M", "--format", layout, "--files", "1") as source:
            (spec,) = ChunkedGraph.load(source).edges.values()
            size = sum(input_file.stat(path).size for path in spec.paths)
            began = time.monotonic()
            (rows,) = read.row_counts(spec)
            counted = time.monotonic()
            assert rows == sum(len(src) for src, _ in read.edge_blocks(spec, 0, rows))
            done = time.monotonic()
            if layout == "csv":
                yield ["csv, counting the lines", *_speed(rows, size, counted - began)]
            yield [layout, *_speed(rows, size, done - counted)]


def _speed(rows: int, size: int, seconds: float) -> Cells:
    return [f"{rows / seconds / 1e6:.0f}", f"{size / seconds / 1e9:.1f}"]


def example() -> Iterator[Cells]:
    """What one process learns from the example's graph, whose index is that of this host's Debian."""
    wanted: dict[str, list[tuple[str, ...]]] = {
        "the features alone (`--no_edges`), seed 0": [("--no_edges",)],
        "`train.py`, seeds 0 to 2": [("--seed", str(seed)) for seed in range(3)],
        "`train.py --variant heterogeneous`, seed 0": [("--variant", "heterogeneous")],
    }
    with tempfile.TemporaryDirectory() as folder:
        graph_folder, index = Path(folder) / "graph", Path(folder) / "Packages"
        index.write_bytes(package_index())
        _example("debian_graph.py", "--index", str(index), "--out", str(graph_folder))
        majority = ""
        rows = []
        for title, runs in wanted.items():
            found = [_accuracies(str(graph_folder), *flags) for flags in runs]
            majority = found[0][1]
            rows.append([title, ", ".join(accuracy for accuracy, _ in found)])
    yield from (["always the majority class", majority], *rows)


def _accuracies(folder: str, *flags: str) -> tuple[str, str]:
    """The model's accuracy and that of the majority class."""
    said = _example("train.py", "--dataset_url", folder, *flags)
    found = re.search(r"Test accuracy: (\d\.\d+).*?(\d\.\d+)", said)
    if found is None:
        raise SystemExit(f"train.py: expected 'Test accuracy: ...' in its output, got {said[-200:]!r}")
    return f"{float(found[1]):.3f}", f"{float(found[2]):.3f}"


def _example(script: str, *argv: str) -> str:
    env = {**os.environ, "DGLBACKEND": "pytorch"}
    words = (sys.executable, script, *argv)
    return subprocess.run(words, cwd=EXAMPLE, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout


WRITERS: dict[str, Callable[[], Iterator[Sequence[str]]]] = {
    "dispatch": dispatch,
    "dispatch-growth": dispatch_growth,
    "dispatch-targets": beside_targets,
    "verify": verify,
    "partition": partition,
    "partition-stages": partition_stages,
    "assign": assign,
    "assign-large": assign_large,
    "streaming": streaming,
    "dgl-api": dgl_api,
    "parmetis": parmetis,
    "plan": plan.rows,
    "chunk": chunk,
    "chunk-large": chunk_large,
    "readers": readers,
    "example": example,
    "agents": agents.rows,
    "training": training_bench.rows,
}
"""What measures each table of tests/support/measured.py that is no suite's."""


def main(argv: Sequence[str]) -> int:
    """Measure and write one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=WRITERS)
    parser.add_argument("--dry-run", action="store_true", help="print the table, leave the page as it is")
    args = parser.parse_args(argv)
    before = os.getloadavg()[0]
    rows = []
    print(measured.TABLES[args.name].head, flush=True)
    for cells in WRITERS[args.name]():
        print(measured.row(cells), flush=True)
        rows.append(cells)
    if not args.dry_run:
        measured.write(args.name, rows, f"Load average before the run: {before:.1f}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
