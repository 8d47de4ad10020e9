"""Dispatch, ours and DGL's, on the same input: CPU seconds, wall time, peak memory of a rank.

    python -m tests.benchmarks.dispatch_bench --nodes 4000000 --edges 40000000 --width 64 \
        --dgl-tools DIR --dgl-python PYTHON

DIR is the `tools` folder of a DGL 2.1 checkout, PYTHON one with torch 2.2 and dgl 2.1; without them
only ours runs, and the table says so. The ranks of both find their modules compiled. Every output is
verified against its input before its time counts. CPU seconds and memory are robust; compare wall times on
an idle machine only.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.dgl.folder import load_folder
from dglrun.mpi import mpirun
from dglrun.mpi.collectives import SingleRank
from dglrun.verify.keys import OriginalIds
from dglrun.verify.part import PartChecks
from dglrun.verify.source import SourceChecks
from tests.benchmarks import rusage
from tests.benchmarks.dispatch_data import Size, generate
from tests.support.compiled import COMPILED, compile_modules
from tests.support.measured import TABLES, row

ROOT = Path(__file__).parents[2]
K = TypeVar("K")
R = TypeVar("R")

MIB = 1 << 20
REPEAT = 3
"""Runs of each kind where ratios are compared with a target."""
OURS = (ROOT / "dglrun", ROOT / "tests/benchmarks")
"""What runs in our ranks."""
PEER = ("DGL_TOOLS", "DGL_PYTHON")
"""Variables that name the peer where no flag does."""


@dataclass(frozen=True)
class Run:
    """What one dispatch cost.

    Attributes:
        program: `dglrun` or `DGL`.
        size: Its input.
        cpu: User and system seconds of all ranks.
        user: Of them the user seconds: in a virtual machine the kernel's depend on the memory that the host
            has at hand for what is written.
        wall: Seconds from start to end, Python's start included.
        rss: Peak memory of the largest rank in MiB.
        output: MiB of one rank's share of the output.
    """

    program: str
    size: Size
    cpu: float
    user: float
    wall: float
    rss: float
    output: float

    def cells(self) -> list[str]:
        """A row of the tables `dispatch` and `dispatch-growth`."""
        size = self.size
        shape = f"{size.nodes:,} / {size.edges:,} / {size.width}"
        costs = (f"{self.cpu:.1f}", f"{self.wall:.1f}", f"{self.rss:.0f}", f"{self.output:.0f}")
        bound = f"{100 * self.rss / (1.2 * self.output + 0.7 * 1024):.0f} %"
        return [self.program, shape, size.format, f"{size.files}, {size.parts}", *costs, bound]


def main(argv: list[str]) -> int:
    """Generate, run, verify, print the tables."""
    args = parse(argv)
    if args.targets:
        from tests.benchmarks import dispatch_targets  # noqa: PLC0415 - it imports this module

        print(TABLES["dispatch-targets"].head, flush=True)
        for cells in dispatch_targets.rows(args.folder):
            print(row(cells), flush=True)
        return 0
    runs = [run for size in sizes(args) for run in measure(size, args)]
    report(runs)
    if not has_peer(args):
        print("\nDGL's pipeline did not run: it needs --dgl-tools and --dgl-python")
    return 0


def has_peer(args: argparse.Namespace) -> bool:
    """Whether DGL's pipeline can run."""
    return args.dgl_tools is not None and args.dgl_python is not None


def measure(size: Size, args: argparse.Namespace) -> list[Run]:
    """Dispatch one input, by us and where it can run by DGL."""
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        source = generate(size, Path(folder) / "in")
        runs = [ours(size, source, Path(folder)) for _ in range(args.repeat)]
        if has_peer(args):
            runs += [theirs(size, source, Path(folder), args) for _ in range(args.repeat)]
    return runs


