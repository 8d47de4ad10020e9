"""Assignment end to end, back end by back end, on the same chunked graph, as a Markdown table.

    python -m tests.benchmarks.partition_speed FOLDER [--backends random metis zoltan] [--ranks 1 2 4]
        [--parts 4] [--pm-dglpart PATH]

Make FOLDER by `python -m tests.benchmarks.partition_graphs`. "rest" is all that is not the partitioner
itself: reading, exchange, CSR, scoring, writing, start of the processes. The peer (ParMETIS's own
pm_dglpart, never part of this project) runs on the same graph as text when its path is given; its library
time is the "Total" that it prints itself. Last, where both ran, comes the ratio of the rests: CPU seconds of
all ranks and wall seconds.
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

from dglrun.formats import assignment
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.parmetis import pm_dglpart_output, to_parmetis
from dglrun.partitioning import partition_quality

RANKS = ("zoltan", "parmetis", "streaming")


@dataclass(frozen=True)
class Row:
    """One run.

    Attributes:
        name: Back end.
        ranks: Processes.
        wall: Seconds from start to end.
        cpu: CPU seconds of all processes.
        inside: Wall and CPU seconds of the partitioner itself, where it is told.
        stages: Wall and CPU seconds of load, score and write, where they are told: the rest without the
            start of Python and MPI.
        peak: MiB of the largest process.
        quality: Cut, edge balance, node balance.
    """

    name: str
    ranks: int
    wall: float
    cpu: float
    inside: tuple[float, float] | None
    stages: tuple[float, float] | None
    peak: float
    quality: dict[str, Any]

    @property
    def rest(self) -> tuple[float, float] | None:
        """Wall and CPU seconds of all that is not the partitioner."""
        return None if self.inside is None else (self.wall - self.inside[0], self.cpu - self.inside[1])

    def cells(self) -> list[str]:
        pairs = [(self.wall, self.cpu), self.inside, self.rest]
        times = ["" if pair is None else f"{pair[0]:.1f} / {pair[1]:.1f}" for pair in pairs]
        shown = [f"{self.quality[key]:{form}}" if key in self.quality else "" for key, form in QUALITY]
        return [self.name, str(self.ranks), *times, f"{self.peak:.0f}", *shown]


QUALITY = (("edge_cut_ratio", ".1%"), ("edge_balance", ".2f"), ("node_balance", ".2f"))
HEADER = (
    "back end", "ranks", "wall / CPU s", "partitioner", "rest", "MiB per process",
    "cut", "edge balance", "node balance",
)  # fmt: skip


def timed(argv: Sequence[str], cwd: Path | None = None) -> tuple[str, float, float]:
    """Run to the end: output, wall seconds, CPU seconds with all descendants."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(argv, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, time.monotonic() - began, cpu


def ours(source: Path, backend: str, ranks: int, parts: int, *more: str) -> Row:
    """`dglrun partition` once, with more of its flags."""
    with tempfile.TemporaryDirectory() as out:
        argv = (
            *("/usr/bin/time", "-f", "%M", "-o", f"{out}/peak"),
            *(sys.executable, "-m", "dglrun", "partition", "--mode", "ParMETIS", "--backend", backend),
            *("--in-dir", str(source), "--out-dir", f"{out}/parts", "--num-parts", str(parts)),
            *("--ranks", str(ranks), *more),
        )
        said, wall, cpu = timed(argv)
        inside = re.search(r": partition ([0-9.]+) s, ([0-9.]+) CPU s", said)
        told = re.search(r"peak memory ([0-9.]+) MiB", said)
        peak = float(told[1]) if told else int((Path(out) / "peak").read_text()) / 1024
        quality = dict(assignment.load_meta(Path(out) / "parts").details)
    return Row(backend, ranks, wall, cpu, _pair(inside), _stages(said), peak, quality)


def _stages(said: str) -> tuple[float, float] | None:
    found = re.findall(r": (?:load|score|write) ([0-9.]+) s, ([0-9.]+) CPU s", said)
    return (sum(float(wall) for wall, _ in found), sum(float(cpu) for _, cpu in found)) if found else None


def _pair(found: re.Match[str] | None) -> tuple[float, float] | None:
    return (float(found[1]), float(found[2])) if found else None


def peer(source: Path, program: Path, ranks: int, parts: int) -> Row:
    """pm_dglpart on the same graph, text and all; it prints its library's time itself."""
    graph = ChunkedGraph.load(source)
    with tempfile.TemporaryDirectory() as folder:
        to_parmetis.to_text(graph, Path(folder), "g", by_degree=True)
        argv = (
            *("/usr/bin/time", "-f", "%M", "-o", f"{folder}/peak", "mpirun", "--allow-run-as-root"),
            *("--oversubscribe", "--bind-to", "none", "-np", str(ranks)),
            *(str(program), "g", str(parts // ranks)),
        )
        said, wall, cpu = timed(argv, Path(folder))
        if not list(Path(folder).glob("p*-g_nodes.txt")):
            raise SystemExit(f"{program} left no result; is it the program with two arguments?")
        peak = int((Path(folder) / "peak").read_text()) / 1024
        found = pm_dglpart_output.from_pieces(graph, Path(folder), "g", parts)
    inside = re.search(r" Total: Max: +([0-9.]+), Sum: +([0-9.]+)", said)
    quality = partition_quality.of_assignment(graph, found, parts).details(graph.ntypes)
    took = _pair(inside)
    if took is not None and ranks > (os.cpu_count() or 1):
        took = None  # what it prints are wall seconds, and its ranks share processors
    return Row("pm_dglpart (peer)", ranks, wall, cpu, took, None, peak, quality)


def ratio(mine: Row | None, theirs: Row) -> str:
    """Ours outside of the library over the peer's."""
    if mine is None or mine.rest is None or mine.stages is None or theirs.rest is None:
        return f"{theirs.ranks} ranks: no ratio, for want of both times"
    shares = [
        "/".join(f"{a / b:.2f}" for a, b in zip(pair, theirs.rest, strict=True))
        for pair in (mine.rest, mine.stages)
    ]
    return (
        f"{theirs.ranks} ranks, outside of ParMETIS, ours over pm_dglpart in wall/CPU seconds: {shares[0]}; "
        f"without the start of Python and MPI {shares[1]}"
    )


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
    mine: dict[int, Row] = {}
    for backend in args.backends:
        for ranks in args.ranks if backend in RANKS else [1]:
            row = ours(args.source, backend, ranks, args.parts)
            if backend == "parmetis":
                mine[ranks] = row
            print("| " + " | ".join(row.cells()) + " |", flush=True)
    if args.pm_dglpart is None:
        print("pm_dglpart: not measured, no --pm-dglpart given", file=sys.stderr)
        return 0
    theirs = [peer(args.source, args.pm_dglpart, ranks, args.parts) for ranks in args.ranks]
    print("\n".join("| " + " | ".join(row.cells()) + " |" for row in theirs))
    print("\n" + "\n".join(ratio(mine.get(row.ranks), row) for row in theirs))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
