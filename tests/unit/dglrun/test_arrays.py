"""Rows grouped, numbered and shared: the arithmetic that the pipeline's files rest on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglrun.arrays import group_by, imbalance, number_rows, share

KEYS = st.integers(1, 300).flatmap(
    lambda groups: st.tuples(st.lists(st.integers(0, groups - 1), max_size=60), st.just(groups))
)


@given(KEYS)
def test_rows_are_grouped_in_their_order(rows: tuple[list[int], int]) -> None:
    """By group, and inside a group as they came, for few groups and for more than a byte counts."""
    keys, groups = rows

    found = group_by(np.array(keys, np.int64), groups)

    assert found.rows.tolist() == sorted(range(len(keys)), key=lambda row: keys[row])
    assert found.counts.tolist() == [keys.count(group) for group in range(groups)]
    assert {group: rows.tolist() for group, rows in found.runs()} == {
        group: [row for row, key in enumerate(keys) if key == group] for group in set(keys)
    }


@given(st.lists(st.lists(st.integers(0, 3), max_size=20), max_size=5))
def test_numbers_go_on_over_blocks(blocks: list[list[int]]) -> None:
    """A block after another is numbered as all rows at once."""
    whole = np.array([key for block in blocks for key in block], np.uint8)
    at_once, by_block = np.array([0, 100, 200, 300]), np.array([0, 100, 200, 300])

    numbers = [number_rows(np.array(block, np.uint8), by_block) for block in blocks]

    assert np.concatenate([np.zeros(0, np.int64), *numbers]).tolist() == number_rows(whole, at_once).tolist()
    assert by_block.tolist() == at_once.tolist()


@given(st.integers(0, 1000), st.integers(1, 9))
def test_the_shares_of_all_ranks_are_the_whole(rows: int, size: int) -> None:
    """One after another, none longer than another by more than a row."""
    shares = [share(rows, rank, size) for rank in range(size)]

    assert [start for start, _ in shares] == [0, *(stop for _, stop in shares[:-1])]
    assert shares[-1][1] == rows
    lengths = [stop - start for start, stop in shares]
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize(
    ("loads", "expected"), [([3, 3], 1.0), ([6, 0], 2.0), ([1, 2, 3], 1.5), ([0, 0], 1.0)]
)
def test_imbalance_is_the_largest_over_the_mean(loads: list[int], expected: float) -> None:
    """1 is even, and stands for no load at all."""
    assert imbalance(np.array(loads)) == expected
