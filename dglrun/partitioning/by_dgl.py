"""DGL's own assignment of nodes to parts, as `dgl.distributed.partition_graph` makes it.

torch and dgl are imported here only when they are needed: a single part needs neither.
"""

from typing import Any

import numpy as np

from dglrun.arrays import Ints
from dglrun.errors import BackendFailedError
from dglrun.formats.assignment import Parts
from dglrun.formats.chunked import read
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.id_map import IdMap
from dglrun.partitioning import freed_memory
from dglrun.partitioning.serial import by_type
from dglrun.partitioning.training_nodes import TRAIN_MASK, masked_types


def assign(
    graph: ChunkedGraph, method: str, num_parts: int, balance_train: bool, balance_edges: bool, seed: int
) -> dict[str, Parts]:
    """Parts by DGL, with the calls and arguments of partition_graph.

    Args:
        graph: The graph, its types in DGL's order.
        method: `metis` or `random`.
        num_parts: Parts.
        balance_train: Whether METIS balances training nodes, too.
        balance_edges: Whether METIS balances edges.
        seed: Seed of DGL and numpy; METIS as DGL calls it does not repeat for all that.

    Returns:
        Parts by node type, uint16, shape (nodes of the type,).

    Raises:
        DataError: a bad row, or no training mask to balance by.
        BackendFailedError: METIS failed.
    """
    nodes = sum(graph.num_nodes)
    if num_parts == 1:
        return by_type(graph, np.zeros(nodes, np.uint16))
    import dgl  # noqa: PLC0415 - heavy

    dgl.seed(seed)
    np.random.seed(seed)
    if method == "random":
        found = dgl.random.choice(num_parts, nodes)
    else:
        found = _metis(dgl, graph, num_parts, balance_train, balance_edges)
    if found is None:
        raise BackendFailedError(f"{graph.name}: METIS, as DGL calls it, did not assign the nodes")
    return by_type(graph, np.asarray(found).astype(np.uint16))


def _metis(dgl: Any, graph: ChunkedGraph, num_parts: int, balance_train: bool, balance_edges: bool) -> Any:
    import torch  # noqa: PLC0415 - heavy

    classes = balance_classes(graph, balance_train)
    ends = tuple(map(torch.from_numpy, _ends(graph)))
    freed_memory.give_back()
    whole = dgl.graph(ends, num_nodes=sum(graph.num_nodes)).formats("csc")  # all that METIS is made of
    del ends
    balance = None if classes is None else torch.from_numpy(classes)
    return dgl.metis_partition_assignment(
        whole, num_parts, balance_ntypes=balance, balance_edges=balance_edges
    )


def balance_classes(graph: ChunkedGraph, balance_train: bool) -> Ints | None:
    """The class of each node, of which METIS gives every part an even share, as partition_graph counts them.

    Args:
        graph: The graph, its types in DGL's order.
        balance_train: Whether the values of a training mask are classes of their own.

    Returns:
        int64, shape (nodes,), in homogeneous order; None where only the number of nodes counts.

    Raises:
        DataError: no node type has a training mask, or a bad row.
    """
    masked = masked_types(graph) if balance_train else []
    if not masked and len(graph.ntypes) == len(graph.etypes) == 1:
        return None
    found, following = [np.empty(0, np.int64)], 0
    for ntype, count in zip(graph.ntypes, graph.num_nodes, strict=True):
        values = _mask(graph, ntype, count) if ntype in masked else np.zeros(count, np.int64)
        classes, inside = np.unique(values, return_inverse=True)
        found.append(inside.astype(np.int64).ravel() + following)
        following += max(len(classes), 1)
    return np.concatenate(found)


def _mask(graph: ChunkedGraph, ntype: str, rows: int) -> Ints:
    blocks = read.feature_blocks(graph.node_data[ntype][TRAIN_MASK], 0, rows)
    return np.concatenate([np.empty(0, np.int64), *(block.astype(np.int64).ravel() for block in blocks)])


def _ends(graph: ChunkedGraph) -> tuple[Ints, Ints]:
    """Ends of all edges by homogeneous number of the nodes (user guide 7.5)."""
    offsets = IdMap.of(graph.ntypes, graph.num_nodes).offsets
    edges, row = sum(graph.num_edges), 0
    ends = np.empty(edges, np.int64), np.empty(edges, np.int64)
    for number, etype in enumerate(graph.etypes):
        types = graph.ends(etype)
        limits = graph.num_nodes[types[0]], graph.num_nodes[types[1]]
        for block in read.edge_blocks(graph.edges[etype], 0, graph.num_edges[number], limits=limits):
            stop = row + len(block[0])
            for end, values, ntype in zip(ends, block, types, strict=True):
                np.add(values, offsets[ntype], out=end[row:stop])
            row = stop
    return ends
