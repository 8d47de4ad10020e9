"""Input of the dispatch benchmark: a homogeneous graph with skewed sources and random parts."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

BLOCK = 4_000_000


@dataclass(frozen=True)
class Size:
    """How big the input is.

    Attributes:
        nodes: Nodes.
        edges: Edges; sources are skewed, destinations uniform.
        width: float32 values of the feature `feat` on each node; 0: no feature.
        parts: Parts; nodes are assigned at random.
        files: Files of each table.
        format: `csv` or `parquet`, of the edges.
    """

    nodes: int
    edges: int
    width: int
    parts: int
    files: int
    format: str


def generate(size: Size, folder: Path) -> Path:
    """Write the chunked graph to `folder` and the assignment to `folder/parts`."""
    for name in ("edges", "nodes", "parts"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    edges = [_edges(size, folder, at, rng) for at in range(size.files)]
    nodes = [_features(size, folder, at, rng) for at in range(size.files)] if size.width else []
    spec = {"format": {"name": size.format, "delimiter": " "}, "data": edges}
    features = {"_N": {"feat": {"format": {"name": "numpy"}, "data": nodes}}} if nodes else {}
    (folder / "metadata.json").write_text(json.dumps(_metadata(size, spec, features)))
    _assignment(size, folder / "parts", rng)
    (folder / "ip_config.txt").write_text("127.0.0.1\n" * size.files)
    return folder


def share(total: int, files: int, at: int) -> int:
    """Rows of one file."""
    return total * (at + 1) // files - total * at // files


def _edges(size: Size, folder: Path, at: int, rng: np.random.Generator) -> str:
    name = f"edges/{at}.{size.format}"
    schema = pa.schema([("src", pa.int64()), ("dst", pa.int64())])
    with _writer(folder / name, size.format, schema) as writer:
        left = share(size.edges, size.files, at)
        while left:
            rows = min(left, BLOCK)
            src = (size.nodes * rng.random(rows) ** 2).astype(np.int64)
            writer.write_table(pa.table([src, rng.integers(0, size.nodes, rows)], schema=schema))
            left -= rows
    return name


def _writer(path: Path, layout: str, schema: Any) -> Any:
    if layout == "parquet":
        return pa.parquet.ParquetWriter(path, schema)
    options = pa.csv.WriteOptions(include_header=False, delimiter=" ")
    return pa.csv.CSVWriter(path, schema, write_options=options)


def _features(size: Size, folder: Path, at: int, rng: np.random.Generator) -> str:
    name = f"nodes/{at}.npy"
    np.save(folder / name, rng.random((share(size.nodes, size.files, at), size.width), np.float32))
    return name


def _metadata(size: Size, spec: dict[str, Any], features: dict[str, Any]) -> dict[str, Any]:
    """Both dialects of counts, so that every tool reads it."""
    return {
        "graph_name": "g",
        "node_type": ["_N"],
        "num_nodes_per_type": [size.nodes],
        "num_nodes_per_chunk": [[share(size.nodes, size.files, at) for at in range(size.files)]],
        "edge_type": ["_N:_E:_N"],
        "num_edges_per_type": [size.edges],
        "num_edges_per_chunk": [[share(size.edges, size.files, at) for at in range(size.files)]],
        "edges": {"_N:_E:_N": spec},
        "node_data": features,
        "edge_data": {},
    }


def _assignment(size: Size, folder: Path, rng: np.random.Generator) -> None:
    with (folder / "_N.txt").open("w") as file:
        for start in range(0, size.nodes, BLOCK):
            rows = min(BLOCK, size.nodes - start)
            file.write("".join(f"{part}\n" for part in rng.integers(0, size.parts, rows).tolist()))
    meta = {"version": "1.0.0", "num_parts": size.parts, "algo_name": "random"}
    (folder / "partition_meta.json").write_text(json.dumps(meta))
