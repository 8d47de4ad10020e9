"""DGL's own loader on the parts, with its checks switched on, in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from dglrun.formats.dgl.folder import PartitionFolder

_PROGRAM = """
import inspect, json, os, sys, warnings
warnings.simplefilter("ignore")
import dgl, torch
from dgl.distributed import load_partition

def check_graphbolt(graph, part):
    del os.environ["DGL_DIST_DEBUG"]  # it demands edge IDs, which DGL's converter leaves out by default
    bolt = load_partition(config, int(part), use_graphbolt=True)[0]
    os.environ["DGL_DIST_DEBUG"] = "1"
    indptr, indices, eids = graph.adj_tensors("csc")
    pairs = [(bolt.csc_indptr, indptr), (bolt.indices, indices)]
    if dgl.EID in (bolt.edge_attributes or {}):
        pairs.append((bolt.edge_attributes[dgl.EID], graph.edata[dgl.EID][eids]))
    if not all(torch.equal(one.long(), other.long()) for one, other in pairs):
        sys.exit("GraphBolt's form is another graph than graph.dgl")

config, *parts = sys.argv[1:]
knows_graphbolt = "use_graphbolt" in inspect.signature(load_partition).parameters
with open(config) as file:
    described = json.load(file)
for part in parts:
    graph = load_partition(config, int(part))[0]
    if knows_graphbolt and "part_graph_graphbolt" in described["part-" + part]:
        check_graphbolt(graph, part)
    print("dglrun: loaded", part, flush=True)
"""
_LOADED = "dglrun: loaded "
_LAST_LINES = 3


def problems(
    folder: PartitionFolder,
    python: Path | None = None,
    parts: Iterable[int] | None = None,
    deadline: float = 3600,
) -> Iterator[str]:
    """Say which parts `dgl.distributed.load_partition` refuses under DGL_DIST_DEBUG.

    One process loads part after part, so that torch and DGL are imported once; after a part that it does
    not survive another takes up the rest.

    Args:
        folder: The partition.
        python: A Python with torch and dgl; None: this one.
        parts: Which parts; None: all.
        deadline: Seconds for each process.
    """
    left = list(range(folder.parts) if parts is None else parts)
    while left:
        loaded, problem = _load(folder.path.absolute(), str(python or sys.executable), left, deadline)
        left = left[loaded:]
        if problem is None or not left:
            return
        yield f"part {left.pop(0)}: DGL's loader {problem}"


def _load(config: Path, python: str, parts: list[int], deadline: float) -> tuple[int, str | None]:
    """How many parts were loaded, in order, and what stopped it."""
    argv = (python, "-c", _PROGRAM, str(config), *map(str, parts))
    environment = os.environ | {"DGL_DIST_DEBUG": "1", "DGLBACKEND": "pytorch"}
    try:
        ended = subprocess.run(argv, env=environment, capture_output=True, timeout=deadline, check=False)
    except subprocess.TimeoutExpired as late:
        return _loaded(late.stdout), f"took longer than {deadline:g} s"
    if not ended.returncode:
        return len(parts), None
    last = " | ".join(ended.stderr.decode(errors="replace").strip().splitlines()[-_LAST_LINES:])
    return _loaded(ended.stdout), f"refuses it (exit code {ended.returncode}): {last}"


def _loaded(said: bytes | None) -> int:
    return sum(line.startswith(_LOADED) for line in (said or b"").decode(errors="replace").splitlines())
