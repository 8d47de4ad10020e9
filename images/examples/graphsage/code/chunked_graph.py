"""Write and read the Chunked Graph Format of the DGL user guide (chapter 7.1), both dialects at once."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Graph:
    """A graph in memory.

    Attributes:
        name: Its name.
        nodes: Node type to number of nodes.
        edges: Edge type `src:relation:dst` to int64 of shape (edges, 2), ids counted in each type.
        data: Node type to feature name to an array with one row for each node.
    """

    name: str
    nodes: Mapping[str, int]
    edges: Mapping[str, Array]
    data: Mapping[str, Mapping[str, Array]] = field(default_factory=dict)


def write(graph: Graph, folder: Path, chunks: int) -> None:
    """Write metadata.json, edges as csv and node data as numpy files, each in so many chunks.

    The folder appears under its name only when it is whole.

    Raises:
        FileExistsError: the folder is there already.
    """
    if folder.exists():
        raise FileExistsError(f"{folder} is there already")
    fresh = folder.with_name(f".{folder.name}.fresh")
    metadata = {
        "graph_name": graph.name,
        "node_type": list(graph.nodes),
        "num_nodes_per_type": list(graph.nodes.values()),
        "num_nodes_per_chunk": [_sizes(count, chunks) for count in graph.nodes.values()],
        "edge_type": list(graph.edges),
        "num_edges_per_type": [len(ends) for ends in graph.edges.values()],
        "num_edges_per_chunk": [_sizes(len(ends), chunks) for ends in graph.edges.values()],
        "edges": {name: _write_edges(fresh, name, ends, chunks) for name, ends in graph.edges.items()},
        "node_data": {
            ntype: {name: _write_data(fresh, ntype, name, rows, chunks) for name, rows in data.items()}
            for ntype, data in graph.data.items()
        },
        "edge_data": {},
    }
    (fresh / "metadata.json").write_text(json.dumps(metadata, indent=1) + "\n")
    fresh.rename(folder)


def read(folder: Path) -> Graph:
    """Read what `write` wrote."""
    metadata = json.loads((folder / "metadata.json").read_text())
    return Graph(
        name=metadata["graph_name"],
        nodes=dict(zip(metadata["node_type"], metadata["num_nodes_per_type"], strict=True)),
        edges={
            name: np.concatenate([_read_edges(folder / path) for path in spec["data"]])
            for name, spec in metadata["edges"].items()
        },
        data={
            ntype: {
                name: np.concatenate([np.load(folder / path) for path in spec["data"]])
                for name, spec in data.items()
            }
            for ntype, data in metadata["node_data"].items()
        },
    )


def _sizes(count: int, chunks: int) -> list[int]:
    return [len(part) for part in np.array_split(np.empty(count, np.int8), chunks)]


def _write_edges(folder: Path, name: str, ends: Array, chunks: int) -> dict[str, Any]:
    paths = [f"edges/{name.replace(':', '-')}-{i}.csv" for i in range(chunks)]
    for path, part in zip(paths, np.array_split(ends, chunks), strict=True):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        np.savetxt(folder / path, part, fmt="%d")
    return {"format": {"name": "csv", "delimiter": " "}, "data": paths}


def _write_data(folder: Path, ntype: str, name: str, rows: Array, chunks: int) -> dict[str, Any]:
    paths = [f"nodes/{ntype}-{name}-{i}.npy" for i in range(chunks)]
    for path, part in zip(paths, np.array_split(rows, chunks), strict=True):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        np.save(folder / path, part)
    return {"format": {"name": "numpy"}, "data": paths}


def _read_edges(path: Path) -> Array:
    if path.stat().st_size == 0:
        return np.empty((0, 2), np.int64)
    return np.loadtxt(path, dtype=np.int64, delimiter=" ", ndmin=2).reshape(-1, 2)
