"""What a partitioner has to balance."""

import numpy as np
import pytest

from dglrun.partitioning import weights


def test_weights_are_one_hot_by_type_with_the_degree_last() -> None:
    """As the guide describes node weights."""
    columns = weights.type_columns([2, 0, 3], weights.Balance())

    found = weights.multi(
        columns, np.array([0, 0, 2, 2, 2]), np.array([5, 0, 1, 1, 1]), None, weights.Balance()
    )

    assert found.tolist() == [[0, 1, 5], [0, 1, 0], [1, 0, 1], [1, 0, 1], [1, 0, 1]]


def test_many_types_share_the_last_column() -> None:
    """Back ends have a limit; the smallest types are balanced together."""
    columns = weights.type_columns(range(100, 0, -1), weights.Balance())

    assert columns.tolist() == [*range(14), *[14] * 86]


def test_bounds_leave_room_for_what_cannot_be_even() -> None:
    """A type of one node in four parts can only be four times its mean."""
    bounds = weights.tolerances(np.array([1, 4000]), np.array([1, 1]), 4, 1.05)

    assert bounds.tolist() == [pytest.approx(5.0), pytest.approx(1.05)]


def test_training_nodes_have_a_column_of_their_own() -> None:
    """Beside type and degree; in a single weight they are half of all."""
    balance = weights.Balance.parse("types,edges,train")
    train, degrees = np.array([True, False, False, True]), np.array([1, 2, 0, 3])

    many = weights.multi(weights.type_columns([4], balance), np.zeros(4, np.int64), degrees, train, balance)
    share = weights.training_share(4, 6, 2, balance)
    one = weights.single(degrees, train, share, balance)

    assert many.tolist() == [[1, 1, 1], [1, 0, 2], [1, 0, 0], [1, 1, 3]]
    assert one.ravel().tolist() == [7, 3, 1, 9]
    assert one.sum() == 2 * (4 + 6)
