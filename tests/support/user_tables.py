"""Tables as users have them, their chunked graph by plain Python, and what a chunked graph on disk holds."""

import csv
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from hypothesis import strategies as st

from dglrun.formats.chunked import read
from dglrun.formats.chunked.metadata import ChunkedGraph

Row = dict[str, Any]
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1)
"""IDs: quotes, delimiters, line ends, any script; a lone CR is a line end for some writers of csv."""
INTEGERS = st.integers(-(2**63), 2**63 - 1)
WORDS = ("train", "val", "test", None)


@dataclass(frozen=True)
class UserTable:
    """Rows and how they are written: csv or parquet, in how many files."""

    rows: list[Row]
    layout: str
    files: int

    def write(self, folder: Path) -> None:
        """Write them as `part-<n>` beside the marker and the checksum that Spark writes."""
        folder.mkdir()
        (folder / "_SUCCESS").touch()
        (folder / f".part-0.{self.layout}.crc").write_bytes(b"crc")
        ends = [len(self.rows) * at // self.files for at in range(self.files + 1)]
        for at in range(self.files):
            _write(
                folder / f"part-{at}.{self.layout}", self.rows[ends[at] : ends[at + 1]], list(self._columns())
            )

    def _columns(self) -> Row:
        return self.rows[0] if self.rows else {}


def _write(path: Path, rows: list[Row], columns: list[str]) -> None:
    if path.suffix == ".parquet":
        pq.write_table(pa.table({name: [row[name] for row in rows] for name in columns}), path)
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows({name: "" if row[name] is None else row[name] for name in columns} for row in rows)


@dataclass(frozen=True)
class UserGraph:
    """The tables of a graph: each node type's IDs are of one kind, its table may lack some of them."""

    kinds: dict[str, str]
    nodes: dict[str, UserTable]
    edges: dict[str, UserTable]
    reversed: set[str] = field(default_factory=set)

    def write(self, folder: Path) -> Path:
        """Write tables and config; returns the path of this."""
        nodes: Row = {}
        for at, (ntype, kind) in enumerate(self.kinds.items()):
            nodes[ntype] = {"ids": kind, "unlisted": "add"}
            if ntype in self.nodes:
                self.nodes[ntype].write(folder / f"n{at}")
                nodes[ntype] |= {"files": f"{folder}/n{at}", "id": "key", **_WANTED}
        edges: Row = {}
        for at, (etype, table) in enumerate(self.edges.items()):
            table.write(folder / f"e{at}")
            edges[etype] = {"files": f"{folder}/e{at}/part-*.{table.layout}", "src": "s", "dst": "d"}
            edges[etype] |= {
                "features": {"w": {"column": "w", "dtype": "int64"}},
                "reverse": etype in self.reversed,
            }
        path = folder / "config.yaml"
        path.write_text(yaml.safe_dump({"name": "g", "nodes": nodes, "edges": edges}, sort_keys=False))
        return path

    def expected(self) -> Row:
        """What the chunked graph holds, worked out by dictionaries."""
        numbers = {ntype: self._numbers(ntype) for ntype in self.kinds}
        edges, weights = {}, {}
        for etype, table in self.edges.items():
            src, _, dst = etype.split(":")
            edges[etype] = [[numbers[src][row["s"]], numbers[dst][row["d"]]] for row in table.rows]
            weights[etype] = [row["w"] for row in table.rows]
        for etype in [each for each in self.edges if each in self.reversed]:
            src, relation, dst = etype.split(":")
            edges[f"{dst}:rev_{relation}:{src}"] = [[d, s] for s, d in edges[etype]]
            weights[f"{dst}:rev_{relation}:{src}"] = weights[etype]
        data = {ntype: _features(table.rows, len(numbers[ntype])) for ntype, table in self.nodes.items()}
        return {
            "ids": {t: list(each) for t, each in numbers.items()},
            "edges": edges,
            "w": weights,
            "data": data,
        }

    def _numbers(self, ntype: str) -> dict[Any, int]:
        table = self.nodes.get(ntype)
        found = {row["key"]: at for at, row in enumerate(table.rows if table else ())}
        named = set()
        for etype, edges in self.edges.items():
            src, _, dst = etype.split(":")
            ends = [("s", src), ("d", dst)]
            named |= {row[name] for name, end in ends if end == ntype for row in edges.rows}
        rest = sorted(named - set(found), key=lambda each: each.encode() if isinstance(each, str) else each)
        return found | {each: len(found) + at for at, each in enumerate(rest)}


_WANTED = {
    "features": {
        "feat": {"columns": ["x", "y"], "dtype": "float64", "missing": -1.5},
        "kind": {"category": "c", "missing": -7},
    },
    "masks": {"column": "split"},
}


def _features(rows: list[Row], count: int) -> Row:
    words = sorted({row["c"] for row in rows if row["c"] is not None}, key=lambda word: word.encode())
    added = [{"x": None, "y": None, "c": None, "split": None}] * (count - len(rows))
    every = [*rows, *added]
    found: Row = {
        "feat": [[-1.5 if row[name] is None else row[name] for name in ("x", "y")] for row in every],
        "kind": [-7 if row["c"] is None else words.index(row["c"]) for row in every],
    }
    return found | {f"{word}_mask": [row["split"] == word for row in every] for word in WORDS[:3]}


@st.composite
def user_graphs(draw: st.DrawFn) -> UserGraph:
    """One to three node types, of which some have no table of their own, and up to three relations."""
    types = [f"t{at}" for at in range(draw(st.integers(1, 3)))]
    kinds = {ntype: draw(st.sampled_from(("string", "integer"))) for ntype in types}
    pools = {
        t: draw(st.lists(TEXTS if kinds[t] == "string" else INTEGERS, min_size=1, max_size=8, unique=True))
        for t in types
    }
    ends = [
        (draw(st.sampled_from(types)), draw(st.sampled_from(types))) for _ in range(draw(st.integers(1, 3)))
    ]
    edges = {
        f"{src}:r{at}:{dst}": _table(draw, {"s": pools[src], "d": pools[dst], "w": [0, -5, 2**40]}, 12)
        for at, (src, dst) in enumerate(ends)
    }
    used = {end for pair in ends for end in pair}
    nodes = {t: _nodes(draw, pools[t]) for t in types if t not in used or draw(st.booleans())}
    return UserGraph(kinds, nodes, edges, {etype for etype in edges if draw(st.booleans())})


def _table(draw: st.DrawFn, columns: dict[str, list[Any]], most: int) -> UserTable:
    rows = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in columns.items()})
    return _files(draw, draw(st.lists(rows, min_size=1, max_size=most)))


