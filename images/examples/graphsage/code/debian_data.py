"""Where the example's dataset comes from: the image, a folder, or another release's package index."""

import tempfile
from pathlib import Path
from typing import Any

import dgl
import torch as th

import chunked_graph
import debian_graph

IN_IMAGE = Path(__file__).resolve().parent.parent / "debian-graph"


def load(source: str | None = None) -> Any:
    """Load the homogeneous package graph.

    Args:
        source: Folder of the dataset, or path or http(s) address of a package index; default is the
            dataset of the image.

    Returns:
        A DGLGraph with ndata `features` (float32), `labels` (int64) and three boolean masks.
    """
    folder = IN_IMAGE if source is None else Path(source.removeprefix("file://"))
    if not folder.is_dir():
        folder = Path(tempfile.mkdtemp()) / "debian-graph"
        debian_graph.make(debian_graph.read_source((source or "").removeprefix("file://")), folder)
    return as_dgl(chunked_graph.read(folder / "homogeneous"))


def as_dgl(graph: chunked_graph.Graph) -> Any:
    """Make a DGLGraph of a graph with one node and one edge type."""
    ((ntype, count),) = graph.nodes.items()
    (ends,) = graph.edges.values()
    made = dgl.graph((th.from_numpy(ends[:, 0]), th.from_numpy(ends[:, 1])), num_nodes=count)
    for name, rows in graph.data[ntype].items():
        tensor = th.from_numpy(rows)
        made.ndata[name] = tensor.bool() if name.endswith("_mask") else tensor
    return made
