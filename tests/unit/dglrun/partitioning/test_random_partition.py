"""Random assignment."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dglrun.partitioning import random_partition


@given(st.integers(0, 200), st.integers(1, 40), st.integers(0, 9))
def test_random_gives_each_part_its_share_of_each_type(nodes: int, parts: int, seed: int) -> None:
    """Parts differ by one node at most, so each has one as soon as there are enough."""
    found = random_partition.assign(nodes, parts, (seed,))

    sizes = np.bincount(found, minlength=parts)
    assert (len(found), len(sizes)) == (nodes, parts)
    assert sizes.max() - sizes.min() <= 1


def test_small_types_do_not_all_land_in_the_first_parts() -> None:
    """Which part gets the odd node is chance too."""
    assert {int(random_partition.assign(1, 4, (7, kind))[0]) for kind in range(100)} == {0, 1, 2, 3}
