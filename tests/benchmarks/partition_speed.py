"""Assignment end to end, back end by back end, on the same chunked graph, as a Markdown table.

    python -m tests.benchmarks.partition_speed FOLDER [--backends random metis zoltan] [--ranks 1 2 4]
        [--parts 4] [--pm-dglpart PATH]

Make FOLDER by `python -m tests.benchmarks.partition_graphs`. "rest" is all that is not the partitioner
itself: reading, exchange, CSR, scoring, writing, start of the processes. The peer (ParMETIS's own
pm_dglpart, never part of this project) runs on the same graph as text when its path is given; its rest is
its whole time less the library's time in our parmetis row, so it needs that back end too.
"""

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dglrun.assign import files
from dglrun.chunked.metadata import ChunkedGraph
from dglrun.convert import text

RANKS = ("zoltan", "parmetis")


@dataclass(frozen=True)
class Row:
    """One run.

    Attributes:
        name: Back end.
        ranks: Processes.
        wall: Seconds from start to end.
        cpu: CPU seconds of all processes.
        inside: Wall seconds of the partitioner itself, where it is told.
        peak: MiB of the largest process.
        quality: Cut, edge balance, node balance.
    """

    name: str
    ranks: int
    wall: float
    cpu: float
    inside: float | None
    peak: float
    quality: dict[str, Any]

    def cells(self) -> list[str]:
        rest = "" if self.inside is None else f"{self.wall - self.inside:.1f}"
        inside = "" if self.inside is None else f"{self.inside:.1f}"
        shown = [f"{self.quality[key]:{form}}" if key in self.quality else "" for key, form in QUALITY]
        numbers = [f"{self.wall:.1f}", inside, rest, f"{self.cpu:.1f}", f"{self.peak:.0f}"]
        return [self.name, str(self.ranks), *numbers, *shown]


QUALITY = (("edge_cut_ratio", ".1%"), ("edge_balance", ".2f"), ("node_balance", ".2f"))
HEADER = (
    "back end", "ranks", "wall s", "partitioner s", "rest s", "CPU s", "MiB per process",
    "cut", "edge balance", "node balance",
)  # fmt: skip


def timed(argv: Sequence[str], cwd: Path | None = None) -> tuple[str, float, float]:
    """Run to the end: output, wall seconds, CPU seconds with all descendants."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(argv, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, time.monotonic() - began, cpu


def ours(source: Path, backend: str, ranks: int, parts: int) -> Row:
    """`dglrun partition` once."""
    with tempfile.TemporaryDirectory() as out:
        argv = (
            *("/usr/bin/time", "-f", "%M", "-o", f"{out}/peak"),
            *(sys.executable, "-m", "dglrun", "partition", "--mode", "ParMETIS", "--backend", backend),
            *("--in-dir", str(source), "--out-dir", f"{out}/parts", "--num-parts", str(parts)),
            *("--ranks", str(ranks)),
        )
        said, wall, cpu = timed(argv)
        inside = re.search(r": partition ([0-9.]+) s", said)
        told = re.search(r"peak memory ([0-9.]+) MiB", said)
        peak = float(told[1]) if told else int((Path(out) / "peak").read_text()) / 1024
        quality = dict(files.load_meta(Path(out) / "parts").details)
    return Row(backend, ranks, wall, cpu, float(inside[1]) if inside else None, peak, quality)


def peer(source: Path, program: Path, ranks: int, parts: int, inside: float | None) -> Row:
    """pm_dglpart on the same graph, text and all."""
    with tempfile.TemporaryDirectory() as folder:
        text.to_text(ChunkedGraph.load(source), Path(folder), "g", by_degree=True)
        argv = (
            *("/usr/bin/time", "-f", "%M", "-o", f"{folder}/peak", "mpirun", "--allow-run-as-root"),
            *("--oversubscribe", "-np", str(ranks), str(program), "g", str(parts // ranks)),
        )
        _, wall, cpu = timed(argv, Path(folder))
        if not list(Path(folder).glob("p*-g_nodes.txt")):
            raise SystemExit(f"{program} left no result; is it the program with two arguments?")
        peak = int((Path(folder) / "peak").read_text()) / 1024
    return Row("pm_dglpart (peer)", ranks, wall, cpu, inside, peak, {})


def main(argv: Sequence[str]) -> int:
    """Run and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("--backends", nargs="+", default=["random", "metis", "zoltan"])
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--pm-dglpart", type=Path, help="the peer's binary")
    args = parser.parse_args(argv)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors", file=sys.stderr)
    print("| " + " | ".join(HEADER) + " |\n|" + "---|" * len(HEADER))
    inside: dict[int, float | None] = {}
    for backend in args.backends:
        for ranks in args.ranks if backend in RANKS else [1]:
            row = ours(args.source, backend, ranks, args.parts)
            inside[ranks] = row.inside if backend == "parmetis" else inside.get(ranks)
            print("| " + " | ".join(row.cells()) + " |", flush=True)
    if args.pm_dglpart is None:
        print("pm_dglpart: not measured, no --pm-dglpart given", file=sys.stderr)
        return 0
    for ranks in args.ranks:
        row = peer(args.source, args.pm_dglpart, ranks, args.parts, inside.get(ranks))
        print("| " + " | ".join(row.cells()) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
