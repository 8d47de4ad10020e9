"""What a rank loads: each of them pays for it, and their starts are a part of every job."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.dglrun_pods import ROOT

NEVER = (
    "asyncio", "difflib", "importlib.metadata", "numpy.typing", "pandas", "pyarrow.compute",
    "pyarrow.dataset", "pydantic", "rich", "tqdm", "unittest", "yaml",
)  # fmt: skip
"""What takes milliseconds, 34 of them pyarrow.compute, and is for errors or other commands."""
OF_PARQUET = ("pyarrow.fs", "pyarrow.parquet", "ssl")
"""10 ms that only Parquet and object storage need."""

READ = """
import sys
from pathlib import Path
from dglrun.commands import dispatch_rank
from dglrun.formats.chunked import read
from dglrun.formats.chunked.table import FileSpec

files = {path.stem: FileSpec(sys.argv[2], (path,)) for path in Path(sys.argv[1]).iterdir()}
assert sum(len(src) for src, _ in read.edge_blocks(files.pop("edges"), 1, 4, 2)) == 3
for spec in files.values():
    assert sum(map(len, read.feature_blocks(spec, 1, 4, 2))) == 3
"""


def loaded(unwanted: tuple[str, ...], code: str, *argv: str) -> list[str]:
    """What of the unwanted a new Python has loaded by the code, not by numpy and pyarrow themselves."""
    before = "import sys, numpy, pyarrow\nbefore = set(sys.modules)\n"
    show = f"\nprint([m for m in {unwanted} if m in set(sys.modules) - before])"
    words = (sys.executable, "-c", before + code + show, *argv)
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout.strip("[]\n").split()


@pytest.mark.parametrize("program", ["dispatch_rank", "partition_rank", "validate_parts"])
def test_a_rank_starts_without_what_it_may_not_need(program: str) -> None:
    """Its imports alone."""
    assert loaded(NEVER + OF_PARQUET, f"import dglrun.commands.{program}") == []


def test_parquet_is_read_without_pyarrows_compute(tmp_path: Path) -> None:
    """Edges, features of columns side by side, and features of each kind of vectors."""
    edges = pa.table({"s": np.arange(5), "d": np.arange(5)})
    pq.write_table(edges, tmp_path / "edges.parquet")
    pq.write_table(pa.table({"a": np.arange(5.0), "b": np.arange(5) > 2}), tmp_path / "columns.parquet")
    kinds = (pa.list_(pa.float32()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 2))
    for at, kind in enumerate(kinds):
        vectors = pa.array([[1.0, 2.0]] * 5, kind)
        pq.write_table(pa.table({"x": vectors}), tmp_path / f"vectors-{at}.parquet")

    assert loaded(NEVER, READ, str(tmp_path), "parquet") == []


@pytest.mark.parametrize("layout", ["csv", "numpy"])
def test_other_formats_are_read_without_what_parquet_needs(tmp_path: Path, layout: str) -> None:
    """Edges and a feature."""
    rows = np.arange(10).reshape(5, 2)
    for name in ("edges", "feature"):
        if layout == "csv":
            (tmp_path / f"{name}.csv").write_text("".join(f"{src} {dst}\n" for src, dst in rows))
        else:
            np.save(tmp_path / f"{name}.npy", rows)

    assert loaded(NEVER + OF_PARQUET, READ, str(tmp_path), layout) == []