def parse(argv: list[str], repeat: int = 1) -> argparse.Namespace:
    """Read the flags; `repeat` is the default of the one of this name."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", default="1000000", help="one number or several, joined by commas")
    parser.add_argument("--width", type=int, default=16, help="float32 values in the node feature; 0: none")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument(
        "--targets", action="store_true", help="beside cp, by ranks and by edges; sizes do not count then"
    )
    parser.add_argument("--parts", type=int, help="default: as many as ranks")
    parser.add_argument("--formats", default="csv,parquet")
    parser.add_argument("--repeat", type=int, default=repeat, help="runs of each kind (default: %(default)s)")
    parser.add_argument(
        "--folder", type=Path, help="where input and output go (default: the temporary folder)"
    )
    tools, python = (Path(os.environ[name]) if os.environ.get(name) else None for name in PEER)
    parser.add_argument("--dgl-tools", type=Path, default=tools, help="`tools` of a DGL 2.1 checkout")
    parser.add_argument("--dgl-python", type=Path, default=python, help="a Python with torch 2.2 and dgl 2.1")
    return parser.parse_args(argv)


def sizes(args: argparse.Namespace) -> list[Size]:
    """The inputs that the flags ask for."""
    base = Size(args.nodes, 0, args.width, args.parts or args.ranks, args.ranks, "csv")
    return [
        replace(base, edges=int(edges), format=layout)
        for edges in args.edges.split(",")
        for layout in args.formats.split(",")
    ]


def ours(size: Size, source: Path, folder: Path) -> Run:
    """Dispatch by dglrun, and its cost."""
    wall = by_dglrun(size, source, folder / "ours")
    return finish("dglrun", size, source, folder / "ours/g.json", wall)


def by_dglrun(size: Size, source: Path, out: Path) -> float:
    """Dispatch by dglrun on as many ranks as the input has files; returns the seconds."""
    words = (sys.executable, "-m", "dglrun", "dispatch", *dispatch_flags(source, out))
    return seconds((*rusage.noting(usage(out)), *words, "--ranks", str(size.files)))


def dispatch_flags(source: Path, out: Path) -> tuple[str, ...]:
    """What both ways to start the ranks take."""
    folders = ("--in-dir", source, "--partitions-dir", source / "parts", "--out-dir", out)
    named = ("--ip-config", source / "ip_config.txt", "--save-orig-nids", "--save-orig-eids")
    return tuple(map(str, (*folders, *named)))


def by_mpirun(
    size: Size, noted: Path, module: str, *argv: str | Path, env: Mapping[str, str] | None = None
) -> float:
    """Run a module on as many ranks as the input has files, each measured, as mode DistParMETIS starts them.

    Args:
        size: The input.
        noted: Where each rank notes what it used.
        module: What runs.
        argv: Its arguments.
        env: Variables that the ranks get.

    Returns:
        The seconds.
    """
    program = (*rusage.noting(noted), sys.executable, "-m", module, *map(str, argv))
    job = mpirun.Job(program, size.files, cwd=str(ROOT), env={**mpirun.RANK_ENV, **(env or {})})
    return seconds(mpirun.argv(job) if size.files > 1 else program, job.env)


def seconds(words: Sequence[str], env: Mapping[str, str] | None = None) -> float:
    """Run a command that finds dglrun compiled, as its image has it: to compile it takes 0.1 s."""
    compile_modules(*OURS)
    variables = {**os.environ, **COMPILED, **(env or {})}
    started = time.monotonic()
    subprocess.run(words, check=True, cwd=ROOT, stdout=sys.stderr, env=variables)
    return time.monotonic() - started


def cheapest(
    kinds: Iterable[K], run: Callable[[K], R], cost: Callable[[R], float], repeat: int
) -> dict[K, R]:
    """Run each kind some times over: of each the run that cost least.

    The kernel's part, memory for what is written before all, is half as much again in some runs: in a virtual
    machine the first that needs memory waits until the host provides it. So runs of one kind, which need the
    same, follow one another. The last run of all is of the last kind.
    """
    return {kind: min((run(kind) for _ in range(repeat)), key=cost) for kind in kinds}


def usage(out: Path) -> Path:
    """Where the ranks that write a folder note what they used."""
    return out.with_name(f"{out.name}.usage")


def theirs(size: Size, source: Path, folder: Path, args: argparse.Namespace) -> Run:
    """Dispatch by DGL's pipeline, its ranks started without ssh."""
    out = folder / "theirs"
    out.mkdir()
    script = args.dgl_tools / "distpartitioning/data_proc_pipeline.py"
    compile_modules(script.parent, python=str(args.dgl_python))
    variables = {**os.environ, **COMPILED}
    flags = {
        "--world-size": size.files,
        "--partitions-dir": source / "parts",
        "--input-dir": source,
        "--graph-name": "g",
        "--schema": "metadata.json",
        "--num-parts": size.parts,
        "--output": out,
        "--process-group-timeout": 1800,
    }
    words = [str(word) for pair in flags.items() for word in pair]
    rank = (*rusage.noting(usage(out)), str(args.dgl_python), str(script))
    command = (*rank, *words, "--save-orig-nids", "--save-orig-eids")
    started = time.monotonic()
    ranks = [
        subprocess.Popen(
            command, env=variables | environment(number, args.dgl_tools), cwd=ROOT, stdout=sys.stderr
        )
        for number in range(size.files)
    ]
    if codes := [code for process in ranks if (code := process.wait())]:
        raise SystemExit(f"DGL's pipeline failed with {codes}")
    return finish("DGL", size, source, out / "metadata.json", time.monotonic() - started)


