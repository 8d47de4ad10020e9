"""What a partitioner has to balance, as columns of vertex weights (user guide 7.1.1, "Load balancing").

On power-law graphs a low cut at even node counts puts nearly all edges into one part, so edges are
balanced by default, by the in-degree: an edge lies with its destination.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from dglrun.arrays import Array, Ints, NDArray
from dglrun.partitioning.training_nodes import Mask

Weights = Ints
"""Shape (nodes, constraints)."""
Floats = NDArray[np.float32]

MAX_CONSTRAINTS = 16
"""Columns given to a back end at most; ParMETIS is compiled for 32."""


@dataclass(frozen=True)
class Balance:
    """What to balance beside the number of nodes.

    Attributes:
        types: The nodes of every type for themselves.
        edges: The edges (in-degrees).
        train: The training nodes.
    """

    types: bool = True
    edges: bool = True
    train: bool = False

    @staticmethod
    def parse(text: str) -> "Balance":
        """Read `nodes`, `types`, `edges` and `train`, with commas between them.

        Raises:
            ValueError: another word.
        """
        found = set(text.split(","))
        if unknown := found - {"nodes", "types", "edges", "train"}:
            raise ValueError(f"expected nodes, types, edges or train, got {sorted(unknown)[0]!r}")
        return Balance("types" in found, "edges" in found, "train" in found)


def without_effect(backend: str, balance: Balance) -> str:
    """What the user is told who asks a back end for training nodes that does not look at them; else empty.

    Of the other words nothing is said: a job gives `types,edges` to every back end.
    """
    why = {"random": "each part gets its share of each type", "user": "the assignment is taken as it is"}
    if not balance.train or backend not in why:
        return ""
    return f"dglrun partition: note: --balance train has no effect with --backend {backend}: {why[backend]}"


def type_columns(num_nodes: Iterable[int], balance: Balance) -> Ints:
    """The weight column of each node type; types without nodes have none of their own (column 0).

    With more types than columns the smallest types share the last one.

    Args:
        num_nodes: Nodes of each type.
        balance: What to balance.

    Returns:
        int64, shape (types,).
    """
    sizes = np.array(list(num_nodes), np.int64)
    columns = np.zeros(len(sizes), np.int64)
    if not balance.types:
        return columns
    room = MAX_CONSTRAINTS - balance.edges - balance.train
    order = [kind for kind in np.argsort(-sizes, kind="stable") if sizes[kind]]
    for column, kind in enumerate(order):
        columns[kind] = min(column, room - 1)
    return columns


def multi(columns: Ints, types: Ints, in_degree: Ints, train: Mask | None, balance: Balance) -> Weights:
    """One-hot columns by node type (user guide 7.4, `<node_weight_list>`), then training nodes and in-degree.

    Args:
        columns: From `type_columns`, int64, shape (types,).
        types: Type ID of each node, int64, shape (nodes,).
        in_degree: Input edges that end in each node, int64, shape (nodes,).
        train: Which nodes are training nodes, bool, shape (nodes,); None where they are not balanced.
        balance: What to balance.

    Returns:
        int64, shape (nodes, constraints).
    """
    hot = int(columns.max(initial=0)) + 1
    found = np.zeros((len(types), hot + (train is not None) + balance.edges), np.int64)
    found[np.arange(len(types)), columns[types]] = 1
    if train is not None:
        found[:, hot] = train
    if balance.edges:
        found[:, -1] = in_degree
    return found


def single(
    in_degree: Ints, train: Mask | None, share: int, balance: Balance, kinds: Ints | None = None
) -> Weights:
    """One weight for each node, for back ends that know no more: 1, plus the in-degree for edges.

    Args:
        in_degree: Input edges that end in each node, int64, shape (nodes,).
        train: Which nodes are training nodes, bool, shape (nodes,); None where they are not balanced.
        share: What a training node weighs more, from `training_share`.
        balance: What to balance; a part's sum is balanced, not each type for itself.
        kinds: Column of each node's type (`type_columns`), int64, shape (nodes,): every type counts as much
            as the others, in place of 1 for each node. None: types do not count.

    Returns:
        int64, shape (nodes, 1), at least 1.
    """
    found: Weights = np.ones(len(in_degree), np.int64) if kinds is None else _even_shares(kinds)
    if balance.edges:
        found = found + in_degree
    return (found if train is None else found + share * train).reshape(-1, 1)


def _even_shares(kinds: Ints) -> Ints:
    """A weight for each node, at least 1, by which every kind's sum is about the same."""
    counts = np.maximum(np.bincount(kinds), 1)
    shares: Ints = np.maximum(1, len(kinds) // (len(counts) * counts))[kinds]
    return shares


def training_share(nodes: int, edges: int, training: int, balance: Balance) -> int:
    """What a training node weighs more in a single weight: all of them together as much as all the rest.

    Args:
        nodes: Nodes of the graph.
        edges: Its edges.
        training: Its training nodes.
        balance: What else is balanced.
    """
    return (nodes + (edges if balance.edges else 0)) // max(1, training)


def without_empty(weights: Weights, totals: Ints) -> Weights:
    """Drop the columns whose total over all ranks is 0 (no edges at all); a back end would divide by it.

    Args:
        weights: int64, shape (nodes, constraints).
        totals: Sum of each column over all nodes of all ranks, int64, shape (constraints,).

    Returns:
        int64, shape (nodes, constraints kept).
    """
    kept: Array = weights[:, totals > 0]
    return kept


def tolerances(totals: Ints, largest: Ints, num_parts: int, imbalance: float) -> Floats:
    """Load allowed in a part over the mean load, for each column.

    Where one node alone is heavier, or a type has fewer nodes than parts, `imbalance` cannot be reached;
    the bound is then what the heaviest node and the mean together need.

    Args:
        totals: Sum of each column over all nodes, int64, shape (constraints,).
        largest: Largest weight in each column, int64, shape (constraints,).
        num_parts: Parts.
        imbalance: The bound asked for, 1.05 for five per cent.

    Returns:
        float32, shape (constraints,); METIS and ParMETIS call it ubvec.
    """
    mean = totals / num_parts
    heavy = np.where(largest > 0.02 * mean, largest / np.maximum(mean, 1e-9), 0.0)
    return np.asarray(np.maximum(imbalance, 1.0 + heavy), np.float32)
