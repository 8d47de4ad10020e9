"""What DistParMETIS's check of the parts costs, beside dispatch in the same run: `make bench ONLY=verify`.

    python -m tests.benchmarks.verify_bench [--nodes 4000000] [--edges 40000000] [--width 64] [--ranks 2]

The flags are those of dispatch_bench. There are three kinds of checks: `--verify never` counts edge cut and
balance only, `auto` proves the parts too, by the sums that dispatch has left, and `always` reads the source
again. Ratios are to the dispatch that leaves no sums. CPU seconds and memory are robust; compare wall times
on an idle machine.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dglrun.mpi import mpirun
from tests.benchmarks import dispatch_bench
from tests.benchmarks.dispatch_bench import ranks, usage, used
from tests.benchmarks.dispatch_data import Size, generate
from tests.support.measured import TABLES, row

REPEAT = 3
"""Runs of each kind, in turn, of which the cheapest counts: the kernel's part, memory for what is written
before all, is half as much again in some runs."""
DISPATCH = {"dispatch": (), "dispatch with sums": ("--source-sums",)}
CHECK = {"never": "count", "auto": "count and verify by sums", "always": "count and verify in full"}


@dataclass(frozen=True, order=True)
class Spent:
    """What ranks have used: CPU seconds of all, MiB of the largest, and seconds."""

    cpu: float
    peak: float
    wall: float


def measure(size: Size, folder: Path | None) -> Iterator[list[str]]:
    """Dispatch an input and check the parts: rows of the table `verify`."""
    with tempfile.TemporaryDirectory(dir=folder) as made:
        source, out = generate(size, Path(made) / "in"), Path(made) / "out"
        dispatched = _cheapest(DISPATCH, lambda what: dispatch(size, source, out, *DISPATCH[what]))
        checked = _cheapest(CHECK, lambda verify: check(size, source, out, verify))
    shape = [f"{size.nodes:,} / {size.edges:,} / {size.width}", size.format, str(size.files)]
    whole, counted = dispatched["dispatch"].cpu, checked["never"].cpu
    for what, spent in dispatched.items():
        part = "" if what == "dispatch" else f"{spent.cpu / whole:.2f}"
        yield [*shape, what, *_cells(spent, part)]
    for verify, spent in checked.items():
        alone = "" if verify == "never" else f"; verifying alone {(spent.cpu - counted) / whole:.2f}"
        yield [*shape, CHECK[verify], *_cells(spent, f"{spent.cpu / whole:.2f}{alone}")]


def _cheapest(kinds: Iterable[str], run: Callable[[str], Spent]) -> dict[str, Spent]:
    """The cheapest run of each kind. The last run is of the last kind: checks read what it has written."""
    runs = [{kind: run(kind) for kind in kinds} for _ in range(REPEAT)]
    return {kind: min(found[kind] for found in runs) for kind in kinds}


def _cells(spent: Spent, ratio: str) -> list[str]:
    return [f"{spent.wall:.1f}", f"{spent.cpu:.2f}", ratio, f"{spent.peak:.0f}"]


def dispatch(size: Size, source: Path, out: Path, *flags: str) -> Spent:
    """Dispatch anew."""
    shutil.rmtree(out, ignore_errors=True)
    wall = dispatch_bench.by_dglrun(size, source, out, *flags)
    return Spent(*used(usage(out)), wall)


def check(size: Size, source: Path, out: Path, verify: str) -> Spent:
    """Check the parts."""
    noted = out.with_name(f"{verify}.usage")
    wall = ranks(
        size,
        noted,
        "dglrun.commands.validate_parts",
        *(out / "g.json", "--in-dir", source, "--partitions-dir", source / "parts"),
        *("--json", out / "quality.json", "--verify", verify, "--limit", "0"),
        env=mpirun.KEEP_FREED,  # as in a job
    )
    return Spent(*used(noted), wall)


def main(argv: list[str]) -> int:
    """Run and print the table."""
    args = dispatch_bench.parse(argv)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors", file=sys.stderr)
    print(TABLES["verify"].head, flush=True)
    for size in dispatch_bench.sizes(args):
        for cells in measure(size, args.folder):
            print(row(cells), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
