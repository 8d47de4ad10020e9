"""Random assignment in which every part gets its share of every node type."""

import numpy as np

from dglrun.formats.assignment import Parts

BLOCK = 1 << 20


def assign(num_nodes: int, num_parts: int, rng: np.random.Generator) -> Parts:
    """Deal the nodes of one type out at random.

    Every stretch of `BLOCK` nodes is dealt out evenly, so parts differ by at most one node in each
    stretch, and every part gets a node as soon as there are as many nodes as parts; which parts get one
    more is chosen at random, so that small types do not all land in part 0.

    Args:
        num_nodes: Nodes of the type.
        num_parts: Parts.
        rng: Source of chance.

    Returns:
        Part of each node, uint16, shape (num_nodes,).
    """
    parts = np.empty(num_nodes, np.uint16)
    for at in range(0, num_nodes, BLOCK):
        stretch = parts[at : at + BLOCK]
        order = rng.permutation(num_parts).astype(np.uint16)
        stretch[:] = np.resize(order, len(stretch))
        rng.shuffle(stretch)
    return parts
