"""Each rank reads its share of the training masks and gets the part of its own nodes."""

from dglrun.arrays import share
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.mpi.collectives import Ranks, run_on_all_ranks
from dglrun.mpi.shared_index import index_tables
from dglrun.partitioning import training_nodes
from dglrun.partitioning.distributed.vertex_distribution import CyclicDistribution, to_owners
from dglrun.partitioning.training_nodes import Mask


def of_own(ranks: Ranks, graph: ChunkedGraph, nodes: CyclicDistribution) -> Mask:
    """Which of this rank's nodes are training nodes; collective. Memory: two bytes for each own node.

    Args:
        ranks: All ranks.
        graph: The graph.
        nodes: Which rank owns which node.

    Returns:
        bool, shape (nodes.size(rank),), in the order of its rows.

    Raises:
        AgreedError: there is no mask, or a bad one, on any rank.
    """
    index = index_tables(ranks, run_on_all_ranks(ranks, lambda: training_nodes.tables(graph)))
    start, stop = share(nodes.nodes, ranks.rank, ranks.size)
    found = run_on_all_ranks(ranks, lambda: training_nodes.mask(graph, start, stop, index))
    return to_owners(ranks, nodes, start, found)
