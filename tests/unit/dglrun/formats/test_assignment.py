"""The assignment's files."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglrun.formats import assignment
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.partitioning import serial
from tests.support.heterographs import QUIET, Toy, a_toy, toys


@given(st.lists(st.integers(0, 1233), max_size=50))
def test_lines_are_one_number_each(parts: list[int]) -> None:
    """One to four digits."""
    found = assignment.lines(np.array(parts, np.uint16), 1234)

    assert found == "".join(f"{part}\n" for part in parts).encode()


@QUIET
@given(toy=toys())
def test_an_assignment_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, toy: Toy) -> None:
    """With parts and types without nodes."""
    folder = tmp_path_factory.mktemp("g")
    graph = ChunkedGraph.load(toy.write(folder))
    parts = {ntype: each.astype(np.uint16) for ntype, each in toy.assignment.items()}
    meta = assignment.AssignmentMeta(toy.parts, "zoltan", {"edge_cut": 3})

    assignment.write(folder / "out", graph, parts, meta)

    again, found = assignment.load(folder / "out", graph)
    assert again == meta
    assert all((found[ntype] == parts[ntype]).all() for ntype in toy.nodes)


@pytest.mark.parametrize(("method", "algo"), [("random", "random"), ("metis", "metis"), ("zoltan", "metis")])
def test_dgl_accepts_the_metadata_of_every_method(tmp_path: Path, method: str, algo: str) -> None:
    """DGL's loader knows version 1.0.0 and two names; the true one stands beside."""
    graph = ChunkedGraph.load(a_toy().write(tmp_path))
    assignment.write(
        tmp_path / "out", graph, serial.random_parts(graph, 2, 0), assignment.AssignmentMeta(2, method)
    )

    raw = json.loads((tmp_path / "out" / "partition_meta.json").read_text())

    assert raw == {"version": "1.0.0", "num_parts": 2, "algo_name": algo, "method": method}
