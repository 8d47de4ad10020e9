"""Which rank owns which node: round robin, so that hubs with neighbouring numbers are spread.

Rank r owns the homogeneous IDs r, r + owners, r + 2 * owners, ... Partitioners want each rank's nodes to
be a range of numbers, so nodes are renumbered rank by rank ("row" = number in the whole renumbered graph).
"""

from dataclasses import dataclass

import numpy as np

from dglrun.arrays import Array, Ints
from dglrun.mpi.collectives import Ranks
from dglrun.mpi.exchange import all_to_all


@dataclass(frozen=True)
class CyclicDistribution:
    """The distribution of nodes over ranks.

    Attributes:
        nodes: Number of nodes.
        owners: Ranks that own nodes: no back end takes a rank without any.
    """

    nodes: int
    owners: int

    @staticmethod
    def of(nodes: int, ranks: int) -> "CyclicDistribution":
        """Distribute over all ranks, or over as many as there are nodes."""
        return CyclicDistribution(nodes, min(nodes, ranks))

    @property
    def starts(self) -> Ints:
        """First row of each owner and, last, the number of nodes: int64, shape (owners + 1,)."""
        return np.array([0, *np.cumsum([self.size(rank) for rank in range(self.owners)])], np.int64)

    def size(self, rank: int) -> int:
        """Number of nodes that a rank owns."""
        return max(0, (self.nodes - rank + self.owners - 1) // self.owners) if rank < self.owners else 0

    def ids(self, rank: int) -> Ints:
        """Homogeneous IDs of a rank's nodes in the order of their rows: int64, shape (size(rank),)."""
        if rank >= self.owners:
            return np.zeros(0, np.int64)
        return np.arange(rank, self.nodes, self.owners, dtype=np.int64)

    def locate(self, ids: Ints) -> tuple[Ints, Ints]:
        """Homogeneous IDs, int64, any shape, as (owner, local number), each int64, same shape."""
        if self.owners & (self.owners - 1) == 0:  # a shift is several times faster than a division
            return ids & (self.owners - 1), ids >> (self.owners.bit_length() - 1)
        local = ids // self.owners
        return ids - local * self.owners, local


def to_owners(ranks: Ranks, nodes: CyclicDistribution, start: int, values: Array) -> Array:
    """Send each rank what is known of its nodes; collective.

    Args:
        ranks: All ranks.
        nodes: Which rank owns which node.
        start: The first node that this rank knows of, its homogeneous ID; the ranks' stretches
            follow one another.
        values: What is known of the nodes from `start` on: shape (nodes, ...), the same dtype on every rank.

    Returns:
        What all ranks know of this rank's nodes, in the order of its rows; dtype of `values`.
    """
    # A stretch of round robin: what each owner gets of it is in the order of its rows, and so are stretches.
    groups = [values[(owner - start) % nodes.owners :: nodes.owners] for owner in range(nodes.owners)]
    counts = np.zeros(ranks.size, np.int64)
    counts[: nodes.owners] = [len(group) for group in groups]
    own, _ = all_to_all(ranks, np.concatenate(groups), counts)
    return own
