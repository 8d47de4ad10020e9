"""Rows that go from rank to rank, in rounds that are bounded for each rank, whatever the number of ranks.

A rank sends blocks of its own size. Where more would come to one rank than it may hold at once, as when all
have rows for the same one, all cut what they send into the same number of pieces. So no call of MPI is given
a length that it cannot count (2^31 bytes), either.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dglrun.arrays import Array, Ints, group_by
from dglrun.mpi.collectives import Ranks

BLOCK_BYTES = 4 << 20
"""What a rank sends in a block of a stream."""
ROUND_BYTES = 32 << 20
"""What a rank sends, and what arrives at it, in one round: eight blocks that come to the same rank."""

BLOCKS = 16
"""Blocks of a rank's share at least: what a rank works on at once then falls with its share."""
LEAST_ROWS = 1 << 14
"""Rows of a block, if the share has as many: smaller ones cost more in messages than they save."""

Span = tuple[int, int]
"""The first row and the one after the last."""


def block_rows(row_bytes: int) -> int:
    """Rows of one block, so that it stays within `BLOCK_BYTES`."""
    return max(1, BLOCK_BYTES // max(row_bytes, 1))


def rows_at_once(share: int, most: int) -> int:
    """Rows of one block of a rank's share, at most `most`."""
    return min(most, max(LEAST_ROWS, share // BLOCKS))


@dataclass(frozen=True)
class ExchangeRound:
    """The rows that this rank sends and receives in one round.

    Attributes:
        send: By rank: which of its rows, among all rows that this rank sends, those for rank 0 first.
        receive: By rank: which of the rows that come from it, among all that this rank receives.
    """

    send: Sequence[Span]
    receive: Sequence[Span]

    def exchange(self, ranks: Ranks, column: Array) -> Array:
        """Send this round's rows of a column; collective.

        Args:
            ranks: The processes.
            column: All rows that this rank sends: shape (rows, ...), contiguous.

        Returns:
            The rows of this round that came, by sender: dtype and row shape of `column`.
        """
        return ranks.exchange(_cut(column, self.send), _lengths(self.send), _lengths(self.receive))

    def answer(self, ranks: Ranks, column: Array) -> Array:
        """Send back as many rows as came in this round; collective.

        Args:
            ranks: The processes.
            column: A row for each that came: shape (rows of the round, ...), contiguous.

        Returns:
            A row for each that this rank sent in this round: dtype and row shape of `column`.
        """
        return ranks.exchange(column, _lengths(self.receive), _lengths(self.send))


def rounds(ranks: Ranks, send: Ints, receive: Ints, row_bytes: int) -> Iterator[ExchangeRound]:
    """Cut what the ranks have for each other into rounds; collective.

    A rank neither sends nor receives more than `ROUND_BYTES` and a row for each rank in one of them.

    Args:
        ranks: The processes.
        send: Rows for each rank, int64, shape (ranks,).
        receive: Rows from each rank, int64, shape (ranks,).
        row_bytes: Bytes of a row, the same on every rank.

    Yields:
        At least one round, the same number on every rank; rows keep their order.
    """
    most = max(int(send.sum()), int(receive.sum())) * row_bytes
    number = max(ranks.gather(max(1, -(-most // ROUND_BYTES)))) if ranks.size > 1 else 1
    for turn in range(number):
        yield ExchangeRound(_spans(send, turn, number), _spans(receive, turn, number))


def all_to_all(ranks: Ranks, grouped: Array, counts: Ints) -> tuple[Array, Ints]:
    """Send each rank its group of rows; collective.

    Args:
        ranks: The processes.
        grouped: Rows for rank 0, then those for rank 1, ...: shape (rows, ...), contiguous; any dtype and
            row shape, the same on every rank.
        counts: Rows for each rank, int64, shape (ranks,).

    Returns:
        The rows received, by sender, shape (rows received, ...), dtype of `grouped`; and how many came of
        each sender, int64, shape (ranks,).
    """
    received = ranks.counts(counts.reshape(-1, 1)).ravel()
    turns = list(rounds(ranks, counts, received, row_bytes(grouped)))
    if len(turns) == 1:
        return turns[0].exchange(ranks, grouped), received
    found = np.empty((int(received.sum()), *grouped.shape[1:]), grouped.dtype)
    for turn in turns:
        _put(found, turn.receive, turn.exchange(ranks, grouped))
    return found, received


def ask_owners(ranks: Ranks, owners: Array, questions: Array, answer: Callable[[Array], Array]) -> Array:
    """Ask for each question the rank that knows; collective.

    Args:
        ranks: The processes.
        owners: The rank to ask, for each question: any integers, shape (questions,).
        questions: Any dtype, the same on every rank; shape (questions,).
        answer: Answers questions that came to this rank, one or more times: takes shape (asked,), dtype of
            `questions`; returns shape (asked, ...), any dtype and row shape, the same on every rank. It must
            not raise: the other ranks wait for its answers.

    Returns:
        The answers in the order of the questions: shape (questions, ...), dtype and row shape of `answer`'s.
    """
    if not (owners[1:] < owners[:-1]).any():  # grouped as they are
        ends = np.searchsorted(owners, np.arange(ranks.size + 1))
        return _ask_grouped(ranks, np.ascontiguousarray(questions), np.diff(ends), answer)
    groups = group_by(owners, ranks.size)
    answers = _ask_grouped(ranks, questions[groups.rows], groups.counts, answer)
    found = np.empty_like(answers)
    found[groups.rows] = answers
    return found


def _ask_grouped(ranks: Ranks, grouped: Array, counts: Ints, answer: Callable[[Array], Array]) -> Array:
    """See `ask_owners`: `counts` questions for each rank, those for rank 0 first; answers in this order."""
    asked = ranks.counts(counts.reshape(-1, 1)).ravel()
    answered = [
        (turn, turn.answer(ranks, answer(turn.exchange(ranks, grouped))))
        for turn in rounds(ranks, counts, asked, grouped.itemsize)
    ]
    first = answered[0][1]
    if len(answered) == 1:
        return first
    found = np.empty((len(grouped), *first.shape[1:]), first.dtype)
    for turn, answers in answered:
        _put(found, turn.send, answers)
    return found


def row_bytes(column: Array) -> int:
    """Bytes of a row of an array of any dtype and shape (rows, ...)."""
    return column.itemsize * int(np.prod(column.shape[1:], dtype=np.int64))


def _spans(counts: Ints, turn: int, number: int) -> list[Span]:
    """The turn's share of each group of rows, the groups one after another; sender and receiver agree."""
    firsts = np.cumsum(counts) - counts
    low, high = firsts + counts * turn // number, firsts + counts * (turn + 1) // number
    return list(zip(low.tolist(), high.tolist(), strict=True))


def _lengths(spans: Sequence[Span]) -> list[int]:
    return [stop - start for start, stop in spans]


def _cut(column: Array, spans: Sequence[Span]) -> Array:
    """The rows of all spans, not copied where they follow one another."""
    if all(before[1] == after[0] for before, after in pairwise(spans)):
        return column[spans[0][0] : spans[-1][1]]
    return np.concatenate([column[start:stop] for start, stop in spans])


def _put(column: Array, spans: Sequence[Span], rows: Array) -> None:
    at = 0
    for start, stop in spans:
        column[start:stop] = rows[at : at + stop - start]
        at += stop - start
