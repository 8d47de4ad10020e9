"""The measured tables of docs/: each stands between two comments, and one command writes it whole.

    <!-- table NAME: `COMMAND`; do not edit -->
    Measured on DATE at commit COMMIT: ...

    | ... |
    <!-- end of table NAME -->

So figures of two runs never stand in one table, and whoever doubts a row can repeat it.
"""

import os
import platform
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[2]
WRITE = "DGL_OPERATOR_WRITE_FIGURES"


@dataclass(frozen=True)
class Table:
    """A table of figures.

    Attributes:
        name: Its name in the comments around it.
        page: Its file below docs/.
        command: What writes it.
        columns: Its heads.
        rests_on: The tables that it is computed from, if it is not measured.
    """

    name: str
    page: str
    command: str
    columns: tuple[str, ...]
    rests_on: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """The page's file."""
        return ROOT / "docs" / self.page

    @property
    def head(self) -> str:
        """The first two lines in Markdown."""
        return row(self.columns) + "\n" + "|---" * len(self.columns) + "|"

    @property
    def begin(self) -> str:
        """The comment before it."""
        return f"<!-- table {self.name}: `{self.command}`; do not edit -->"

    @property
    def end(self) -> str:
        """The comment after it."""
        return f"<!-- end of table {self.name} -->"


_BENCHMARK = "python -m tests.benchmarks.tables"
_DISPATCH = (
    "program", "nodes / edges / width", "edges in", "ranks, parts", "CPU s", "wall s",
    "MiB per rank", "output MiB per rank", "of 1.2 x output + 0.7 GiB",
)  # fmt: skip
_QUALITY = ("Cut", "Edge balance", "Node balance")
_SECONDS, _MEMORY = "Wall / CPU s", "MiB per process"
_CHUNK = "Tables", "Nodes", "Edges", _SECONDS, "Peak MiB", "Disk at most, MiB", "Output, MiB"

TABLES = {
    table.name: table
    for table in (
        Table("integration", "reference/figures.md", f"{WRITE}=1 make integration", ("What", "Measured")),
        Table("e2e", "reference/figures.md", f"{WRITE}=1 make e2e", ("What", "Measured")),
        Table(
            "storage",
            "reference/figures.md",
            "python -m tests.e2e.storage_times",
            ("Everything on S3", "From apply to the training, s", "Beside the first row, s"),
        ),
        Table("dispatch", "reference/dispatch.md", f"{_BENCHMARK} dispatch", _DISPATCH),
        Table("dispatch-growth", "reference/dispatch.md", f"{_BENCHMARK} dispatch-growth", _DISPATCH),
        Table(
            "dispatch-targets",
            "reference/dispatch.md",
            f"{_BENCHMARK} dispatch-targets",
            (
                "what", "nodes / edges / width", "ranks, parts", "CPU s", "of it user", "wall s",
                "MiB per rank", "measured", "target: at most",
            ),
        ),
        Table(
            "verify",
            "reference/verify-report.md",
            f"{_BENCHMARK} verify",
            (
                "nodes / edges / width", "edges in", "ranks and parts", "what", "wall s", "CPU s",
                "of it user", "CPU of dispatch's (user time of its)", "MiB per rank",
            ),
        ),
        Table(
            "partition",
            "reference/partition.md",
            f"{_BENCHMARK} partition",
            ("Graph", "Back end", "Ranks", _SECONDS, "Of it the partitioner", _MEMORY, *_QUALITY),
        ),
        Table(
            "partition-stages",
            "reference/partition.md",
            f"{_BENCHMARK} partition-stages",
            ("Ranks", "Wall / CPU s", "MiB per rank"),
        ),
        Table(
            "assign",
            "reference/partition.md",
            f"{_BENCHMARK} assign",
            (
                "Graph", "Parts", "Back end", _SECONDS, _MEMORY,
                "Of METIS: wall", "CPU", "memory", *_QUALITY,
            ),
        ),
        Table(
            "assign-large",
            "reference/partition.md",
            f"{_BENCHMARK} assign-large",
            ("Graph", "Nodes / edges", "Parts", _SECONDS, _MEMORY, "Bytes per edge", *_QUALITY),
        ),
        Table(
            "streaming",
            "reference/partition.md",
            f"{_BENCHMARK} streaming",
            ("Graph", "Ranks", _SECONDS, _MEMORY, "Of it for the graph", "Of half the ranks", *_QUALITY),
        ),
        Table(
            "dgl-api",
            "reference/partition.md",
            f"{_BENCHMARK} dgl-api",
            (
                "Method", "Way", _SECONDS, "MiB of the largest process",
                "Of partition_graph: wall", "CPU", "memory",
            ),
        ),
        Table(
            "parmetis",
            "reference/partition.md",
            f"{_BENCHMARK} parmetis",
            ("Back end", "Ranks", _SECONDS, "Of it the library", "Rest", _MEMORY, *_QUALITY),
        ),
        Table(
            "plan",
            "reference/partition.md",
            f"{_BENCHMARK} plan",
            ("What", "Measured", "Of a rank"),
            ("assign", "dispatch-growth", "dispatch-targets", "verify", "chunk-large"),
        ),
        Table(
            "agents", "reference/figures.md", f"{_BENCHMARK} agents", ("What", "Measured", "Target")
        ),
        Table(
            "training",
            "reference/figures.md",
            f"{_BENCHMARK} training",
            ("Way", "Runs", "Seconds per epoch, median", "Lowest to highest", "Of by hand"),
        ),
        Table("example", "explanation/debian-graph.md", f"{_BENCHMARK} example", ("Model", "Test accuracy")),
        Table(
            "transfer",
            "reference/figures.md",
            "make bench ONLY=transfer BENCH_ARGS=--write",
            ("Way", "Size", "First hop, MB/s", "Second hop, MB/s", "Both, MB/s", "CPU s per GB, both"),
        ),
        Table(
            "kills",
            "reference/figures.md",
            "python -m tests.kills --number 1000 --write",
            ("What", "Measured"),
        ),
        Table(
            "preempted",
            "reference/figures.md",
            f"{WRITE}=1 make preempt",
            (
                "Example", "Accuracy undisturbed", "Preempted", "Epochs kept", "Bytes of the part",
                "Bytes moved", "All train again after", "Load average",
            ),
        ),
        Table(
            "chunk",
            "reference/formats.md",
            f"{_BENCHMARK} chunk",
            _CHUNK,
        ),
        Table("chunk-large", "reference/formats.md", f"{_BENCHMARK} chunk-large", ("Pod's memory", *_CHUNK)),
        Table("readers", "reference/formats.md", f"{_BENCHMARK} readers", ("Format", "10⁶ rows/s", "GB/s")),
    )
}  # fmt: skip