def environment(rank: int, tools: Path) -> dict[str, str]:
    """What DGL's pipeline reads: torch's rendezvous on loopback, one thread for each rank."""
    return {
        "RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29511",
        "GLOO_SOCKET_IFNAME": "lo",
        "DGLBACKEND": "pytorch",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{tools}:{ROOT}",
    }


def finish(program: str, size: Size, source: Path, json_path: Path, wall: float) -> Run:
    """Verify the output, read what was measured, make room."""
    verify(source, json_path)
    spent = rusage.used(usage(json_path.parent))
    written = sum(path.stat().st_size for path in json_path.parent.rglob("*") if path.is_file())
    shutil.rmtree(json_path.parent)
    return Run(program, size, spent.cpu, spent.user, wall, spent.rss, written / size.files / MIB)


def verify(source: Path, json_path: Path) -> None:
    """Compare with the source; a wrong output has no time.

    Raises:
        SystemExit: the partition is not its source.
    """
    folder, graph = load_folder(json_path), ChunkedGraph.load(source)
    wrong = [text for part in range(folder.parts) for text in PartChecks(folder, part).problems()]
    alone = SingleRank()
    wrong += SourceChecks(folder, graph, OriginalIds(folder, graph, alone), None, alone).problems()
    if wrong:
        raise SystemExit(f"{json_path} is wrong: {wrong[0]}")


def report(runs: list[Run]) -> None:
    """Print the table of runs, and for each input the ratios of the means."""
    print(TABLES["dispatch"].head)
    for run in runs:
        print(row(run.cells()))
    for size in dict.fromkeys(run.size for run in runs):
        ratios(size, [run for run in runs if run.size == size])


def ratios(size: Size, runs: list[Run]) -> None:
    """Print ours / DGL's."""
    mean = {
        name: [sum(column) / len(column) for column in zip(*values, strict=True)]
        for name in ("dglrun", "DGL")
        if (values := [(run.cpu, run.wall, run.rss) for run in runs if run.program == name])
    }
    if len(mean) == 2:
        shown = [f"1/{theirs / own:.1f}" for own, theirs in zip(mean["dglrun"], mean["DGL"], strict=True)]
        print(f"\n{size.edges:,} edges, {size.format}: CPU {shown[0]}, wall {shown[1]}, memory {shown[2]}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
