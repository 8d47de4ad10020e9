"""Graphs for the distributed back ends, and the command as a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from dglrun.formats.chunked import write
from dglrun.formats.chunked.metadata import ChunkedGraph
from tests.support.commands import run_program

ROOT = Path(__file__).parents[4]
PM_DGLPART = """#!{python}
import glob, os, sys
if len(sys.argv) != {arguments}:
    print("usage:", sys.argv[0]); sys.exit(0)
if int(os.environ["OMPI_COMM_WORLD_RANK"]):
    sys.exit(0)
names = ["graph_nodes.txt"] if {arguments} == 3 else [line.split()[0] for line in open(sys.argv[3])]
nodes = [line.split() for name in names for line in open(name)]
size = int(os.environ["OMPI_COMM_WORLD_SIZE"])
parts = int(sys.argv[2]) * (size if {arguments} == 3 else 1)
if {arguments} == 3:
    for part in range(parts):
        with open(f"p{{part:03}}-graph_nodes.txt", "w") as file:
            file.writelines(f"{{n}} {{' '.join(w)}}\\n" for n, w in enumerate(nodes) if n % parts == part)
else:
    assert len(open(sys.argv[3]).readlines()) == len(open(sys.argv[4]).readlines()) == size
    with open(f"graph_part.{{parts}}", "w") as file:
        file.writelines(f"{{n}} {{n % parts}}\\n" for n in reversed(range(len(nodes))))
"""


def partition(
    source: Path, out: Path, *flags: str, path: str = "", **more: str
) -> "subprocess.CompletedProcess[str]":
    """`dglrun partition` as a process of its own; `path` comes first on PATH, `more` into its environment."""
    argv = (sys.executable, "-m", "dglrun", "partition", "--in-dir", str(source), "--out-dir", str(out))
    env = {"PATH": f"{path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), **more}
    return run_program((*argv, *flags), env)


def a_pm_dglpart(folder: Path, arguments: int) -> Path:
    """A stand-in for the program that takes so many words, its own name among them; returns its folder.

    Node n of all is of part n % parts.
    """
    program = folder / "pm_dglpart"
    program.write_text(PM_DGLPART.format(python=sys.executable, arguments=arguments))
    program.chmod(0o755)
    return folder


def two_communities(folder: Path, layout: str = "csv") -> ChunkedGraph:
    """Two groups of 300 nodes, of two types, with few edges between them; loops and copies added."""
    rng = np.random.default_rng(0)
    edges = {}
    for etype, count in (("a:r:a", 6000), ("b:s:a", 2000)):
        sizes = {"a": 450, "b": 150}
        src_type, _, dst_type = etype.split(":")
        src = rng.integers(0, sizes[src_type], count)
        own = (src % 2) ^ (rng.random(count) < 0.03)
        dst = 2 * rng.integers(0, sizes[dst_type] // 2, count) + own
        edges[etype] = np.stack([src, dst], axis=1)
    edges["a:r:a"] = np.concatenate([edges["a:r:a"], edges["a:r:a"][:500], [[7, 7], [8, 8]]])
    return write.graph(folder, "two", {"a": 450, "b": 150}, edges, layout=layout, files=3)


def with_training_nodes(folder: Path) -> ChunkedGraph:
    """Two groups of 200 nodes with few edges between them; all 60 training nodes are in the first one."""
    rng = np.random.default_rng(0)
    src = rng.integers(0, 400, 4000)
    dst = 2 * rng.integers(0, 200, 4000) + ((src % 2) ^ (rng.random(4000) < 0.02))
    mask = (np.arange(400) % 2 == 0) & (np.arange(400) < 120)
    data = {"a": {"train_mask": mask.astype(np.uint8)}}
    return write.graph(folder, "masked", {"a": 400}, {"a:r:a": np.stack([src, dst], axis=1)}, data)
