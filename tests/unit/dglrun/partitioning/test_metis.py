"""METIS in one process."""

import ctypes

import numpy as np
import pytest
from hypothesis import given

from dglrun.errors import DataError
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.partitioning import csr, metis, serial, weights
from tests.support.heterographs import QUIET, WITH_NODES, Toy
from tests.support.needs import NEEDS_METIS


@NEEDS_METIS
@QUIET
@given(toy=WITH_NODES)
def test_metis_partitions_any_graph(tmp_path_factory: pytest.TempPathFactory, toy: Toy) -> None:
    """Isolated nodes, self-loops, duplicates, empty types, more parts than nodes."""
    folder = tmp_path_factory.mktemp("g")
    graph = ChunkedGraph.load(toy.write(folder))

    parts, _ = serial.metis_parts(graph, toy.parts, 1, weights.Balance(), 1.05)

    assert {ntype: len(found) for ntype, found in parts.items()} == toy.nodes
    assert all((found < toy.parts).all() for found in parts.values())


def test_metis_refuses_what_it_cannot_count() -> None:
    """32-bit numbers overflow silently in the library, so the sizes are compared before the call."""
    lib = metis.Library("libmetis.so.5", ctypes.CDLL(None), np.int32)
    none = np.zeros(0, np.int32)
    rows = csr.Csr(np.array([0, 1 << 31, 1 << 31, 1 << 31]), none, none, np.zeros(3, np.int64))

    with pytest.raises(DataError, match="counts in 32 bits"):
        metis.assign(lib, rows, np.ones((3, 1), np.int64), np.ones(1, np.float32), 2, 1)
