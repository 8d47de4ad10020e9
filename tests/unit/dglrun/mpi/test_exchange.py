"""Rows between ranks: they come to whom they are for, in order, in rounds that no rank is too small for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dglrun.arrays import Array
from dglrun.mpi import exchange
from dglrun.mpi.exchange import all_to_all, ask_owners, rounds
from dglrun.mpi.shuffle import OutgoingRows, Owners, shuffle
from tests.support.thread_ranks import ThreadRanks, on_ranks

COUNTS = st.integers(1, 4).flatmap(
    lambda size: st.lists(
        st.lists(st.integers(0, 40), min_size=size, max_size=size), min_size=size, max_size=size
    )
)
"""Rows from each rank for each rank."""


@given(COUNTS, st.integers(1, 64))
@settings(max_examples=40, deadline=None)
def test_rows_of_any_skew_come_to_whom_they_are_for(counts: list[list[int]], limit: int) -> None:
    """By sender and in its order, however few bytes a round may have."""

    def sent(sender: int, receiver: int) -> list[list[int]]:
        return [[sender, receiver, at] for at in range(counts[sender][receiver])]

    def work(ranks: ThreadRanks) -> list[list[int]]:
        rows = [row for receiver in range(ranks.size) for row in sent(ranks.rank, receiver)]
        grouped = np.array(rows, np.int16).reshape(-1, 3)
        found, _ = all_to_all(ranks, grouped, np.array(counts[ranks.rank], np.int64))
        return found.tolist()  # type: ignore[no-any-return]

    size = len(counts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "ROUND_BYTES", limit)
        assert on_ranks(size, work) == [
            [row for sender in range(size) for row in sent(sender, receiver)] for receiver in range(size)
        ]


@given(COUNTS.filter(lambda counts: len(counts) > 1), st.integers(1, 64))
@settings(max_examples=40, deadline=None)
def test_a_round_is_bounded_for_each_rank(counts: list[list[int]], limit: int) -> None:
    """By its bytes and a row for each rank, also where all have rows for the same one."""

    def work(ranks: ThreadRanks) -> list[list[int]]:
        own = np.array(counts, np.int64)
        found = rounds(ranks, own[ranks.rank], own[:, ranks.rank], 8)
        return [[sum(b - a for a, b in spans) for spans in (turn.send, turn.receive)] for turn in found]

    size = len(counts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "ROUND_BYTES", limit)
        by_rank = on_ranks(size, work)

    assert all(8 * rows <= limit + 8 * size for turns in by_rank for turn in turns for rows in turn)
    assert len({len(turns) for turns in by_rank}) == 1
    for rank, turns in enumerate(by_rank):
        assert [sum(column) for column in zip(*turns, strict=True)] == [
            sum(counts[rank]),
            sum(row[rank] for row in counts),
        ]


@given(
    st.lists(st.lists(st.integers(0, 29), max_size=12), min_size=1, max_size=4),
    st.sampled_from([8, 1 << 20]),
    st.sets(st.integers(0, 3)),
)
@settings(max_examples=60, deadline=None)
def test_each_question_is_answered_by_its_owner_in_the_order_asked(
    drawn: list[list[int]], limit: int, ascending: set[int]
) -> None:
    """Rank r knows the squares of the numbers from 10 r on; some ranks ask for them in ascending order."""
    size = len(drawn)
    questions = [sorted(mine) if rank in ascending else mine for rank, mine in enumerate(drawn)]

    def answers(ranks: ThreadRanks) -> list[int]:
        mine = np.array(questions[ranks.rank], np.int64)
        owners = np.minimum(mine // 10, size - 1)

        def answer(asked: Array) -> Array:
            assert (np.minimum(asked // 10, size - 1) == ranks.rank).all()
            return (asked * asked).astype(np.int32)

        found: list[int] = ask_owners(ranks, owners, mine, answer).tolist()
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "ROUND_BYTES", limit)
        assert on_ranks(size, answers) == [[each * each for each in mine] for mine in questions]


@given(
    rows=st.lists(st.lists(st.integers(0, 6), max_size=30), min_size=1, max_size=4),
    block=st.integers(1, 9),
    limit=st.sampled_from([1, 24, 1 << 20]),
)
@settings(max_examples=60, deadline=None)
def test_a_shuffle_keeps_the_order_of_each_rank_and_part(
    rows: list[list[int]], block: int, limit: int
) -> None:
    """Rows of any parts, in blocks and rounds of any size, arrive at the rank of their part."""
    size, owners = len(rows), Owners(7, len(rows))

    def work(ranks: ThreadRanks) -> dict[tuple[int, int], list[int]]:
        parts = np.array(rows[ranks.rank], np.uint8)
        starts = range(0, len(parts), block)
        found: dict[tuple[int, int], list[int]] = {}
        for arrival in shuffle(
            ranks,
            owners,
            (np.arange(start, min(start + block, len(parts))) for start in starts),
            np.empty(0, np.int64),
            lambda numbers: OutgoingRows(parts[numbers], (numbers, numbers.astype(np.int16))),
        ):
            assert (arrival.columns[0] == arrival.columns[1]).all()
            found.setdefault((arrival.source, arrival.part), []).extend(arrival.columns[0].tolist())
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "ROUND_BYTES", limit)
        by_rank = on_ranks(size, work)

    for rank, found in enumerate(by_rank):
        wanted = {
            (source, part): [at for at, each in enumerate(mine) if each == part]
            for source, mine in enumerate(rows)
            for part in owners.owned(rank)
        }
        assert found == {key: numbers for key, numbers in wanted.items() if numbers}