def _nodes(draw: st.DrawFn, pool: list[Any]) -> UserTable:
    numbers = st.one_of(st.none(), st.floats(-1e9, 1e9))
    columns = {"x": numbers, "y": numbers, "c": st.one_of(st.none(), TEXTS), "split": st.sampled_from(WORDS)}
    listed = pool[: draw(st.integers(1, len(pool)))]
    return _files(draw, [{"key": key, **draw(st.fixed_dictionaries(columns))} for key in listed])


def _files(draw: st.DrawFn, rows: list[Row]) -> UserTable:
    return UserTable(rows, draw(st.sampled_from(("csv", "parquet"))), draw(st.integers(1, 3)))


def held(folder: Path) -> Row:
    """What a chunked graph of tables holds, in the form of `UserGraph.expected`."""
    graph = ChunkedGraph.load(folder)
    ids = {t: pq.read_table(folder / "mapping" / f"{t}.parquet").to_pydict() for t in graph.ntypes}
    assert all(each["node"] == list(range(len(each["id"]))) for each in ids.values())
    edges, weights = {}, {}
    for etype in graph.etypes:
        count = graph.edge_count(etype)
        blocks = read.edge_blocks(graph.edges[etype], 0, count)
        edges[etype] = [list(pair) for block in blocks for pair in np.stack(block, axis=1).tolist()]
        weights[etype] = feature(graph, etype, "w")
    data = {t: {name: feature(graph, t, name) for name in each} for t, each in graph.node_data.items()}
    return {"ids": {t: each["id"] for t, each in ids.items()}, "edges": edges, "w": weights, "data": data}


def feature(graph: ChunkedGraph, kind: str, name: str) -> list[Any]:
    """The rows of a feature."""
    is_node = kind in graph.ntypes
    spec = (graph.node_data if is_node else graph.edge_data)[kind][name]
    count = graph.node_count(kind) if is_node else graph.edge_count(kind)
    return [row for block in read.feature_blocks(spec, 0, count) for row in block.tolist()]


def described(folder: Path) -> Row:
    """The `tables.json` of a chunked graph."""
    found: Row = json.loads((folder / "tables.json").read_text())
    return found
