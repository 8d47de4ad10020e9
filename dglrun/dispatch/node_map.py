"""The shuffle-global ID of every node: as a whole table on each rank, or in shards.

Inside one (part, type) the nodes keep the order of their original IDs, so an ID follows from counts
alone and a rank can number its share of the nodes without the others' shares.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from dglrun.arrays import Array, Ints, number_rows
from dglrun.formats import assignment_shares
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.dgl.partition_book import Ranges
from dglrun.mpi.collectives import Ranks
from dglrun.mpi.exchange import ask_owners
from dglrun.mpi.shared_assignment import read_stretches

WHOLE_TABLE_BYTES = 256 << 20
"""A node table up to this size is kept whole on every rank; a larger one in shards."""
_BLOCK = 4 << 20


@dataclass(frozen=True)
class NodeShare:
    """A rank's contiguous stretch of the nodes of one type.

    Attributes:
        start: Original ID of its first node.
        parts: Part of each node: uint8 up to 256 parts, else uint16, shape (nodes of the stretch,).
        before: Nodes of this type that lower ranks send to each part: int64, shape (parts,).
    """

    start: int
    parts: Array
    before: Ints

    @property
    def stop(self) -> int:
        """Original ID after the last node."""
        return self.start + len(self.parts)


@dataclass(frozen=True)
class Nodes:
    """The assignment as a rank knows it.

    Attributes:
        ranges: Ranges of all parts and types.
        shares: This rank's stretch of each node type.
        sent: int64, shape (ranks, parts, types): nodes in each rank's stretch by part and type.
    """

    ranges: Ranges
    shares: tuple[NodeShare, ...]
    sent: Ints


class NodeMap(Protocol):
    """Looks up shuffle-global IDs; every rank must call `find` equally often."""

    def find(self, ntype: int, ids: Ints) -> Array:
        """Shuffle-global IDs of type-wise original IDs; collective where the table is in shards.

        Args:
            ntype: Node type ID.
            ids: int64, shape (rows,), from 0 to the type's number of nodes - 1; the caller checks that.

        Returns:
            int32 or int64, as `Ranges.dtype` says, shape (rows,).
        """


def read_nodes(graph: ChunkedGraph, folder: Path, num_parts: int, ranks: Ranks) -> Nodes:
    """Read this rank's share of the assignment and agree on all ranges; collective.

    Raises:
        DataError: a file is missing, has the wrong number of lines or a line that is no part.
    """
    stretches = read_stretches(ranks, folder, graph.ntypes, graph.num_nodes, num_parts)
    own = np.stack([assignment_shares.part_counts(found.parts, num_parts) for found in stretches], axis=1)
    sent = np.stack(ranks.gather(own))
    before = sent[: ranks.rank].sum(axis=0)
    shares = tuple(NodeShare(*found, before[:, at]) for at, found in enumerate(stretches))
    return Nodes(Ranges(sent.sum(axis=0)), shares, sent)


def make_node_map(nodes: Nodes, ranks: Ranks, limit: int = WHOLE_TABLE_BYTES) -> NodeMap:
    """Number this rank's nodes and make the map; collective.

    Args:
        nodes: From `read_nodes`.
        ranks: The processes.
        limit: Bytes up to which every rank keeps the whole table.
    """
    tables = [_number(nodes, at) for at in range(len(nodes.shares))]
    rows = nodes.sent.sum(axis=1)
    if nodes.ranges.total * nodes.ranges.dtype.itemsize <= limit or ranks.size == 1:
        return ReplicatedNodeMap(
            [ranks.concatenate(table, rows[:, at].tolist()) for at, table in enumerate(tables)]
        )
    firsts = np.cumsum(rows, axis=0) - rows
    return ShardedNodeMap(tables, firsts, ranks)


def _number(nodes: Nodes, ntype: int) -> Array:
    """Shuffle-global IDs of this rank's nodes of a type."""
    found = nodes.shares[ntype]
    table = np.empty(len(found.parts), nodes.ranges.dtype)
    following = nodes.ranges.starts[:, ntype] + found.before
    for start in range(0, len(table), _BLOCK):
        block = found.parts[start : start + _BLOCK]
        table[start : start + _BLOCK] = number_rows(block, following)
    return table


class ReplicatedNodeMap:
    """Every rank holds the whole table.

    Args:
        tables: Shuffle-global IDs of each type's nodes: int32 or int64, shape (nodes of the type,).
    """

    def __init__(self, tables: Sequence[Array]) -> None:
        self._tables = tables

    def find(self, ntype: int, ids: Ints) -> Array:
        """See `NodeMap.find`."""
        return (
            self._tables[ntype].take(ids, mode="clip") if len(ids) else ids.astype(self._tables[ntype].dtype)
        )


class ShardedNodeMap:
    """Each rank holds the table of its own stretch and answers the others' questions.

    Attributes:
        shards: Shuffle-global IDs of this rank's stretch of each type: int32 or int64, shape (nodes of the
            stretch,).
        firsts: int64, shape (ranks, types): first original ID of each rank's stretch.
    """

    def __init__(self, shards: Sequence[Array], firsts: Ints, ranks: Ranks) -> None:
        self.shards = shards
        self.firsts = firsts
        self._ranks = ranks

    def find(self, ntype: int, ids: Ints) -> Array:
        """See `NodeMap.find`."""
        own, shard = self.firsts[self._ranks.rank, ntype], self.shards[ntype]
        return ask_owners(self._ranks, self._holders(ntype, ids), ids, lambda asked: shard.take(asked - own))

    def _holders(self, ntype: int, ids: Ints) -> Array:
        firsts = self.firsts[1:, ntype]
        return np.searchsorted(firsts, ids, side="right")
