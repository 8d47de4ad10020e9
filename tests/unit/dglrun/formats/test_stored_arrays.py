"""Arrays inside DGL's files, read in pieces; and the edges that they hold, counted."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglrun.formats.dgl.arrays import ArraySpec, FormatError, StoredArray
from dglrun.formats.dgl.edge_blocks import EdgeBlock
from dglrun.formats.dgl.tensors import read_tensors, tensor_file


def stored(folder: Path) -> StoredArray:
    """Ten rows of three float32 values, 0 to 29."""
    with tensor_file(folder / "x.dgl", [ArraySpec("x", np.dtype("<f4"), (10, 3))]) as file:
        file.put("x", 0, np.arange(30, dtype=np.float32).reshape(10, 3))
    return read_tensors(folder / "x.dgl")["x"]


@pytest.mark.parametrize(("start", "stop"), [(0, 10), (3, 7), (9, 10), (4, 4), (5, 2)])
def test_any_rows_are_read(tmp_path: Path, start: int, stop: int) -> None:
    found = stored(tmp_path).rows(start, stop)

    assert found.dtype == np.dtype("<f4")
    np.testing.assert_array_equal(found, np.arange(30).reshape(10, 3)[start:stop])


def test_a_read_may_come_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel gives no more than 2 GiB at once."""
    array, whole = stored(tmp_path), os.preadv
    monkeypatch.setattr(os, "preadv", lambda file, into, at: whole(file, [into[0][:7]], at))

    np.testing.assert_array_equal(array.rows(1, 10), np.arange(3, 30).reshape(9, 3))


def test_a_file_that_ends_too_early_is_told(tmp_path: Path) -> None:
    """As when it was cut after its headers were read; a value cut in two is none."""
    array = stored(tmp_path)
    os.truncate(array.path, array.offset + 7 * 12 + 6)

    np.testing.assert_array_equal(array.rows(0, 7), np.arange(21).reshape(7, 3))
    with pytest.raises(FormatError, match="x ends after 4 of 15 values"):
        array.rows(6, 11)
    with pytest.raises(FormatError, match="x ends after 0 of 3 values"):
        array.rows(9, 10)


@given(
    data=st.data(),
    counts=st.lists(st.integers(0, 5), min_size=1, max_size=4),
    halo_edges=st.integers(0, 4),
)
def test_cut_edges_are_those_of_the_part_that_come_from_halo_nodes(
    data: st.DataObject, counts: list[int], halo_edges: int
) -> None:
    """By type, edges in any order; a halo edge, as DGL's own parts have them, is another part's."""
    ends = np.cumsum(counts)
    inner_edges = int(ends[-1])
    edges = np.array(data.draw(st.permutations(range(inner_edges + halo_edges))), np.int64)
    src = np.array(data.draw(st.lists(st.integers(0, 9), min_size=len(edges), max_size=len(edges))), np.int64)

    found = EdgeBlock(src, np.zeros_like(src), edges).cut(5, ends)

    wanted = [0] * len(counts)
    for one, edge in zip(src.tolist(), edges.tolist(), strict=True):
        if one >= 5 and edge < inner_edges:
            wanted[next(at for at, end in enumerate(ends.tolist()) if edge < end)] += 1
    assert found.tolist() == wanted


@given(
    src=st.lists(st.integers(0, 9), max_size=12),
    start=st.integers(0, 8),
    counts=st.lists(st.integers(0, 5), min_size=1, max_size=4),
)
def test_edges_that_count_up_have_the_same_cut_as_any(src: list[int], start: int, counts: list[int]) -> None:
    """A block may begin in any type, and go on into halo edges."""
    numbers, ends = range(start, start + len(src)), np.cumsum(counts)
    some = np.array(src, np.int64)

    found = EdgeBlock(some, some, numbers)

    assert found.edges.tolist() == list(numbers)
    assert found.cut(5, ends).tolist() == EdgeBlock(some, some, found.edges).cut(5, ends).tolist()
