"""Blocks of rows travel to the ranks that own their parts, round by round.

In every round each rank sends at most one block, so memory is bounded by the block size whatever the
graph. Rows of one rank arrive in their order; ranks read ascending stretches of the input; so the rows
of a (part, type) in the order (source rank, round) are in input order, for any number of ranks.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from dglrun.arrays import Array, Ints, group_by
from dglrun.formats.dgl.partition_book import part_dtype
from dglrun.mpi.collectives import BlockStream, Ranks, StreamState, has_more

Raw = TypeVar("Raw")

ROUND_BYTES = 32 << 20
"""Bytes that may arrive at one rank in one round if all ranks send their whole block to it."""


@dataclass(frozen=True)
class OutgoingRows:
    """Rows to send.

    Attributes:
        parts: Part of each row, uint8 or uint16, shape (rows,).
        columns: Arrays of as many rows, shape (rows, ...); their dtypes are the same on all ranks.
    """

    parts: Array
    columns: tuple[Array, ...]


@dataclass(frozen=True)
class IncomingRows:
    """Rows of one part from one rank, in input order.

    Attributes:
        source: The rank that read them.
        part: Their part.
        columns: As they were sent, with their dtypes: shape (rows, ...).
    """

    source: int
    part: int
    columns: tuple[Array, ...]


@dataclass(frozen=True)
class Owners:
    """Which rank owns which part: part p belongs to rank p mod ranks, as in DGL's dispatch."""

    parts: int
    size: int

    def owned(self, rank: int) -> list[int]:
        """The parts of a rank, ascending."""
        return list(range(rank, self.parts, self.size))

    @property
    def width(self) -> int:
        """The most parts that any rank owns."""
        return -(-self.parts // self.size)

    def slots(self) -> Array:
        """Place of each part when parts are ordered by owner, then number.

        Returns:
            uint8 up to 256 parts, else uint16, shape (parts,).
        """
        order = [part for rank in range(self.size) for part in self.owned(rank)]
        slots = np.empty(self.parts, part_dtype(self.parts))
        slots[order] = np.arange(self.parts)
        return slots


def block_rows(row_bytes: int, size: int) -> int:
    """Rows of one block, so that a round stays within `ROUND_BYTES`."""
    return max(1, ROUND_BYTES // max(row_bytes, 1) // size)


def shuffle(
    ranks: Ranks, owners: Owners, blocks: Iterator[Raw], empty: Raw, prepare: Callable[[Raw], OutgoingRows]
) -> Iterator[IncomingRows]:
    """Send all blocks of all ranks to the owners of their rows; collective.

    Args:
        ranks: The processes.
        owners: Who owns which part.
        blocks: This rank's blocks; a `DataError` in it stops all ranks.
        empty: What a rank without further blocks sends.
        prepare: Makes the rows to send of a block; called by all ranks in every round, so it may
            be collective.

    Raises:
        DataError: the input of some rank is bad; the same error on every rank.
    """
    slots = owners.slots()
    stream = BlockStream(blocks, empty)
    while True:
        rows = prepare(stream.next())
        order = group_by(slots[rows.parts] if owners.size > 1 else rows.parts, owners.parts)
        send = _header(owners, order.counts, stream.state)
        received = ranks.counts(send)
        more = has_more(ranks, received[:, -1].tolist(), stream.error)
        totals = send[:, :-1].sum(axis=1).tolist(), received[:, :-1].sum(axis=1).tolist()
        columns = tuple(
            ranks.exchange(_ordered(column, order.rows, owners.parts), *totals) for column in rows.columns
        )
        yield from _arrivals(owners.owned(ranks.rank), received[:, :-1], columns)
        if not more:
            return


def _header(owners: Owners, counts: Ints, state: StreamState) -> Ints:
    """Rows for each owner by its parts, and how this rank goes on."""
    header = np.zeros((owners.size, owners.width + 1), np.int64)
    start = 0
    for rank in range(owners.size):
        held = len(owners.owned(rank))
        header[rank, :held] = counts[start : start + held]
        start += held
    header[:, -1] = state
    return header


def _ordered(column: Array, rows: Ints, parts: int) -> Array:
    return column if parts == 1 else np.take(column, rows, axis=0)


def _arrivals(owned: Sequence[int], counts: Ints, columns: tuple[Array, ...]) -> Iterator[IncomingRows]:
    start = 0
    for source, row in enumerate(counts.tolist()):
        for part, count in zip(owned, row, strict=False):
            if count:
                yield IncomingRows(source, part, tuple(column[start : start + count] for column in columns))
                start += count
