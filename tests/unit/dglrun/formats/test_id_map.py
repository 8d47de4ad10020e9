"""Heterogeneous and homogeneous IDs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglrun.formats.id_map import IdMap

COUNTS = st.lists(st.integers(0, 6), min_size=1, max_size=6).filter(any)


def a_map(counts: list[int]) -> IdMap:
    return IdMap.of([f"t{at}" for at in range(len(counts))], counts)


@given(COUNTS)
def test_every_id_goes_there_and_back(counts: list[int]) -> None:
    """Homogeneous IDs enumerate the types in order, types without IDs included."""
    ids = a_map(counts)

    types, own = ids.to_typed(np.arange(ids.total))

    pairs = [(kind, number) for kind, count in enumerate(counts) for number in range(count)]
    assert list(zip(types.tolist(), own.tolist(), strict=True)) == pairs
    back = [int(ids.to_homogeneous(kind, number)) for kind, number in pairs]
    assert back == list(range(ids.total))


def test_the_first_id_of_a_type_belongs_to_it() -> None:
    """The guide's bisect gives type -1 for ID 0 and the type before for the first ID of each type."""
    ids = a_map([3, 0, 4])

    types, own = ids.to_typed([0, 3])

    assert (types.tolist(), own.tolist()) == ([0, 2], [0, 0])


@given(COUNTS, st.data())
def test_ranges_cut_the_homogeneous_ids_by_type(counts: list[int], data: st.DataObject) -> None:
    """Together they are the range again."""
    ids = a_map(counts)
    start = data.draw(st.integers(0, ids.total))
    stop = data.draw(st.integers(start, ids.total))

    found = [
        int(ids.to_homogeneous(kind, number))
        for kind, low, high in ids.ranges(start, stop)
        for number in range(low, high)
    ]

    assert found == list(range(start, stop))


@pytest.mark.parametrize("wrong", [-1, 7])
def test_ids_outside_the_graph_are_refused(wrong: int) -> None:
    """Told with the range and the ID."""
    ids = a_map([3, 0, 4])

    with pytest.raises(ValueError, match=f"the graph has the IDs 0 to 6, got {wrong}"):
        ids.to_typed([0, wrong])
    with pytest.raises(ValueError, match=r"type 't0' has the IDs 0 to 2, got 3"):
        ids.to_homogeneous(0, [0, 3])
    with pytest.raises(ValueError, match="expected a count"):
        IdMap.of(["a"], [-1])
