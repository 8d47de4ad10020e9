"""Small heterographs in memory, written in the chunked format, and a slow, obvious dispatch of them."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from dglrun.arrays import Array
from dglrun.formats.chunked import read
from dglrun.formats.chunked.metadata import ChunkedGraph


@dataclass(frozen=True)
class Toy:
    """A heterograph with an assignment."""

    nodes: dict[str, int]
    edges: dict[str, Array]
    assignment: dict[str, Array]
    parts: int
    node_data: dict[str, dict[str, Array]] = field(default_factory=dict)
    edge_data: dict[str, dict[str, Array]] = field(default_factory=dict)
    name: str = "toy"

    def write(self, folder: Path, chunks: int = 1, fmt: str = "csv") -> Path:
        """Write the chunked graph to `folder` and the assignment to `folder/parts`."""
        folder.mkdir(parents=True, exist_ok=True)
        described = {
            "graph_name": self.name,
            "node_type": list(self.nodes),
            "num_nodes_per_type": list(self.nodes.values()),
            "edge_type": list(self.edges),
            "num_edges_per_type": [len(pairs) for pairs in self.edges.values()],
            "edges": {name: self._edge_spec(folder, name, chunks, fmt) for name in self.edges},
            "node_data": _data_spec(folder, self.node_data, chunks),
            "edge_data": _data_spec(folder, self.edge_data, chunks),
        }
        (folder / "metadata.json").write_text(json.dumps(described))
        self._write_assignment(folder / "parts")
        return folder

    def _write_assignment(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        for ntype, parts in self.assignment.items():
            (folder / f"{ntype}.txt").write_text("".join(f"{part}\n" for part in parts))
        meta = {"version": "1.0.0", "num_parts": self.parts, "algo_name": "random"}
        (folder / "partition_meta.json").write_text(json.dumps(meta))

    def _edge_spec(self, folder: Path, name: str, chunks: int, fmt: str) -> dict[str, Any]:
        paths = []
        for at, pairs in enumerate(np.array_split(self.edges[name], chunks)):
            path = folder / f"{name.replace(':', '-')}-{at}.{fmt}"
            _write_edges(path, pairs, fmt)
            paths.append(path.name)
        return {"format": {"name": fmt, "delimiter": " "}, "data": paths}


def _write_edges(path: Path, pairs: Array, fmt: str) -> None:
    table = pa.table({"s": pairs[:, 0], "d": pairs[:, 1]})
    if fmt == "csv":
        path.write_text("".join(f"{src} {dst}\n" for src, dst in pairs))
    elif fmt == "parquet":
        pa.parquet.write_table(table, path)
    else:
        with path.open("wb") as file:
            np.save(file, pairs)


def _data_spec(folder: Path, data: dict[str, dict[str, Array]], chunks: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for owner, features in data.items():
        found[owner] = {}
        for name, values in features.items():
            paths = []
            for at, rows in enumerate(np.array_split(values, chunks)):
                path = folder / f"{owner.replace(':', '-')}-{name}-{at}.npy"
                np.save(path, rows)
                paths.append(path.name)
            found[owner][name] = {"format": {"name": "numpy"}, "data": paths}
    return found


def a_toy(
    seed: int = 0, nodes: tuple[int, ...] = (30, 20, 7), edges: tuple[int, ...] = (90, 40, 0), parts: int = 3
) -> Toy:
    """A heterograph of the given sizes with features of several dtypes on everything."""
    rng = np.random.default_rng(seed)
    names = [f"n{at}" for at in range(len(nodes))]
    counts = dict(zip(names, nodes, strict=True))
    relations: dict[str, Array] = {}
    for at, count in enumerate(edges):
        src, dst = names[at % len(names)], names[(at * 2 + 1) % len(names)]
        possible = count if counts[src] and counts[dst] else 0
        relations[f"{src}:r{at}:{dst}"] = np.stack(
            [rng.integers(0, max(counts[src], 1), possible), rng.integers(0, max(counts[dst], 1), possible)],
            axis=1,
        )
    return Toy(
        counts,
        relations,
        {name: rng.integers(0, parts, count) for name, count in counts.items()},
        parts,
        {name: _features(rng, count) for name, count in counts.items()},
        {name: {"weight": rng.random((len(pairs), 2), np.float32)} for name, pairs in relations.items()},
    )


def _features(rng: np.random.Generator, rows: int) -> dict[str, Array]:
    return {
        "feat": rng.random((rows, 3), np.float32),
        "label": rng.integers(0, 9, rows),
        "half": rng.random((rows, 2, 2)).astype(np.float16),
        "train_mask": rng.random(rows) < 0.5,
    }


@st.composite
def toys(draw: st.DrawFn) -> Toy:
    """Heterographs with empty types, one-node parts, parts without anything, 1 to 8 parts."""
    nodes = draw(st.lists(st.integers(0, 12), min_size=1, max_size=4).map(tuple))
    edges = draw(st.lists(st.integers(0, 25), min_size=1, max_size=4).map(tuple))
    return a_toy(draw(st.integers(0, 99)), nodes, edges, draw(st.integers(1, 8)))


@dataclass
class NaivePart:
    """What a part must hold, worked out one node and one edge at a time."""

    node_ids: list[int] = field(default_factory=list)
    node_types: list[int] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)
    edge_ids: list[int] = field(default_factory=list)
    edge_types: list[int] = field(default_factory=list)
    inner: int = 0
    orig_nids: dict[str, list[int]] = field(default_factory=dict)
    orig_eids: dict[str, list[int]] = field(default_factory=dict)


def naive(toy: Toy) -> list[NaivePart]:
    """Dispatch by dictionaries and loops."""
    parts = [NaivePart() for _ in range(toy.parts)]
    new_id: dict[tuple[str, int], int] = {}
    new_type: dict[int, int] = {}
    for number, part in enumerate(parts):
        for type_id, (ntype, count) in enumerate(toy.nodes.items()):
            part.orig_nids[ntype] = [n for n in range(count) if toy.assignment[ntype][n] == number]
            for node in part.orig_nids[ntype]:
                new_id[ntype, node], new_type[len(new_type)] = len(new_id), type_id
                part.node_ids.append(new_id[ntype, node])
        part.inner = len(part.node_ids)
    edge_id = 0
    for number, part in enumerate(parts):
        global_edges = []
        for type_id, (etype, pairs) in enumerate(toy.edges.items()):
            src_type, _, dst_type = etype.split(":")
            part.orig_eids[etype] = [
                e for e, (_, dst) in enumerate(pairs) if toy.assignment[dst_type][dst] == number
            ]
            for edge in part.orig_eids[etype]:
                src, dst = pairs[edge]
                global_edges.append((new_id[src_type, src], new_id[dst_type, dst]))
                part.edge_ids.append(edge_id)
                part.edge_types.append(type_id)
                edge_id += 1
        part.node_ids += sorted({src for src, _ in global_edges} - set(part.node_ids))
        part.node_types = [new_type[node] for node in part.node_ids]
        local = {node: at for at, node in enumerate(part.node_ids)}
        part.edges = [(local[src], local[dst]) for src, dst in global_edges]
    return parts


def random_toys(number: int) -> list[Toy]:
    """Heterographs of 1 to 4 node types and relations, with empty ones, 1 to 8 parts."""
    rng = np.random.default_rng(number)
    found: list[Toy] = []
    while len(found) < number:
        nodes = tuple(rng.integers(0, 15, rng.integers(1, 5)).tolist())
        edges = tuple(rng.integers(0, 40, rng.integers(1, 5)).tolist())
        if any(nodes):
            found.append(a_toy(len(found), nodes, edges, int(rng.integers(1, 9))))
    return found


def edges_of(graph: ChunkedGraph, etype: str) -> list[list[int]]:
    """End points of all edges of a type, in the order of the files."""
    blocks = read.edge_blocks(graph.edges[etype], 0, graph.edge_count(etype))
    return [list(pair) for src, dst in blocks for pair in zip(src.tolist(), dst.tolist(), strict=True)]


QUIET = settings(
    max_examples=50,
    deadline=None,  # files on a busy machine
    suppress_health_check=[*settings().suppress_health_check, HealthCheck.function_scoped_fixture],
)
"""For properties of toys that are written to disk."""
WITH_NODES = toys().filter(lambda toy: any(toy.nodes.values()))
"""Graphs that are not empty."""
