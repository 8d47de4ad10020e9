"""A partition folder as its JSON describes it, whoever wrote it: our dispatch, DGL's, or DGL's API."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dglrun.arrays import Ints
from dglrun.errors import DataError
from dglrun.formats.dgl import part_config
from dglrun.formats.dgl.arrays import StoredArray
from dglrun.formats.dgl.graphs import StoredGraph, read_graph
from dglrun.formats.dgl.part_config import PartConfig
from dglrun.formats.dgl.partition_book import Ranges
from dglrun.formats.dgl.tensors import read_tensors


@dataclass(frozen=True)
class PartitionFolder:
    """What the JSON says.

    Attributes:
        path: The JSON.
        name: Graph name.
        method: How the parts were made (`part_method`).
        backend: The program or library that assigned the nodes (`part_backend`); None: unknown.
        ntypes: Node types in the order of their IDs.
        etypes: Edge types `src:relation:dst` in the order of their IDs.
        nodes: Ranges of the nodes.
        edges: Ranges of the edges.
        files: For each part, its entries (`part_graph`, `node_feats`, `edge_feats`).
    """

    path: Path
    name: str
    method: str
    backend: str | None
    ntypes: tuple[str, ...]
    etypes: tuple[str, ...]
    nodes: Ranges
    edges: Ranges
    files: tuple[dict[str, str], ...]

    @property
    def parts(self) -> int:
        """Number of parts."""
        return len(self.files)

    def graph(self, part: int) -> StoredGraph:
        """Index of a part's graph.dgl.

        Raises:
            DataError: the JSON does not name the file, or it is missing or damaged.
        """
        return read_graph(self._file(part, "part_graph"))

    def features(self, part: int, kind: str) -> dict[str, StoredArray]:
        """Index of a part's features; names without a type are those of DGL's old homogeneous form.

        Args:
            part: Number of the part.
            kind: `node` or `edge`.

        Raises:
            DataError: the JSON does not name the file, or it is missing or damaged.
        """
        found = read_tensors(self._file(part, f"{kind}_feats"))
        only = self.ntypes[0] if kind == "node" else self.etypes[0]
        return {name if "/" in name else f"{only}/{name}": array for name, array in found.items()}

    def original_ids(self, part: int, kind: str) -> dict[str, StoredArray] | None:
        """Index of orig_nids.dgl (`node`) or orig_eids.dgl (`edge`) beside the graph; None: not there."""
        path = self._file(part, "part_graph").with_name(f"orig_{kind[0]}ids.dgl")
        return read_tensors(path) if path.exists() else None

    def ends(self, etype: int) -> tuple[int, int]:
        """Node type IDs of an edge type's sources and destinations."""
        src, _, dst = self.etypes[etype].split(":")
        return self.ntypes.index(src), self.ntypes.index(dst)

    def _file(self, part: int, key: str) -> Path:
        if key not in self.files[part]:
            raise DataError(f"{self.path}: part-{part} names no {key}")
        path = self.path.parent / self.files[part][key]
        if not path.is_file():
            raise DataError(f"{self.path}: part-{part}/{key}: {path} does not exist")
        return path


def load_folder(path: Path) -> PartitionFolder:
    """Read the JSON of a partition folder.

    Args:
        path: The JSON.

    Raises:
        DataError: the file is missing, is not a partition's JSON, or its ranges have gaps (DGL would
            look nodes up in the wrong part, silently).
    """
    config = part_config.load(path)
    try:
        return _parse(config)
    except DataError:
        raise
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise DataError(f"{path}: is not the JSON of a partition: {type(error).__name__} {error}") from None


def _parse(config: PartConfig) -> PartitionFolder:
    path, raw, parts = config.path, config.raw, len(config.parts)
    ntypes, etypes = _ordered(path, raw["ntypes"]), _ordered(path, raw["etypes"])
    if any(len(name.split(":")) != 3 for name in etypes):
        raise DataError(f"{path}: etypes: expected 'source:relation:destination', got {list(etypes)}")
    found = PartitionFolder(
        path,
        str(raw["graph_name"]),
        str(raw.get("part_method", "unknown")),
        config.backend,
        ntypes,
        etypes,
        Ranges(_counts(path, "node_map", raw["node_map"], ntypes, parts)),
        Ranges(_counts(path, "edge_map", raw["edge_map"], etypes, parts)),
        config.parts,
    )
    for key, ranges in (("num_nodes", found.nodes), ("num_edges", found.edges)):
        if raw[key] != ranges.total:
            raise DataError(f"{path}: {key} is {raw[key]}, the ranges hold {ranges.total}")
    return found


def _ordered(path: Path, types: dict[str, int]) -> tuple[str, ...]:
    if sorted(types.values()) != list(range(len(types))):
        raise DataError(f"{path}: type IDs: expected 0 to {len(types) - 1}, got {types}")
    return tuple(sorted(types, key=lambda name: types[name]))


def _counts(path: Path, key: str, raw: dict[str, Any], names: tuple[str, ...], parts: int) -> Ints:
    """Lengths of the ranges, which must follow one another part by part and type by type."""
    counts = np.zeros((parts, len(names)), np.int64)
    end = 0
    for part in range(parts):
        for at, name in enumerate(names):
            start, stop = raw[name][part]
            if start != end or stop < start:
                raise DataError(
                    f"{path}: {key}: {name} in part {part}: "
                    f"expected a range from {end} on, got [{start}, {stop})"
                )
            counts[part, at], end = stop - start, stop
    return counts
