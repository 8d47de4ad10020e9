"""What a rank of dispatch loads: each of them pays for it, and their starts are a part of every job."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.dglrun_pods import ROOT

HEAVY = (
    "asyncio", "numpy.typing", "pandas", "pyarrow.compute", "pyarrow.dataset", "pydantic", "rich", "tqdm",
    "unittest", "yaml",
)  # fmt: skip
"""None of it is needed to make parts; pyarrow.compute alone takes 34 ms."""


def loaded(code: str, *argv: str) -> list[str]:
    """What of HEAVY a new Python has loaded after the code."""
    show = f"import sys\nprint([m for m in {HEAVY} if m in sys.modules])"
    words = (sys.executable, "-c", f"{code}\n{show}", *argv)
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout.strip("[]\n").split()


def test_a_rank_starts_without_what_it_does_not_need() -> None:
    """Its imports alone."""
    assert loaded("import dglrun.commands.dispatch_rank") == []


def test_parquet_is_read_without_pyarrows_compute(tmp_path: Path) -> None:
    """Edges, features of columns side by side, and features of each kind of vectors."""
    edges = pa.table({"s": np.arange(5), "d": np.arange(5)})
    pq.write_table(edges, tmp_path / "edges.parquet")
    pq.write_table(pa.table({"a": np.arange(5.0), "b": np.arange(5) > 2}), tmp_path / "columns.parquet")
    kinds = (pa.list_(pa.float32()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 2))
    for at, kind in enumerate(kinds):
        vectors = pa.array([[1.0, 2.0]] * 5, kind)
        pq.write_table(pa.table({"x": vectors}), tmp_path / f"vectors-{at}.parquet")
    code = """
import sys
from pathlib import Path
from dglrun.commands import dispatch_rank
from dglrun.formats.chunked import read
from dglrun.formats.chunked.table import FileSpec

files = {path.stem: FileSpec("parquet", (path,)) for path in Path(sys.argv[1]).iterdir()}
assert sum(len(src) for src, _ in read.edge_blocks(files.pop("edges"), 1, 4, 2)) == 3
for spec in files.values():
    assert sum(map(len, read.feature_blocks(spec, 1, 4, 2))) == 3
"""

    assert loaded(code, str(tmp_path)) == []
