"""What DistParMETIS's check of the parts costs, beside dispatch in the same run: `make bench ONLY=verify`.

    python -m tests.benchmarks.verify_bench [--nodes 4000000] [--edges 40000000] [--width 64] [--ranks 2]

The flags are those of dispatch_bench. There are three kinds of checks: `--verify never` counts edge cut and
balance only, `auto` proves the parts too, by the sums that dispatch has left, and `always` reads the source
again. Of each kind the cheapest of `--repeat` runs counts, three by default; ratios are to the dispatch that
leaves no sums. CPU seconds and memory are robust; compare wall times on an idle machine.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dglrun.mpi import mpirun
from tests.benchmarks import dispatch_bench, rusage
from tests.benchmarks.dispatch_bench import REPEAT, by_mpirun, cheapest, dispatch_flags, usage
from tests.benchmarks.dispatch_data import Size, generate
from tests.support.measured import TABLES, row

DISPATCH = {"dispatch": (), "dispatch with sums": ("--source-sums",)}
CHECK = {"never": "count", "auto": "count and verify by sums", "always": "count and verify in full"}


@dataclass(frozen=True)
class Spent:
    """What ranks have used: CPU seconds of all, of them the user seconds, MiB of the largest, and seconds."""

    cpu: float
    user: float
    peak: float
    wall: float


_NOTHING = Spent(0, 0, 0, 0)


def measure(size: Size, folder: Path | None, repeat: int = REPEAT) -> Iterator[list[str]]:
    """Dispatch an input and check the parts, each kind `repeat` times: rows of the table `verify`."""
    with tempfile.TemporaryDirectory(dir=folder) as made:
        source, out = generate(size, Path(made) / "in"), Path(made) / "out"
        dispatched = cheapest(
            DISPATCH, lambda what: dispatch(size, source, out, *DISPATCH[what]), _cpu, repeat
        )
        checked = cheapest(CHECK, lambda verify: check(size, source, out, verify), _cpu, repeat)
    shape = [f"{size.nodes:,} / {size.edges:,} / {size.width}", size.format, str(size.files)]
    whole, counted = dispatched["dispatch"], checked["never"]
    for what, spent in dispatched.items():
        yield [*shape, what, *_cells(spent, "" if what == "dispatch" else _ratios(spent, whole))]
    for verify, spent in checked.items():
        alone = "" if verify == "never" else f"; verifying alone {_ratios(spent, whole, counted)}"
        yield [*shape, CHECK[verify], *_cells(spent, f"{_ratios(spent, whole)}{alone}")]


def _spent(noted: Path, wall: float) -> Spent:
    found = rusage.used(noted)
    return Spent(found.cpu, found.user, found.rss, wall)


def _cpu(spent: Spent) -> float:
    return spent.cpu


def _ratios(spent: Spent, whole: Spent, without: Spent = _NOTHING) -> str:
    """CPU, and user time, beyond what runs `without` something take, of those of the whole."""
    cpu, user = (spent.cpu - without.cpu) / whole.cpu, (spent.user - without.user) / whole.user
    return f"{cpu:.2f} ({user:.2f})"


def _cells(spent: Spent, ratio: str) -> list[str]:
    return [f"{spent.wall:.1f}", f"{spent.cpu:.2f}", f"{spent.user:.2f}", ratio, f"{spent.peak:.0f}"]


def dispatch(size: Size, source: Path, out: Path, *flags: str) -> Spent:
    """Dispatch anew, on ranks of MPI as the check."""
    shutil.rmtree(out, ignore_errors=True)
    module = "dglrun.commands.dispatch_rank"
    wall = by_mpirun(size, usage(out), module, *dispatch_flags(source, out), *flags)
    return _spent(usage(out), wall)


def check(size: Size, source: Path, out: Path, verify: str) -> Spent:
    """Check the parts."""
    noted = out.with_name(f"{verify}.usage")
    wall = by_mpirun(
        size,
        noted,
        "dglrun.commands.validate_parts",
        *(out / "g.json", "--in-dir", source, "--partitions-dir", source / "parts"),
        *("--json", out / "quality.json", "--verify", verify, "--limit", "0"),
        env=mpirun.KEEP_FREED,  # as in a job
    )
    return _spent(noted, wall)


def main(argv: list[str]) -> int:
    """Run and print the table."""
    args = dispatch_bench.parse(argv, REPEAT)
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors", file=sys.stderr)
    print(TABLES["verify"].head, flush=True)
    for size in dispatch_bench.sizes(args):
        for cells in measure(size, args.folder, args.repeat):
            print(row(cells), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
