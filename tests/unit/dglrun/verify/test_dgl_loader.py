"""`dglrun verify` and DGL's own loader on what dispatch makes of random heterographs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dglrun.commands import verify
from tests.support.commands import run_command
from tests.support.heterographs import random_toys
from tests.unit.dglrun.dispatch.test_partitions import dispatched

MODERN = os.environ.get("DGLRUN_MODERN_PYTHON")
PYTHONS = [
    pytest.param(sys.executable, id="here"),
    pytest.param(
        MODERN,
        id="modern",
        marks=pytest.mark.skipif(not MODERN, reason="DGLRUN_MODERN_PYTHON names no Python with dgl 2.1"),
    ),
]
LOADER = """
import json, pathlib, sys, warnings
warnings.simplefilter("ignore")
import dgl
for config in sorted(pathlib.Path(sys.argv[1]).glob("*/out/toy.json")):
    described = json.loads(config.read_text())
    nodes, edges = 0, 0
    for part in range(described["num_parts"]):
        graph, nfeats, efeats, book, *_ = dgl.distributed.load_partition(str(config), part)
        nodes += int(graph.ndata["inner_node"].sum())
        edges += int(graph.edata["inner_edge"].sum())
    assert (nodes, edges) == (described["num_nodes"], described["num_edges"]), config
    print(config.parts[-3])
"""


@pytest.mark.dgl
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_random_heterographs_hold_for_us_and_for_dgl(tmp_path: Path, ranks: int, python: str) -> None:
    """Empty types and parts, many files, 1 to 8 parts: verified against the source, loaded by DGL."""
    formats = (("coo",), ("csc",), ("coo", "csr", "csc"))
    every = {f"{at:02}": toy for at, toy in enumerate(random_toys(20))}
    for at, (name, toy) in enumerate(every.items()):
        fmt, chunks = ("csv", "parquet", "numpy")[at % 3], 1 + at % 5
        out = dispatched(toy, tmp_path / name, ranks, fmt, chunks, formats=formats[at % 3])
        source = ("--in-dir", str(out.parent / "in"), "--partitions-dir", str(out.parent / "in/parts"))
        assert run_command(verify, "verify", str(out / "toy.json"), *source) == 0

    ended = subprocess.run(
        (python, "-c", LOADER, str(tmp_path)),
        env=os.environ | {"DGL_DIST_DEBUG": "1", "DGLBACKEND": "pytorch"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert set(every) <= set(ended.stdout.split())
