"""Edge cut and balance of an assignment."""

import numpy as np
import pytest
from hypothesis import given

from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.partitioning import partition_quality
from tests.support.heterographs import QUIET, Toy, toys


@QUIET
@given(toy=toys())
def test_the_score_counts_every_edge_once(tmp_path_factory: pytest.TempPathFactory, toy: Toy) -> None:
    """Cut, edges by the destination's part, nodes by type: against loops."""
    graph = ChunkedGraph.load(toy.write(tmp_path_factory.mktemp("g")))
    parts = {ntype: each.astype(np.uint16) for ntype, each in toy.assignment.items()}

    found = partition_quality.of_assignment(graph, parts, toy.parts)

    cut, edges = 0, [0] * toy.parts
    for etype, pairs in toy.edges.items():
        src_type, _, dst_type = etype.split(":")
        for src, dst in pairs:
            edges[parts[dst_type][dst]] += 1
            cut += parts[src_type][src] != parts[dst_type][dst]
    assert (found.cut, found.edges.tolist()) == (cut, edges)
    assert found.nodes.sum(axis=1).tolist() == list(toy.nodes.values())
