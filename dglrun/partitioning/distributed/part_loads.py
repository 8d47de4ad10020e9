"""How full the parts are while nodes stream into them: what each may take, wants, and must give away.

Every node has a weight in each constraint (columns of `dglrun.partitioning.weights`). Only the constraints in
which it weighs something count for it, so nodes are of one kind that weigh something in the same ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dglrun.arrays import Array, Ints
from dglrun.mpi.collectives import Ranks, add_up
from dglrun.partitioning.distributed.stream_order import Chances
from dglrun.partitioning.weights import Floats, Weights


@dataclass(frozen=True)
class Kinds:
    """In which constraints nodes weigh something.

    Attributes:
        counts: Which ones, bool, shape (kinds, constraints).
        of: Kind of each node, smallest unsigned integers, shape (nodes,).
    """

    counts: Array
    of: Array

    @staticmethod
    def find(weights: Weights) -> "Kinds":
        """The kinds of a rank's nodes; numbers are the rank's own."""
        columns = weights.shape[1]
        bits = np.zeros(len(weights), np.uint32)
        for column in range(columns):
            bits |= (weights[:, column] > 0).astype(np.uint32) << np.uint32(column)
        every, of = np.unique(bits, return_inverse=True)
        counts = (every[:, None] >> np.arange(columns, dtype=np.uint32)) & 1
        return Kinds(counts.astype(bool), of.astype(np.uint8 if len(every) <= 256 else np.uint16))

    def least(self, values: Array, otherwise: float) -> Array:
        """The least of what counts for a kind.

        Args:
            values: float64, shape (parts, constraints).
            otherwise: For a kind that weighs nothing at all.

        Returns:
            float64, shape (kinds, parts).
        """
        shown = np.full((len(self.counts), len(values)), np.inf)
        for column in range(values.shape[1]):
            row = np.where(self.counts[:, column, None], values[None, :, column], np.inf)
            np.minimum(shown, row, out=shown)
        return np.where(np.isinf(shown), otherwise, shown)


class PartLoads:
    """The loads of all parts; every rank has the same.

    Args:
        ranks: The ranks that own nodes.
        totals: Sum of each constraint over all nodes, int64, shape (constraints,), above 0.
        bounds: Load allowed in a part over the mean, float32, shape (constraints,).
        num_parts: Parts.
    """

    def __init__(self, ranks: Ranks, totals: Ints, bounds: Floats, num_parts: int) -> None:
        self._ranks = ranks
        self.load = np.zeros((num_parts, len(totals)), np.int64)
        self.mean = totals / num_parts
        self.most = self.mean * np.asarray(bounds, np.float64)

    def change(self, delta: Ints) -> None:
        """Add what this rank's nodes have moved; collective. int64, shape (parts, constraints)."""
        self.load += add_up(self._ranks, delta)

    def limit(self, widening: float) -> Array:
        """The load that a part may have at a tolerance so much wider: float64, shape (constraints,)."""
        return self.mean + (self.most - self.mean) * widening

    def slack(self, kinds: Kinds, widening: float | None) -> Array:
        """How much each part wants nodes of each kind, 0 to 1, float64, shape (kinds, parts).

        Args:
            kinds: The kinds.
            widening: None in the first pass, where parts are wanted the less the fuller they are (LDG);
                later they are wanted alike up to the mean, then less and less up to `limit(widening)`.
        """
        if widening is None:
            values = 1 - self.load / self.most
        else:
            limit = self.limit(widening)
            # float32 has no number between 1 and 1 + 2^-23: a bound may be the mean itself.
            values = (limit - self.load) / np.maximum(limit - self.mean, 1e-9)
        return kinds.least(np.clip(values, 0, 1), 1.0)

    def admission(self, kinds: Kinds, wanted: Ints, widening: float) -> Array:
        """The share of the nodes of a kind that a part has room for, float64, shape (kinds, parts).

        Args:
            kinds: The kinds.
            wanted: What wants to move into each part, of all ranks, int64, shape (parts, constraints).
            widening: See `slack`.
        """
        room = np.clip(self.limit(widening) - self.load, 0, None)
        return kinds.least(np.clip(room / np.maximum(wanted, 1), 0, 1), 1.0)

    def excess(self, batches: int, widening: float) -> Array:
        """The share of a batch's load that must leave each part, float64, shape (parts, constraints).

        Args:
            batches: The pass has so many; each has its share of a part's load.
            widening: See `slack`.
        """
        over = (self.load - self.limit(widening)) * batches / np.maximum(self.load, 1)
        share: Array = np.clip(over, 0, 1)
        return share

    @property
    def are_within_bounds(self) -> bool:
        """Whether no part has more than it may have in the end."""
        return bool((self.load <= self.most).all())

    def places(self, leaving: Ints) -> Array:
        """The share of what leaves its part that others have room for, float64, shape (constraints,).

        Args:
            leaving: For each constraint what leaves because of it, of all ranks, int64, shape (constraints,).
        """
        room = np.clip(self.most - self.load, 0, None).sum(axis=0)
        share: Array = np.clip(room / np.maximum(leaving, 1), 0, 1)
        return share

    def deal_by(self, constraint: Array, chance: Chances) -> Ints:
        """A part for each node by chance, in proportion to the room that parts have in one constraint.

        Args:
            constraint: For each node, integers, shape (nodes,).
            chance: 0 to 1 for each node, float64, shape (nodes,).

        Returns:
            int64, shape (nodes,).
        """
        return _deal(self._free().T, constraint, chance)

    def deal(self, kinds: Kinds, of: Array, chance: Chances) -> Ints:
        """A part for each node by chance, in proportion to the room that parts have for its kind.

        Args:
            kinds: The kinds.
            of: Kind of each node, integers, shape (nodes,).
            chance: 0 to 1 for each node, float64, shape (nodes,).

        Returns:
            int64, shape (nodes,).
        """
        return _deal(kinds.least(self._free(), 1.0), of, chance)

    def _free(self) -> Array:
        """The free share of each part, never quite none: float64, shape (parts, constraints)."""
        share: Array = np.clip(1 - self.load / self.most, 1e-9, 1)
        return share


