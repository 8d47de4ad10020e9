"""Dispatch beside its targets: `python -m tests.benchmarks.tables dispatch-targets`.

Beside `cp` of its input and output, both read from memory and both on the disk at the end; eight ranks beside
two and 400M edges beside 80M, of each the cheapest of three runs. CPU seconds and memory are robust; compare
wall times on an idle machine. The largest takes 20 GB of disk.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tests.benchmarks.dispatch_bench import MIB, REPEAT, Run, by_dglrun, cheapest, finish, ours
from tests.benchmarks.dispatch_data import Size, generate

WITH_FEATURES = Size(4_000_000, 40_000_000, 64, 2, 2, "parquet")
EDGES_ALONE = Size(4_000_000, 80_000_000, 0, 2, 2, "parquet")
FEW, MANY = 2, 8
"""Ranks."""


def rows(folder: Path | None) -> Iterator[list[str]]:
    """Rows of the table `dispatch-targets`; inputs and outputs are made in `folder`."""
    for parts in (2, 64):
        yield from beside_copy(replace(WITH_FEATURES, parts=parts), folder)
    few, many = in_turn([replace(WITH_FEATURES, parts=MANY, files=ranks) for ranks in (FEW, MANY)], folder)
    yield cells("dispatch", few)
    ratios = (
        f"{many.cpu / few.cpu:.2f} of the CPU on {FEW} ranks, {many.user / few.user:.2f} of the user time"
    )
    yield cells("dispatch", many, ratios, "1.3")
    less, more = in_turn([replace(EDGES_ALONE, edges=edges) for edges in (80_000_000, 400_000_000)], folder)
    yield cells("dispatch", less)
    times = more.size.edges / less.size.edges
    growth, of_user = more.cpu / less.cpu / times, more.user / less.user / times
    ratios = f"{growth:.2f} of the CPU by edge, {of_user:.2f} of the user time"
    yield cells("dispatch", more, ratios, "linear")
    held = (more.rss - less.rss) * MIB * less.size.files / (more.size.edges - less.size.edges)
    yield cells("dispatch", more, f"{held:.1f} bytes more for each edge more of a rank", "20")


def beside_copy(size: Size, folder: Path | None) -> Iterator[list[str]]:
    """Copy and dispatch the same, with the writing to the disk."""
    with tempfile.TemporaryDirectory(dir=folder) as made:
        source, out, copy = generate(size, Path(made) / "in"), Path(made) / "ours", Path(made) / "copy"
        os.sync()
        wall = by_dglrun(size, source, out)
        began = time.monotonic()
        to_disk(out)
        wall += time.monotonic() - began
        os.sync()
        copied = copying((source, out), copy)
        shutil.rmtree(copy)
        yield [f"`cp` of {gib((source, out)):.1f} GiB", shape(size), "", "", "", f"{copied:.1f}", "", "", ""]
        found = finish("dglrun", size, source, out / "g.json", wall)
        yield cells("dispatch", found, f"{wall / copied:.2f} of the wall of `cp`", "2.5")


def copying(sources: tuple[Path, ...], to: Path) -> float:
    """Seconds to copy folders, until all is on the disk."""
    to.mkdir()
    began = time.monotonic()
    subprocess.run(("cp", "-r", *map(str, sources), str(to)), check=True)
    to_disk(to)
    return time.monotonic() - began


def to_disk(folder: Path) -> None:
    """Have the kernel write all files of a folder."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)


def gib(folders: tuple[Path, ...]) -> float:
    """What folders hold."""
    return sum(path.stat().st_size for each in folders for path in each.rglob("*") if path.is_file()) / 2**30


def in_turn(sizes: Sequence[Size], folder: Path | None) -> list[Run]:
    """Dispatch each input some times: of each the cheapest run."""
    with tempfile.TemporaryDirectory(dir=folder) as made:
        sources = {size: generate(size, Path(made) / str(at) / "in") for at, size in enumerate(sizes)}
        found = cheapest(sizes, lambda size: ours(size, sources[size], sources[size].parent), _cpu, REPEAT)
    return [found[size] for size in sizes]


def _cpu(found: Run) -> float:
    return found.cpu


def cells(what: str, found: Run, measured: str = "", target: str = "") -> list[str]:
    """A row."""
    size = found.size
    costs = (f"{found.cpu:.1f}", f"{found.user:.1f}", f"{found.wall:.1f}", f"{found.rss:.0f}")
    return [what, shape(size), f"{size.files}, {size.parts}", *costs, measured, target]


def shape(size: Size) -> str:
    """Nodes, edges, width."""
    return f"{size.nodes:,} / {size.edges:,} / {size.width}"
