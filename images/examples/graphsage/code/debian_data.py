"""Where the example's dataset comes from: the image, a folder, or another release's package index."""

import tempfile
from pathlib import Path
from typing import Any

import dgl
import torch as th

import chunked_graph
import debian_graph

IN_IMAGE = Path(__file__).resolve().parent.parent / "debian-graph"


VARIANTS = ("homogeneous", "heterogeneous")


def load(source: str | None = None, variant: str = VARIANTS[0]) -> Any:
    """Load the package graph.

    Args:
        source: Folder of the dataset, or path or http(s) address of a package index; default is the
            dataset of the image.
        variant: One of VARIANTS.

    Returns:
        A DGLGraph with node data `features` (float32), `labels` (int64) and three boolean masks; the
        heterogeneous one has labels and masks on `package` alone.
    """
    folder = IN_IMAGE if source is None else Path(source.removeprefix("file://"))
    if not folder.is_dir():
        folder = Path(tempfile.mkdtemp()) / "debian-graph"
        debian_graph.make(debian_graph.read_source((source or "").removeprefix("file://")), folder)
    return as_dgl(chunked_graph.read(folder / variant))


def as_dgl(graph: chunked_graph.Graph) -> Any:
    """Make a DGLGraph, homogeneous where there is one type of each."""
    ends = {
        name: (th.from_numpy(e[:, 0].copy()), th.from_numpy(e[:, 1].copy()))
        for name, e in graph.edges.items()
    }
    if len(ends) == 1:
        (only,) = ends.values()
        made = dgl.graph(only, num_nodes=sum(graph.nodes.values()))
    else:
        typed = {tuple(name.split(":")): pairs for name, pairs in ends.items()}
        made = dgl.heterograph(typed, num_nodes_dict=dict(graph.nodes))
    for ntype, data in graph.data.items():
        for name, rows in data.items():
            tensor = th.from_numpy(rows)
            made.nodes[ntype].data[name] = tensor.bool() if name.endswith("_mask") else tensor
    return made
