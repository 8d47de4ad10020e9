"""The hashes whose sums stand for a table: what a mistake of dispatch may do to rows must change the sum."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglrun.arrays import Array
from dglrun.mpi import checksum

Edges = tuple[Array, Array, Array]
EDGES = 1 << 10


def total(hashes: checksum.Hashes) -> int:
    """What is compared."""
    return int(hashes.sum(dtype=np.uint64))


def edges() -> Edges:
    """Numbers, sources and destinations, of which the sums are the same."""
    drawn = np.random.default_rng(0)
    sources = drawn.integers(0, 99, EDGES)
    return np.arange(EDGES), sources, drawn.permutation(sources)


MISTAKES: dict[str, Callable[[Array, Array, Array], Edges]] = {
    "two edges have each other's destination": lambda e, s, d: (e, s, d[[1, 0, *range(2, EDGES)]]),
    "all destinations are one edge late": lambda e, s, d: (e, s, np.roll(d, 1)),
    "sources and destinations are exchanged": lambda e, s, d: (e, d, s),
    "numbers in the reverse order": lambda e, s, d: (e[::-1], s, d),
    "a source one too high, another one too low": lambda e, s, d: (e, s + (e == 3) - (e == 7), d),
    "a highest bit is set in two sources": lambda e, s, d: (e, s | ((e < 2) * np.int64(-(2**63))), d),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_that_keeps_the_sum_of_every_column_changes_the_sum_of_the_hashes(
    mistake: Callable[[Array, Array, Array], Edges],
) -> None:
    """Without the mixing all of them would have the same."""
    assert total(checksum.hash_columns(*mistake(*edges()))) != total(checksum.hash_columns(*edges()))


def test_an_edge_that_is_there_twice_instead_of_another_changes_the_sum() -> None:
    """As many rows as before."""
    columns = edges()
    doubled = [np.r_[column[1], column[1:]] for column in columns]

    assert total(checksum.hash_columns(*doubled)) != total(checksum.hash_columns(*columns))


def test_marks_that_move_in_step_change_the_sum() -> None:
    """Rows 0 and 3 are marked instead of 1 and 2: a sum of squares of linear hashes would be the same."""
    keys = np.arange(4)

    outer, inner = (checksum.hash_columns(keys, np.array(marks)) for marks in ([1, 0, 0, 1], [0, 1, 1, 0]))

    assert total(outer) != total(inner)


@pytest.mark.parametrize("width", [1, 2, 3, 8, 64])
def test_negated_floats_and_pairs_of_highest_bits_change_the_hash(width: int) -> None:
    """The highest bits of two 64-bit words would cancel."""
    keys, rows = np.arange(50), np.random.default_rng(1).random((50, width), np.float32) + 1

    found = checksum.hash_rows(keys, rows)

    for column in range(width):
        flipped = rows.copy()
        flipped[:, [column, -1]] *= -1
        assert (checksum.hash_rows(keys, flipped) != found).all()
    assert (checksum.hash_rows(keys, -rows) != found).all()


@pytest.mark.parametrize("column", [0, 1, 2])
def test_each_bit_of_an_id_reaches_half_of_the_hash(column: int) -> None:
    """Of 64 bits 26 to 38 change on average, for each bit of IDs up to 2**48."""
    before = checksum.hash_columns(*edges())
    for bit in range(48):
        columns = list(edges())
        columns[column] = columns[column] ^ (1 << bit)
        changed = checksum.hash_columns(*columns) ^ before
        assert 26 < np.unpackbits(changed.view(np.uint8)).mean() * 64 < 38


@given(st.integers(1, 3), st.integers(0, 70_000), st.sampled_from(["u1", "i4", "u4", "i8", "u8"]))
def test_a_hash_depends_on_the_numbers_only(columns: int, rows: int, dtype: str) -> None:
    """Not on their dtype, their strides, or the block in which they come."""
    lowest = -100 if dtype.startswith("i") else 0
    wide = [np.random.default_rng(at).integers(lowest, 100, 2 * rows) for at in range(columns)]
    expected = checksum.hash_columns(*(column[::2] for column in wide))

    narrow = [column.astype(dtype)[::2] for column in wide]
    cut = rows // 3

    assert np.array_equal(checksum.hash_columns(*narrow), expected)
    for part in (slice(0, cut), slice(cut, rows)):
        assert np.array_equal(checksum.hash_columns(*(column[part] for column in narrow)), expected[part])


@given(
    st.integers(0, 300),
    st.integers(0, 40) | st.just(5000),  # as wide as that: blocks of a hundred rows or fewer
    st.sampled_from(["u1", "f2", "f4", "f8", "i8"]),
)
def test_the_hash_of_a_row_depends_on_its_bytes_and_key_only(rows: int, width: int, dtype: str) -> None:
    """Not on the block in which it comes."""
    values = np.random.default_rng(2).integers(0, 250, (rows, width)).astype(dtype)
    keys = np.arange(rows)
    expected = checksum.hash_rows(keys, values)
    cut = rows // 3

    for part in (slice(0, cut), slice(cut, rows)):
        assert np.array_equal(checksum.hash_rows(keys[part], values[part]), expected[part])
    assert len(np.unique(expected)) == rows
