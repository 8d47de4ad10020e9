"""Blocks of rows travel to the ranks that own their parts, round by round.

In every round each rank sends at most one block, and more than `exchange.ROUND_BYTES` that are for one rank
arrive in pieces, so memory is bounded whatever the graph, its skew and the number of ranks. Rows of one rank
arrive in their order; ranks read ascending stretches of the input; so the rows
of a (part, type) in the order (source rank, round) are in input order, for any number of ranks.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from dglrun.arrays import Array, Ints, group_by
from dglrun.formats.dgl.partition_book import part_dtype
from dglrun.mpi.collectives import BlockStream, Ranks, StreamState, has_more
from dglrun.mpi.exchange import ExchangeRound, rounds, row_bytes

Raw = TypeVar("Raw")


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
    """Which rank owns which part: part p belongs to rank p mod ranks, as in DGL's dispatch.

    Attributes:
        only: The parts whose rows are sent; empty: all.
    """

    parts: int
    size: int
    only: tuple[int, ...] = ()

    def owned(self, rank: int) -> list[int]:
        """The parts of a rank, ascending."""
        return list(range(rank, self.parts, self.size))

    def made(self, rank: int) -> list[int]:
        """The parts of a rank whose rows are sent to it, ascending."""
        return [part for part in self.owned(rank) if not self.only or part in self.only]

    def wanted(self, rows: OutgoingRows) -> OutgoingRows:
        """Those of the rows that are sent."""
        if not self.only:
            return rows
        kept = np.flatnonzero(np.isin(rows.parts, self.only))
        return OutgoingRows(rows.parts[kept], tuple(column[kept] for column in rows.columns))

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
        rows = owners.wanted(prepare(stream.next()))
        order = group_by(slots[rows.parts] if owners.size > 1 else rows.parts, owners.parts)
        send = _header(owners, order.counts, stream.state)
        received = ranks.counts(send)
        more = has_more(ranks, received[:, -1].tolist(), stream.error)
        columns = [_ordered(column, order.rows, owners.parts) for column in rows.columns]
        totals = send[:, :-1].sum(axis=1), received[:, :-1].sum(axis=1)
        for turn in rounds(ranks, *totals, sum(map(row_bytes, columns))) if columns else ():
            arrived = tuple(turn.exchange(ranks, column) for column in columns)
            yield from _arrivals(owners.owned(ranks.rank), _of_round(received[:, :-1], turn), arrived)
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


def _of_round(counts: Ints, turn: ExchangeRound) -> Ints:
    """How many of the rows from each rank, by part, are among those of a round: shape of `counts`."""
    ends = np.cumsum(counts.ravel()).reshape(counts.shape)
    low, high = (np.array(spans, np.int64)[:, np.newaxis] for spans in zip(*turn.receive, strict=True))
    found: Ints = np.clip(ends, low, high) - np.clip(ends - counts, low, high)
    return found


def _arrivals(owned: Sequence[int], counts: Ints, columns: tuple[Array, ...]) -> Iterator[IncomingRows]:
    start = 0
    for source, row in enumerate(counts.tolist()):
        for part, count in zip(owned, row, strict=False):
            if count:
                yield IncomingRows(source, part, tuple(column[start : start + count] for column in columns))
                start += count
