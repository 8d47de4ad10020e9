"""`dglrun chunk --config` on tables with string IDs: `make bench ONLY=chunk`.

    python -m tests.benchmarks.chunk_bench [--edges 10000000] [--nodes 2000000] [--format csv] [--no-table]
        [--pod 4Gi]

Edges between users with IDs such as `u-8146931834771063861`, drawn at random. With --no-table the users are
those that the edges name. BENCH_FOLDER names a folder with room for tables and output, else /tmp.

With --pod all runs in a pod of this memory limit on the one-node cluster of this machine (job image loaded,
KUBECONFIG as `python -m tests.cluster env` says): what needs more is killed, and the benchmark fails.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import yaml

from dglrun.arrays import Ints
from tests.benchmarks import rusage
from tests.support import measured

_BLOCK = 1 << 20


def ids(numbers: Ints) -> Any:
    """A text of some 20 characters for each number, in no order."""
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return pc.binary_join_element_wise(pa.scalar("u"), pa.array(mixed.view(np.int64)).cast(pa.string()), "-")


def write(path: Path, blocks: Iterator[Any], schema: Any) -> None:
    """Write a table block by block, as csv or Parquet by its name."""
    with path.open("wb") as file:
        writer = pacsv.CSVWriter(file, schema) if path.suffix == ".csv" else pq.ParquetWriter(file, schema)
        for block in blocks:
            writer.write_table(block)
        writer.close()


def edge_blocks(edges: int, nodes: int) -> Iterator[Any]:
    """Random edges."""
    rng = np.random.default_rng(1)
    for start in range(0, edges, _BLOCK):
        ends = rng.integers(0, nodes, (2, min(_BLOCK, edges - start)))
        yield pa.table([ids(ends[0]), ids(ends[1])], names=["src", "dst"])


def node_blocks(nodes: int) -> Iterator[Any]:
    """All nodes."""
    for start in range(0, nodes, _BLOCK):
        numbers = np.arange(start, min(start + _BLOCK, nodes))
        yield pa.table([ids(numbers), pa.array(numbers % 90)], names=["id", "age"])


@dataclass(frozen=True)
class Case:
    """Tables to chunk.

    Attributes:
        layout: csv or parquet.
        nodes: How many.
        edges: How many.
        has_table: Whether there is a table of the nodes.
    """

    layout: str
    nodes: int
    edges: int
    has_table: bool


def make(folder: Path, case: Case) -> Path:
    """Write the tables and their config; returns the path of this."""
    layout = case.layout
    texts = [("src", pa.string()), ("dst", pa.string())]
    write(folder / f"edges.{layout}", edge_blocks(case.edges, case.nodes), pa.schema(texts))
    users: dict[str, Any] = {}
    if case.has_table:
        schema = pa.schema([("id", pa.string()), ("age", pa.int64())])
        write(folder / f"users.{layout}", node_blocks(case.nodes), schema)
        users = {"files": f"{folder}/users.{layout}", "id": "id", "features": {"age": {"column": "age"}}}
        users["masks"] = {"train": 0.8, "val": 0.1, "test": 0.1}
    relation = {"files": f"{folder}/edges.{layout}", "src": "src", "dst": "dst"}
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({"name": "g", "nodes": {"u": users}, "edges": {"u:knows:u": relation}}))
    return path


def run(config: Path, out: Path) -> list[str]:
    """Chunk once: wall, CPU, peak memory, and the disk that it needed at most."""
    command = (sys.executable, "-m", "dglrun", "chunk", "--config", str(config), "--out-dir", str(out))
    note, began, most = out.with_name("rusage"), time.monotonic(), 0
    with subprocess.Popen((*rusage.noting(note), *command)) as child:
        while child.poll() is None:
            most = max(most, _size(out))
            time.sleep(1)
    if child.returncode:
        raise SystemExit(child.returncode)
    wall, used = time.monotonic() - began, rusage.used(note)
    size = f"{most / 2**20:.0f}"
    return [f"{wall:.1f} / {used.cpu:.1f}", f"{used.rss:.0f}", size, f"{_size(out) / 2**20:.0f}"]


def _size(folder: Path) -> int:
    """Bytes below a folder that another process is changing."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(where) / name).stat().st_size
            except FileNotFoundError:
                continue
    return total


def measure(case: Case) -> list[str]:
    """Make the tables and chunk them: a row of the table of figures."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")) as name:
        config = make(Path(name), case)
        nodes = f"{case.nodes:,}{'' if case.has_table else ', of edges'}"
        return [case.layout, nodes, f"{case.edges:,}", *run(config, Path(name) / "out")]


def measure_in_pod(case: Case, memory: str) -> list[str]:
    """The same in a pod with a memory limit, such as `4Gi`: a row of the table of large tables."""
    from tests.benchmarks import limited_pod  # noqa: PLC0415 - the job image lacks what it imports

    size = ("--edges", str(case.edges), "--nodes", str(case.nodes), "--format", case.layout)
    table = () if case.has_table else ("--no-table",)
    said = limited_pod.run("tests.benchmarks.chunk_bench", (*size, *table), memory)
    rows = [line for line in said.splitlines() if line.startswith("| ")]
    return [memory, *measured.cells(rows[-1])]


def main(argv: Sequence[str]) -> int:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--nodes", type=int, default=2_000_000)
    parser.add_argument("--format", choices=("csv", "parquet"), default="csv")
    parser.add_argument("--no-table", action="store_true", help="the nodes are those that edges name")
    parser.add_argument("--pod", metavar="MEMORY", help="in a pod with this memory limit")
    args = parser.parse_args(argv)
    case = Case(args.format, args.nodes, args.edges, has_table=not args.no_table)
    if args.pod:
        print(measured.TABLES["chunk-large"].head, flush=True)
        print(measured.row(measure_in_pod(case, args.pod)), flush=True)
        return 0
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors", file=sys.stderr)
    print(measured.TABLES["chunk"].head, flush=True)
    print(measured.row(measure(case)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
