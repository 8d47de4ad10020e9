"""Training nodes by their masks: read in any form and stretch, spread over the parts."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglrun.errors import DataError
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.partitioning import serial, training_nodes, weights
from dglrun.partitioning.distributed import training_mask
from dglrun.partitioning.distributed.vertex_distribution import CyclicDistribution
from tests.support.heterographs import QUIET, Toy, a_toy
from tests.support.needs import NEEDS_KAMINPAR, NEEDS_METIS
from tests.support.thread_ranks import on_ranks
from tests.unit.dglrun.partitioning.builders import with_training_nodes


def masked(sizes: dict[str, int], masks: dict[str, list[int]]) -> Toy:
    toy = a_toy(parts=2)
    data = {ntype: {"train_mask": np.array(values, np.int64)} for ntype, values in masks.items()}
    edges = {f"{ntype}:r:{ntype}": np.zeros((1, 2), np.int64) for ntype in sizes if sizes[ntype]}
    empty = {ntype: np.zeros(count, np.int64) for ntype, count in sizes.items()}
    return Toy(sizes, edges, empty, toy.parts, data)


@QUIET
@given(
    counts=st.tuples(st.integers(1, 9), st.integers(0, 5), st.integers(1, 9)),
    ranks=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_each_rank_gets_the_mask_of_its_own_nodes(
    tmp_path_factory: pytest.TempPathFactory, counts: tuple[int, int, int], ranks: int, seed: int
) -> None:
    """Whatever the stretches; a type without a mask has no training node."""
    sizes = dict(zip("abc", counts, strict=True))
    rng = np.random.default_rng(seed)
    masks = {ntype: rng.integers(0, 2, sizes[ntype]).tolist() for ntype in "ac"}
    graph = ChunkedGraph.load(masked(sizes, masks).write(tmp_path_factory.mktemp("g"), chunks=2))
    whole = np.array([*masks["a"], *[0] * sizes["b"], *masks["c"]], np.bool_)
    nodes = CyclicDistribution.of(len(whole), ranks)

    found = on_ranks(ranks, lambda each: training_mask.of_own(each, graph, nodes))

    assert training_nodes.mask(graph, 0, len(whole)).tolist() == whole.tolist()
    assert [own.tolist() for own in found] == [whole[nodes.ids(rank)].tolist() for rank in range(ranks)]


def test_a_mask_of_several_columns_is_refused(tmp_path: Path) -> None:
    """Its file is named."""
    toy = masked({"a": 2}, {"a": [0, 1]})
    toy.node_data["a"]["train_mask"] = np.zeros((2, 2), np.int64)
    graph = ChunkedGraph.load(toy.write(tmp_path))

    with pytest.raises(DataError, match=r"train_mask.*expected one value for each node"):
        training_nodes.mask(graph, 0, 2)


@pytest.mark.parametrize(
    ("backend", "limit"),
    [
        pytest.param("metis", 0.6, marks=NEEDS_METIS),
        pytest.param("kaminpar", 0.8, marks=NEEDS_KAMINPAR),
    ],
)
def test_training_nodes_are_spread_over_the_parts(tmp_path: Path, backend: str, limit: float) -> None:
    """All of them are in one of two communities, whole in one part by the cut alone."""
    graph = with_training_nodes(tmp_path / "in")
    training = training_nodes.mask(graph, 0, 400)
    largest = {}
    for words in ("nodes", "nodes,train"):
        balance = weights.Balance.parse(words)
        if backend == "metis":
            parts, _ = serial.metis_parts(graph, 2, 1, balance, 1.05)
        else:
            parts, _ = serial.kaminpar_parts(graph, tmp_path / "work", 2, 1, balance, 1.05)
        assert len(parts["a"]) == 400
        largest[words] = np.bincount(parts["a"][training], minlength=2).max() / training.sum()

    assert largest["nodes"] == 1.0
    assert largest["nodes,train"] <= limit
