"""DGL's own assignment of nodes to parts, as `dgl.distributed.partition_graph` makes it.

Of DGL only the C library is needed: see `dgl_library`.
"""

import numpy as np

from dglrun.arrays import Ints
from dglrun.errors import BackendFailedError
from dglrun.formats.assignment import Parts
from dglrun.formats.chunked import read
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.id_map import IdMap
from dglrun.partitioning import dgl_library, freed_memory
from dglrun.partitioning.dgl_library import DglLibrary, Held
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
        seed: Seed of DGL; METIS as DGL calls it does not repeat for all that.

    Returns:
        Parts by node type, uint16, shape (nodes of the type,).

    Raises:
        DataError: a bad row, or no training mask to balance by.
        BackendMissingError: there is no DGL.
        BackendFailedError: METIS failed.
    """
    nodes = sum(graph.num_nodes)
    if num_parts == 1:
        return by_type(graph, np.zeros(nodes, np.uint16))
    library = dgl_library.load()
    library.call("rng._CAPI_SetSeed", seed)
    if method == "random":
        found = _random(library, num_parts, nodes)
    else:
        found = _metis(library, graph, num_parts, balance_train, balance_edges)
    parts = found.values()
    if len(parts) != nodes:
        raise BackendFailedError(f"{graph.name}: METIS, as DGL calls it, did not assign the nodes")
    return by_type(graph, parts.astype(np.uint16))


def _random(library: DglLibrary, num_parts: int, nodes: int) -> Held:
    """What dgl.random.choice does."""
    evenly, with_replacement, bits = library.array(0), True, 64
    return library.call("rng._CAPI_Choice", nodes, num_parts, evenly, with_replacement, bits)


def _metis(
    library: DglLibrary, graph: ChunkedGraph, num_parts: int, balance_train: bool, balance_edges: bool
) -> Held:
    """What dgl.metis_partition_assignment does."""
    nodes = sum(graph.num_nodes)
    classes = balance_classes(graph, balance_train)
    src, dst = _ends(library, graph)
    freed_memory.give_back()
    degrees = np.bincount(dst.values(), minlength=nodes) if balance_edges else None
    csc = _csc(library, src, dst, nodes)
    del src, dst
    symmetric = library.call("partition._CAPI_DGLMakeSymmetric_Hetero", csc)
    del csc
    weights = _weights(library, classes, degrees, nodes)
    is_edge_cut = True
    return library.call(
        "partition._CAPI_DGLMetisPartition_Hetero", symmetric, num_parts, weights, "k-way", is_edge_cut
    )


def _csc(library: DglLibrary, src: Held, dst: Held, nodes: int) -> Held:
    """What dgl.graph((src, dst)).formats("csc") makes: a graph of one node type and one relation."""
    name = "heterograph_index._CAPI_DGLHetero"
    only, number = library.array(1), library.array(1)
    only.values()[:], number.values()[:] = 0, nodes
    types = library.call("graph_index._CAPI_DGLGraphCreate", only, only, 1, True)
    kinds, are_sorted = library.texts("coo", "csr", "csc"), (False, False)
    edges = library.call(f"{name}CreateUnitGraphFromCOO", 1, nodes, nodes, src, dst, kinds, *are_sorted)
    relations = library.call("_List", edges)
    whole = library.call(f"{name}CreateHeteroGraphWithNumNodes", types, relations, number)
    return library.call(f"{name}GetFormatGraph", whole, library.texts("csc"))


def _weights(library: DglLibrary, classes: Ints | None, degrees: Ints | None, nodes: int) -> Held:
    """METIS's weights of each node, one node after the other; empty where only their number counts.

    A column for each class, and the degrees: of each class in a column of its own.
    """
    columns = [] if classes is None else [(classes == each).astype(np.int64) for each in np.unique(classes)]
    if degrees is not None:
        columns += [degrees * members for members in columns] or [degrees]
    found = library.array(nodes * len(columns))
    table = found.values().reshape(nodes, len(columns))
    for at, column in enumerate(columns):
        table[:, at] = column
    return found


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


def _ends(library: DglLibrary, graph: ChunkedGraph) -> tuple[Held, Held]:
    """Ends of all edges by homogeneous number of the nodes (user guide 7.5): arrays of DGL."""
    offsets = IdMap.of(graph.ntypes, graph.num_nodes).offsets
    edges, row = sum(graph.num_edges), 0
    ends = library.array(edges), library.array(edges)
    filled = ends[0].values(), ends[1].values()
    for number, etype in enumerate(graph.etypes):
        types = graph.ends(etype)
        limits = graph.num_nodes[types[0]], graph.num_nodes[types[1]]
        for block in read.edge_blocks(graph.edges[etype], 0, graph.num_edges[number], limits=limits):
            stop = row + len(block[0])
            for end, values, ntype in zip(filled, block, types, strict=True):
                np.add(values, offsets[ntype], out=end[row:stop])
            row = stop
    return ends
