"""Random assignment in which every part gets its share of every node type."""

from collections.abc import Sequence

import numpy as np

from dglrun.formats.assignment import Parts

BLOCK = 1 << 20


def assign(
    num_nodes: int, num_parts: int, seed: Sequence[int], start: int = 0, stop: int | None = None
) -> Parts:
    """Deal the nodes of one type out at random.

    Every stretch of `BLOCK` nodes is dealt out evenly, so parts differ by at most one node in each
    stretch, and every part gets a node as soon as there are as many nodes as parts; which parts get one
    more is chosen at random, so that small types do not all land in part 0. A stretch has its own chance, so
    that each of several processes can work out its nodes.

    Args:
        num_nodes: Nodes of the type.
        num_parts: Parts.
        seed: Any integers; the same ones give the same parts.
        start: First node that is wanted.
        stop: Node after the last one; None: all from `start` on.

    Returns:
        Part of each wanted node, uint16, shape (stop - start,).
    """
    stop = num_nodes if stop is None else stop
    parts = np.empty(stop - start, np.uint16)
    for at in range(start // BLOCK * BLOCK, stop, BLOCK):
        rng = np.random.default_rng([*(word % (1 << 64) for word in seed), at])
        order = rng.permutation(num_parts).astype(np.uint16)
        stretch = np.resize(order, min(BLOCK, num_nodes - at))
        rng.shuffle(stretch)
        low, high = max(start, at), min(stop, at + BLOCK)
        parts[low - start : high - start] = stretch[low - at : high - at]
    return parts
