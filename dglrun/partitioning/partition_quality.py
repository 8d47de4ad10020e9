"""Edge cut and balance of an assignment, by one pass over the edges."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dglrun.arrays import Ints, imbalance
from dglrun.formats.assignment import Parts
from dglrun.formats.chunked import read
from dglrun.formats.chunked.metadata import ChunkedGraph


@dataclass(frozen=True)
class PartitionQuality:
    """Quality of an assignment, by the edges of the input (duplicates and self-loops included).

    Attributes:
        cut: Edges whose ends lie in different parts.
        edges: Edges in each part (that of the destination), int64, shape (parts,).
        nodes: Nodes of each type in each part, int64, shape (types, parts).
    """

    cut: int
    edges: Ints
    nodes: Ints

    def details(self, ntypes: tuple[str, ...]) -> dict[str, Any]:
        """The score as keys of partition_meta.json; ratios are to 6 digits, balance is max / mean."""
        total = int(self.edges.sum())
        return {
            "edge_cut": self.cut,
            "edge_cut_ratio": round(self.cut / total, 6) if total else 0.0,
            "edge_balance": round(imbalance(self.edges), 4),
            "node_balance": round(imbalance(self.nodes.sum(axis=0)), 4),
            "edges_per_part": self.edges.tolist(),
            "nodes_per_part": {ntype: row.tolist() for ntype, row in zip(ntypes, self.nodes, strict=True)},
        }


def of_assignment(graph: ChunkedGraph, parts: Mapping[str, Parts], num_parts: int) -> PartitionQuality:
    """Measure an assignment held in memory; the edges are streamed.

    Args:
        graph: The graph.
        parts: Part of each node by node type, uint16, shape (nodes of the type,).
        num_parts: Parts; every value is below.

    Raises:
        DataError: a bad edge row or an ID out of range; names file and line.
    """
    edges, cut = np.zeros(num_parts, np.int64), 0
    for at, etype in enumerate(graph.etypes):
        src_type, dst_type = graph.ends(etype)
        src_parts, dst_parts = parts[graph.ntypes[src_type]], parts[graph.ntypes[dst_type]]
        limits = graph.num_nodes[src_type], graph.num_nodes[dst_type]
        for src, dst in read.edge_blocks(graph.edges[etype], 0, graph.num_edges[at], limits=limits):
            owners = dst_parts[dst]
            cut += int(np.count_nonzero(src_parts[src] != owners))
            edges += np.bincount(owners, minlength=num_parts)
    return PartitionQuality(cut, edges, node_counts(graph, parts, num_parts))


def node_counts(graph: ChunkedGraph, parts: Mapping[str, Parts], num_parts: int) -> Ints:
    """Nodes of each type in each part, int64, shape (types, parts); see `of_assignment`."""
    return np.array([np.bincount(parts[ntype], minlength=num_parts) for ntype in graph.ntypes], np.int64)
