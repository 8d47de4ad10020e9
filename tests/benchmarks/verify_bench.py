"""What DistParMETIS's check of the parts costs, beside dispatch in the same run: `make bench ONLY=verify`.

    python -m tests.benchmarks.verify_bench [--nodes 4000000] [--edges 40000000] [--width 64] [--ranks 2]

The flags are those of dispatch_bench. The check runs three times: `--verify never` counts edge cut and
balance only, `auto` proves the parts too, by the sums that dispatch has left, and `always` reads the source
again. Ratios are to the dispatch that leaves no sums. CPU seconds and memory are robust; compare wall times
on an idle machine.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dglrun.mpi import mpirun
from tests.benchmarks import dispatch_bench
from tests.benchmarks.dispatch_bench import ranks, usage, used
from tests.benchmarks.dispatch_data import Size, generate
from tests.support.measured import TABLES, row


def measure(size: Size, folder: Path | None) -> Iterator[list[str]]:
    """Dispatch an input and check the parts: rows of the table `verify`."""
    with tempfile.TemporaryDirectory(dir=folder) as made:
        source, out = generate(size, Path(made) / "in"), Path(made) / "out"
        shape = [f"{size.nodes:,} / {size.edges:,} / {size.width}", size.format, str(size.files)]
        cpu = 0.0
        for flags, what in (((), "dispatch"), (("--source-sums",), "dispatch with sums")):
            shutil.rmtree(out, ignore_errors=True)
            wall = dispatch_bench.by_dglrun(size, source, out, *flags)
            spent, rss = used(usage(out))
            cpu = cpu or spent
            part = "" if spent == cpu else f"{spent / cpu:.2f}"
            yield [*shape, what, f"{wall:.1f}", f"{spent:.1f}", part, f"{rss:.0f}"]
        counted = 0.0
        kinds = {"never": "count", "auto": "count and verify by sums", "always": "count and verify in full"}
        for verify, what in kinds.items():
            spent, peak, seconds = check(size, source, out, verify)
            proof = f"; verifying alone {(spent - counted) / cpu:.2f}" if counted else ""
            counted = counted or spent
            yield [*shape, what, f"{seconds:.1f}", f"{spent:.1f}", f"{spent / cpu:.2f}{proof}", f"{peak:.0f}"]


def check(size: Size, source: Path, out: Path, verify: str) -> tuple[float, float, float]:
    """Check the parts; returns CPU seconds, MiB of the largest rank, and seconds."""
    noted = out.with_name(f"{verify}.usage")
    wall = ranks(
        size,
        noted,
        "dglrun.commands.validate_parts",
        *(out / "g.json", "--in-dir", source, "--partitions-dir", source / "parts"),
        *("--json", out / "quality.json", "--verify", verify, "--limit", "0"),
        env=mpirun.KEEP_FREED,  # as in a job
    )
    return *used(noted), wall


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