def _deal(room: Array, of: Array, chance: Chances) -> Ints:
    """A part for each node by chance, in proportion to row `of` of `room`, shape (rows, parts)."""
    found = np.zeros(len(of), np.int64)
    for row in np.unique(of):
        ends, mine = np.cumsum(room[row]), of == row
        found[mine] = np.searchsorted(ends, chance[mine] * ends[-1], side="right")
    return np.minimum(found, room.shape[1] - 1)


@dataclass(frozen=True)
class Heaviness:
    """What nodes weigh beside others: the heavy ones leave first where a part has too much.

    So a part loses what it has too much of and little else: of edges the hubs, and with them few nodes. Nodes
    by chance would take as much of everything along, which overfills the parts that take them.

    Attributes:
        step: A 16th of the mean node's weight, float64, shape (constraints,).
        scale: What a step adds to a node's chance to leave, such that about as much leaves as shall; float64,
            shape (constraints,).
    """

    step: Array
    scale: Array

    @staticmethod
    def of(ranks: Ranks, weights: Weights, totals: Ints) -> "Heaviness":
        """Of the nodes of all ranks; collective.

        Args:
            ranks: The ranks that own nodes.
            weights: Of this rank's, int64, shape (nodes, constraints).
            totals: Sum of each constraint over all nodes, int64, shape (constraints,), above 0.
        """
        nodes = int(add_up(ranks, np.array(len(weights))))
        step = totals / (16 * nodes)
        steps = _steps(weights, step)
        first, second = add_up(ranks, np.stack([steps.sum(axis=0), (steps * steps).sum(axis=0)]))
        return Heaviness(step, first / np.maximum(second, 1))

    def chances(self, weights: Weights, excess: Array) -> Array:
        """How likely nodes leave their parts, 0 to 1.

        Args:
            weights: int64, shape (nodes, constraints).
            excess: The share of its load that must leave each node's part, float64, shape of `weights`.

        Returns:
            float64, shape of `weights`.
        """
        return np.minimum(excess * _steps(weights, self.step) * self.scale, 1.0)


def _steps(weights: Weights, step: Array) -> Ints:
    """Whole steps, at most 1,024 mean weights: the sum of their squares is exact on any number of ranks."""
    return np.minimum(np.ceil(weights / step), 1 << 14).astype(np.int64)


def sums(parts: Array, weights: Weights, num_parts: int) -> Ints:
    """The weights of nodes by part, exact up to 2^53.

    Args:
        parts: Part of each node, integers, shape (nodes,).
        weights: int64, shape (nodes, constraints).
        num_parts: Parts.

    Returns:
        int64, shape (num_parts, constraints).
    """
    columns = [np.bincount(parts, weights=column, minlength=num_parts) for column in weights.T]
    return np.stack(columns, axis=1).astype(np.int64)


def level(weights: Weights, most: Array, num_parts: int, order: Sequence[int]) -> Ints:
    """Deal heavy nodes out, the heaviest first, each to the part that is the least full with it.

    Args:
        weights: int64, shape (nodes, constraints).
        most: Load allowed in a part, float64, shape (constraints,).
        num_parts: Parts.
        order: Which of equally full parts comes first.

    Returns:
        Part of each node, int64, shape (nodes,).
    """
    shares = weights / most
    filled, found = np.zeros((num_parts, len(most))), np.zeros(len(weights), np.int64)
    first = np.asarray(order)
    for node in np.argsort(-shares.max(axis=1), kind="stable"):
        own = shares[node] > 0
        after = filled[:, own] + shares[node, own]
        # The fullest constraint decides, then the sum of all, so that ties do not pile up in one part.
        part = np.lexsort((first, filled.sum(axis=1), after.max(axis=1).round(9)))[0]
        filled[part] += shares[node]
        found[node] = part
    return found
