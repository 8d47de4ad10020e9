"""In which order the nodes of a graph are streamed, and chance that depends on a node and not on its rank.

The order is one of homogeneous IDs and of the seed alone, and every rank takes part in every batch, so that
the same nodes are decided on together whatever the number of ranks is.
"""

from dataclasses import dataclass

import numpy as np

from dglrun.arrays import Ints, NDArray, spans

Chances = NDArray[np.float64]

BLOCK_NODES = 4096
"""Nodes with adjacent IDs that are streamed together at most; small graphs have shorter blocks."""
BLOCKS = 2048
"""Blocks of a graph at least, as far as there are nodes."""
BATCHES = 32
"""Batches of a pass; the nodes of a batch do not see each other's moves."""
BATCH_NODES = 32
"""Nodes of a batch at least: small graphs have fewer batches."""
GROWTH = 1.5
"""How much larger than the last one a batch of the first pass is."""
GOLDEN = 0.6180339887498949
"""Multiples of it, taken modulo 1, are spread evenly."""


@dataclass(frozen=True)
class StreamOrder:
    """Blocks of adjacent IDs in an order that the seed gives: types mix, neighbouring IDs stay together.

    Attributes:
        nodes: Number of nodes.
        size: Nodes of a block; the last one may have fewer.
        blocks: Block numbers in their order, int64, shape (blocks,).
    """

    nodes: int
    size: int
    blocks: Ints

    @staticmethod
    def of(nodes: int, seed: int) -> "StreamOrder":
        """The order of a graph with this many nodes."""
        size = min(BLOCK_NODES, max(1, nodes // BLOCKS))
        rng = np.random.default_rng(seed % (1 << 64))
        return StreamOrder(nodes, size, rng.permutation(-(-nodes // size)).astype(np.int64))

    def even(self) -> list[Ints]:
        """The blocks of each batch of a pass, ascending in a batch: int64, shape (blocks of the batch,)."""
        return [np.sort(each) for each in np.array_split(self.blocks, self._batches)]

    def growing(self) -> list[Ints]:
        """As `even`, but the first batches are small: nobody in them has a neighbour that has a part yet."""
        found, at, length = [], 0, max(1, len(self.blocks) // 1024)
        most = max(1, len(self.blocks) // self._batches)
        while at < len(self.blocks):
            found.append(np.sort(self.blocks[at : at + length]))
            at, length = at + length, min(most, int(length * GROWTH) + 1)
        return found

    @property
    def _batches(self) -> int:
        return min(BATCHES, max(1, self.nodes // BATCH_NODES))

    def rows(self, batch: Ints, rank: int, owners: int) -> Ints:
        """Local numbers of the batch's nodes that a rank owns (round robin), int64, ascending.

        Args:
            batch: Blocks, ascending.
            rank: Whose nodes.
            owners: Ranks that own nodes.
        """
        return spans(*self._spans(batch, rank, owners))

    def count(self, batch: Ints, rank: int, owners: int) -> int:
        """How many `rows` there are."""
        return int(self._spans(batch, rank, owners)[1].sum())

    def _spans(self, batch: Ints, rank: int, owners: int) -> tuple[Ints, Ints]:
        """The first row of each block and the number of its rows."""
        first = batch * self.size
        low = -(-(first - rank) // owners)
        high = -(-(np.minimum(first + self.size, self.nodes) - rank) // owners)
        return low, high - low


def chances(ids: Ints, salt: int) -> Chances:
    """A number from 0 to 1 (excluded) for each node, as if drawn at random, float64, shape of `ids`.

    Args:
        ids: Homogeneous IDs.
        salt: Another one gives other numbers.
    """
    # Two rounds of multiplication and shifted exclusive or, which spread every bit over all.
    mixed = ids.astype(np.uint64) + np.uint64(salt * 0x632BE59BD9B4E019 % (1 << 64))
    for factor in (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93):
        mixed *= np.uint64(factor)
        mixed ^= mixed >> np.uint64(32)
    return (mixed >> np.uint64(40)).astype(np.float64) * 2.0**-24


def even_chances(ids: Ints, salt: int) -> Chances:
    """As `chances`, but those of adjacent IDs are spread evenly, which balances what is dealt out by them."""
    # A salt holds the seed, which may be of any size.
    start = float(chances(np.array([salt % (1 << 64)], np.uint64).view(np.int64), salt)[0])
    return (ids % (1 << 32) * GOLDEN + start) % 1.0
