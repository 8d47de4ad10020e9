"""GraphBolt's form of the parts, against what dgl's own converter makes of the same parts.

Runs on a Python with torch 2.2 and dgl 2.1 that DGLRUN_MODERN_PYTHON names (it needs numpy and pyarrow).
"""

import os
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from dglrun.commands import dispatch
from dglrun.dispatch import graphbolt
from tests.support.commands import run_command
from tests.support.heterographs import Toy, a_toy

ROOT = Path(__file__).parents[4]
MODERN = os.environ.get("DGLRUN_MODERN_PYTHON")

COMPARE = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
import dgl, torch
from dgl.distributed.partition import dgl_partition_to_graphbolt

ours, theirs = sys.argv[1:]
dgl_partition_to_graphbolt(theirs, store_eids=True, store_inner_node=True, store_inner_edge=True)
os.environ["DGL_DIST_DEBUG"] = "1"

def same(one, two):
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if one is None or two is None:
        return one is two
    return one.dtype == two.dtype and torch.equal(one, two)

described = json.load(open(ours))
assert described == json.load(open(theirs)), described
for part in range(described["num_parts"]):
    one = dgl.distributed.load_partition(ours, part, use_graphbolt=True)[0]
    two = dgl.distributed.load_partition(theirs, part, use_graphbolt=True)[0]
    for field in ("csc_indptr", "indices", "type_per_edge", "node_attributes", "edge_attributes"):
        assert same(getattr(one, field), getattr(two, field)), (part, field)
    assert (one.node_type_to_id, one.edge_type_to_id) == (two.node_type_to_id, two.edge_type_to_id)
"""


def run(*argv: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "PYTHONPATH": str(ROOT), "DGLBACKEND": "pytorch"}
    return subprocess.run(
        (str(MODERN), *argv), cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.dgl
@pytest.mark.skipif(not MODERN, reason="DGLRUN_MODERN_PYTHON names no Python with dgl 2.1")
@pytest.mark.parametrize("formats", ["coo", "csc"])
@pytest.mark.parametrize("toy", [a_toy(3, parts=4), a_toy(3, (200,), (900,), 2)], ids=["hetero", "homo"])
def test_it_is_what_dgls_converter_makes(tmp_path: Path, toy: Toy, formats: str) -> None:
    """Every tensor with its dtype, the JSON, and the checks of DGL_DIST_DEBUG."""
    source = toy.write(tmp_path / "in", chunks=2)
    folders = ("--in-dir", str(source), "--partitions-dir", str(source / "parts"))
    dispatch = ("-m", "dglrun.commands.dispatch_rank", *folders, "--graph-formats", formats)
    for out, more in (("ours", ("--use-graphbolt",)), ("theirs", ())):
        ended = run(*dispatch, "--out-dir", str(tmp_path / out), *more)
        assert ended.returncode == 0, ended.stderr

    ended = run("-c", COMPARE, str(tmp_path / "ours/toy.json"), str(tmp_path / "theirs/toy.json"))

    assert ended.returncode == 0, ended.stderr
    assert not list((tmp_path / "ours").rglob(f"*{graphbolt.SCRATCH}"))


def test_without_a_dgl_that_knows_graphbolt_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is read or written; the message names the version that is there."""
    monkeypatch.setattr(metadata, "version", lambda name: "1.1.3")
    flags = ("--in-dir", str(tmp_path), "--partitions-dir", str(tmp_path), "--out-dir", str(tmp_path / "o"))

    assert run_command(dispatch, "dispatch", *flags, "--use-graphbolt") == 2

    assert "needs dgl 2.1 or newer; this Python has dgl 1.1.3" in capsys.readouterr().err


SPOIL = """
import sys, torch
from dgl import graphbolt
graph = torch.load(sys.argv[1])
graph.indices = graph.indices.flip(0)
torch.save(graph, sys.argv[1])
"""
API_MADE = """
import sys, dgl, torch
torch.manual_seed(0)
g = dgl.graph((torch.randint(60, (300,)), torch.randint(60, (300,))))
g.ndata["feat"] = torch.rand(60, 4)
dgl.distributed.partition_graph(g, "toy", 2, sys.argv[1], part_method="random", use_graphbolt=True)
"""


@pytest.mark.dgl
@pytest.mark.skipif(not MODERN, reason="DGLRUN_MODERN_PYTHON names no Python with dgl 2.1")
def test_verify_holds_it_against_the_graph_beside_it(tmp_path: Path) -> None:
    """What DGL's partition_graph writes by default, without edge IDs, holds; another graph does not."""
    assert run("-c", API_MADE, str(tmp_path)).returncode == 0
    verify = ("-m", "dglrun", "verify", str(tmp_path / "toy.json"), "--dgl")
    held = run(*verify)
    assert held.returncode == 0, held.stderr

    assert run("-c", SPOIL, str(tmp_path / "part1" / graphbolt.FILENAME)).returncode == 0

    refused = run(*verify)
    assert refused.returncode == 65
    assert "part 1: DGL's loader refuses it" in refused.stderr
    assert "GraphBolt's form is another graph than graph.dgl" in refused.stderr