def row(cells: Iterable[object]) -> str:
    """A line of a table in Markdown."""
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def cells(line: str) -> list[str]:
    """What `row` was given, as texts."""
    return [cell.strip() for cell in line.strip("|").split("|")]


def block(table: Table, rows: Sequence[Sequence[object]], note: str = "") -> str:
    """A table with its comments, and the line that says when, where and at which commit it was measured."""
    computed = f"Computed from the tables {', '.join(table.rests_on)}."
    said = computed if table.rests_on else f"{circumstances()}{' ' if note else ''}{note}"
    lines = [table.begin, said, "", table.head, *map(row, rows)]
    return "\n".join([*lines, table.end])


def put(page: str, table: Table, text: str) -> str:
    """Return a page with a table's block in the place of the one that is there.

    Raises:
        ValueError: the page has no place for it, or several.
    """
    place = re.compile(rf"<!-- table {re.escape(table.name)}: .*?{re.escape(table.end)}", re.DOTALL)
    if len(found := place.findall(page)) != 1:
        raise ValueError(f"{table.page}: expected one place for table {table.name}, got {len(found)}")
    return place.sub(lambda _: text, page)


def write(name: str, rows: Sequence[Sequence[object]], note: str = "") -> None:
    """Write a table into its page, whole.

    Args:
        name: One of TABLES.
        rows: Its cells.
        note: What else belongs to the figures, such as the load of the machine.
    """
    table = TABLES[name]
    table.path.write_text(put(table.path.read_text(), table, block(table, rows, note)))


def circumstances() -> str:
    """A sentence with date, commit and machine."""
    kernel = f"{platform.system()} {platform.release().split('-')[0]}"
    return f"Measured on {datetime.now(UTC):%Y-%m-%d} at commit {commit()}: {os.cpu_count()} cores, {kernel}."


def commit() -> str:
    """The commit of this checkout; what has changed since then is told, but for the pages themselves."""
    name = _git("rev-parse", "--short", "HEAD").strip() or "unknown"
    changed = _git("status", "--porcelain", "--", ".", ":!docs").strip()
    return f"{name} with local changes" if changed else name


def _git(*argv: str) -> str:
    return subprocess.run(("git", *argv), capture_output=True, text=True, cwd=ROOT, check=False).stdout
