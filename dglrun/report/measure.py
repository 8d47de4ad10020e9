"""Counts of a partition folder, whoever made it, and the numbers that summarise them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dglrun.arrays import Ints, imbalance, is_nonzero
from dglrun.formats.dgl.edge_blocks import BLOCK, edge_blocks
from dglrun.formats.dgl.folder import PartitionFolder


@dataclass(frozen=True)
class Quality:
    """What was counted; all arrays int64, the first axis counts parts.

    Attributes:
        folder: The partition.
        cut: Edges whose source another part owns, shape (parts, edge types).
        halo: Copies of other parts' nodes, shape (parts, node types).
        train: Training nodes, shape (parts, node types); None: the folder has no such mask.
    """

    folder: PartitionFolder
    cut: Ints
    halo: Ints
    train: Ints | None

    @property
    def edge_cut(self) -> float:
        """Cut edges over all edges; 0 without edges."""
        return _ratio(int(self.cut.sum()), self.folder.edges.total)

    @property
    def halo_share(self) -> float:
        """Halo nodes over all nodes in the parts' files; 0 without nodes."""
        halo = int(self.halo.sum())
        return _ratio(halo, halo + self.folder.nodes.total)


def measure(
    folder: PartitionFolder,
    train_mask: str = "train_mask",
    parts: Iterable[int] | None = None,
    cuts: Mapping[int, Ints] | None = None,
) -> Quality:
    """Count; streams the edges and the masks.

    Args:
        folder: The partition.
        train_mask: Node feature whose non-zero rows are training nodes.
        parts: Count only these, the rows of others are 0; None: all.
        cuts: By part: its cut edges by edge type, where they are counted; its edges are not read then.

    Raises:
        DataError: a file is missing or damaged.
    """
    shape = folder.parts, len(folder.ntypes)
    cut = np.zeros((folder.parts, len(folder.etypes)), np.int64)
    halo, train = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    masked = False
    for part in range(folder.parts) if parts is None else parts:
        known = (cuts or {}).get(part)
        cut[part] = _cut(folder, part) if known is None else known
        halo[part] = _halo(folder, part)
        for at, ntype in enumerate(folder.ntypes):
            mask = folder.features(part, "node").get(f"{ntype}/{train_mask}")
            if mask is not None:
                masked = True
                train[part, at] = sum(int(is_nonzero(rows).sum()) for _, rows in mask.blocks(BLOCK))
    return Quality(folder, cut, halo, train if masked else None)


def _cut(folder: PartitionFolder, part: int) -> Ints:
    """Cut edges of one part by edge type."""
    inner = int(folder.nodes.counts[part].sum())
    ends = np.cumsum(folder.edges.counts[part])
    cut = np.zeros(len(ends), np.int64)
    for block in edge_blocks(folder.graph(part)):
        cut += block.cut(inner, ends)
    return cut


def _halo(folder: PartitionFolder, part: int) -> Ints:
    """Halo nodes of one part by node type."""
    graph = folder.graph(part)
    ids = graph.node_fields["_ID"].rows(int(folder.nodes.counts[part].sum()), graph.num_nodes)
    return np.bincount(folder.nodes.types_of(ids), minlength=len(folder.ntypes))


def status(quality: Quality) -> dict[str, Any]:
    """The JSON of the report ConfigMap's key partition.json: `status.partition`, and the details by type."""
    folder = quality.folder
    found: dict[str, Any] = {
        "method": folder.method,
        "numParts": folder.parts,
        "numNodes": folder.nodes.total,
        "numEdges": folder.edges.total,
        "edgeCut": percent(quality.edge_cut),
        "nodeBalance": f"{imbalance(folder.nodes.counts.sum(axis=1)):.2f}",
        "edgeBalance": f"{imbalance(folder.edges.counts.sum(axis=1)):.2f}",
        "haloShare": percent(quality.halo_share),
    }
    if folder.backend is not None:
        found["backend"] = folder.backend
    if quality.train is not None:
        found["trainNodeBalance"] = f"{imbalance(quality.train.sum(axis=1)):.2f}"
    return found | {"nodeTypes": _node_types(quality), "edgeTypes": _edge_types(quality)}


def _node_types(quality: Quality) -> dict[str, Any]:
    found = {}
    for at, ntype in enumerate(quality.folder.ntypes):
        counts = quality.folder.nodes.counts[:, at]
        found[ntype] = {
            "nodes": counts.tolist(),
            "balance": f"{imbalance(counts):.2f}",
            "halo": quality.halo[:, at].tolist(),
        }
        if quality.train is not None and quality.train[:, at].any():
            found[ntype]["trainNodes"] = quality.train[:, at].tolist()
            found[ntype]["trainNodeBalance"] = f"{imbalance(quality.train[:, at]):.2f}"
    return found


def _edge_types(quality: Quality) -> dict[str, Any]:
    found = {}
    for at, etype in enumerate(quality.folder.etypes):
        counts, cut = quality.folder.edges.counts[:, at], quality.cut[:, at]
        found[etype] = {
            "edges": counts.tolist(),
            "balance": f"{imbalance(counts):.2f}",
            "cut": cut.tolist(),
            "edgeCut": percent(_ratio(int(cut.sum()), int(counts.sum()))),
        }
    return found


def percent(share: float) -> str:
    """A share as the status shows it, such as 12.3%."""
    return f"{100 * share:.1f}%"


def _ratio(some: int, whole: int) -> float:
    return some / whole if whole else 0.0
