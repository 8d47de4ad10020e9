"""The nodes that a training learns from, by the masks of a chunked graph, so that parts get even shares.

DGL's partition_graph knows the same as `balance_ntypes` (user guide 7.1.1, "Load balancing").
"""

from collections.abc import Sequence

import numpy as np

from dglrun.arrays import NDArray, is_nonzero
from dglrun.errors import DataError
from dglrun.formats.chunked import read
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.chunked.row_index import Index, RowIndex
from dglrun.formats.chunked.table import FileSpec
from dglrun.formats.id_map import IdMap

TRAIN_MASK = "train_mask"
"""Node data that marks training nodes by values other than 0."""

Mask = NDArray[np.bool_]


def masked_types(graph: ChunkedGraph) -> list[str]:
    """The node types that have a mask of training nodes.

    Raises:
        DataError: none has; lists the node data that there are.
    """
    masked = [ntype for ntype, features in graph.node_data.items() if TRAIN_MASK in features]
    if not masked:
        known = sorted({name for features in graph.node_data.values() for name in features})
        found = ", ".join(known) or "none"
        raise DataError(
            f"{graph.name}: to balance training nodes: no node type has node data {TRAIN_MASK} "
            f"(there are: {found})"
        )
    return masked


def tables(graph: ChunkedGraph) -> dict[str, tuple[FileSpec, int]]:
    """The masks by a name for people, with the rows that each must have.

    Raises:
        DataError: no node type has one.
    """
    return {
        f"node data {ntype}/{TRAIN_MASK}": (graph.node_data[ntype][TRAIN_MASK], graph.node_count(ntype))
        for ntype in masked_types(graph)
    }


def mask(graph: ChunkedGraph, start: int, stop: int, index: Index | None = None) -> Mask:
    """Which of the nodes start..stop are training nodes.

    Args:
        graph: The graph.
        start: First node, its homogeneous number (user guide 7.5).
        stop: Node after the last one.
        index: The masks' files if the caller has counted them.

    Returns:
        bool, shape (stop - start,); False for types without a mask.

    Raises:
        DataError: no node type has a mask, it has more than one column, or a bad row.
    """
    masked, at = masked_types(graph), 0
    found = np.zeros(stop - start, np.bool_)
    for type_id, low, high in IdMap.of(graph.ntypes, graph.num_nodes).ranges(start, stop):
        ntype = graph.ntypes[type_id]
        if ntype in masked:
            spec = graph.node_data[ntype][TRAIN_MASK]
            files = None if index is None else index[spec]
            _fill(found[at : at + high - low], spec, low, files)
        at += high - low
    return found


def _fill(found: Mask, spec: FileSpec, low: int, files: Sequence[RowIndex] | None) -> None:
    if (tail := read.feature_info(spec).tail) not in ((), (1,)):
        raise DataError(
            f"{spec.paths[0]}: {TRAIN_MASK}: expected one value for each node, got rows of {tail}"
        )
    at = 0
    for block in read.feature_blocks(spec, low, low + len(found), files=files):
        found[at : at + len(block)] = is_nonzero(block.ravel())
        at += len(block)
