"""The best part of each node of a batch: where most of its neighbours are, less where a part is full.

With few parts all of them are scored (a table of nodes by parts), with many only those in which a node has
neighbours (a sort); both give the same choice.
"""

from dataclasses import dataclass

import numpy as np

from dglrun.arrays import Array, Ints, NDArray
from dglrun.partitioning.distributed.stream_order import GOLDEN, Chances

Scores = NDArray[np.float64]

TABLE_PARTS = 32
"""Up to so many parts a table is faster than a sort."""
TIE = 1e-3
"""What chance adds at most: less than any difference that a neighbour makes in a part with room."""


@dataclass(frozen=True)
class Choice:
    """What each node of a batch would rather have.

    Attributes:
        part: The best part but its own, int64, shape (nodes,); any where `score` is 0.
        score: Its score, float64, shape (nodes,); 0 where no neighbour is in a part with room.
        own: Neighbours (input edges) in its own part, float64, shape (nodes,).
    """

    part: Ints
    score: Scores
    own: Scores


@dataclass(frozen=True)
class Neighbours:
    """The neighbours of the nodes of a batch.

    Attributes:
        owner: The node of each entry, its number in the batch, int64, ascending, shape (entries,).
        part: The neighbour's part, or the number of parts where it has none yet; integers, shape (entries,).
        count: Input edges that the entry stands for, int32, shape (entries,).
    """

    owner: Ints
    part: Array
    count: Array


def choose(near: Neighbours, current: Array, slack: Array, kinds: Array, chance: Chances) -> Choice:
    """Score the parts of each node: neighbours in the part, times the part's slack, and chance for ties.

    Args:
        near: Neighbours of the nodes.
        current: Part of each node, or the number of parts where it has none; integers, shape (nodes,).
        slack: How much a part wants nodes of each kind, 0 to 1, float64, shape (kinds, parts).
        kinds: Kind of each node, any integers, shape (nodes,).
        chance: 0 to 1 for each node, float64, shape (nodes,).
    """
    score = _by_table if slack.shape[1] <= TABLE_PARTS else _by_sort
    return score(near, current, slack, kinds, chance)


def _by_table(near: Neighbours, current: Array, slack: Array, kinds: Array, chance: Chances) -> Choice:
    nodes, parts = len(current), slack.shape[1]
    keys = near.owner * (parts + 1) + near.part
    found = np.bincount(keys, weights=near.count, minlength=nodes * (parts + 1))
    counts = found.astype(np.float64, copy=False).reshape(
        nodes, parts + 1
    )  # of no entries numpy makes integers
    counts[:, parts] = 0  # neighbours without a part
    every = np.arange(nodes)
    own = counts[every, current].copy()
    counts[every, current] = 0
    scores = counts[:, :parts]
    scores *= slack[kinds]
    scores += _tie(chance[:, None], np.arange(parts)) * (scores > 0)
    best = scores.argmax(axis=1)
    return Choice(best, scores[every, best], own)


def _by_sort(near: Neighbours, current: Array, slack: Array, kinds: Array, chance: Chances) -> Choice:
    nodes, parts = len(current), slack.shape[1]
    keys = near.owner * (parts + 1) + near.part
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1]))[: len(keys)])
    owner, part = keys[starts] // (parts + 1), keys[starts] % (parts + 1)
    count = np.add.reduceat(near.count[order], starts).astype(np.float64) if len(starts) else np.zeros(0)
    own = np.zeros(nodes)
    is_own = (part == current[owner]) & (part < parts)
    own[owner[is_own]] = count[is_own]
    other = ~is_own & (part < parts)
    owner, part, count = owner[other], part[other], count[other]
    scores = count * slack[kinds[owner], part]
    scores += _tie(chance[owner], part) * (scores > 0)
    found = Choice(np.zeros(nodes, np.int64), np.zeros(nodes), own)
    # Ascending by score, of equal ones by descending part: the last one written is what argmax takes.
    ascending = np.lexsort((-part, scores))
    found.part[owner[ascending]] = part[ascending]
    found.score[owner[ascending]] = scores[ascending]
    return found


def _tie(chance: Array, part: Array) -> Array:
    """Another order of the parts for each node, broadcast."""
    tie: Array = TIE * ((chance + GOLDEN * part) % 1.0)
    return tie
