"""A streaming partitioner on all ranks: restreamed LDG in batches, with moves that parts have room for.

Nodes stream by in batches; each goes where most of its neighbours are, less where a part is full. The
first pass is LDG (Stanton and Kliot, "Streaming Graph Partitioning for Large Distributed Graphs", KDD
2012), the others restream it (Nishimura and Ugander, "Restreaming Graph Partitioning", KDD 2013) from what
there is, with tolerances that begin wide. The nodes of a batch are decided on together, on all ranks, and
then as many move into a part as it has room for, chosen by chance, as in balanced label propagation
(Ugander and Backstrom, "Balanced Label Propagation for Partitioning Massive Graphs", WSDM 2013).

A rank holds the rows of its own nodes and the part of every node of the graph, one byte each (two from 256
parts on): a list of the neighbours that it needs would be larger. See docs/adr/0017-streaming.md.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from dglrun.arrays import Array, Ints, NDArray, spans
from dglrun.formats.dgl.partition_book import part_dtype
from dglrun.mpi.collectives import Ranks, add_up
from dglrun.partitioning.distributed import part_loads, stream_choice
from dglrun.partitioning.distributed.backend import PartitionProblem
from dglrun.partitioning.distributed.part_loads import Heaviness, Kinds, PartLoads
from dglrun.partitioning.distributed.stream_choice import Choice, Neighbours
from dglrun.partitioning.distributed.stream_order import StreamOrder, chances, even_chances

PASSES = 13
"""Passes at most."""
TIGHT = 10
"""The first pass whose tolerance is the one asked for; those before have a wider one."""
WIDEST = 4.0
"""How much wider the tolerance of the first restreaming is."""
STILL = 0.005
"""A pass that moves a smaller share of the nodes is the last one with its tolerance."""
HEAVY = 0.25
"""A node that weighs more than this share of a part's mean is dealt out before the first pass."""
PIECE = 1 << 19
"""Half-edges and cells of the table of scores that are worked on at once."""


class Streaming:
    """The back end; it needs no library."""

    name = "streaming"
    library = "dglrun"
    single = False

    def partition(self, ranks: Ranks, problem: PartitionProblem) -> NDArray[np.int32]:
        """See `Backend.partition`: int32, shape (rows,); one seed gives one result on any number of ranks."""
        stream = _Stream(ranks, problem)
        stream.deal_heavy_nodes()
        stream.run(stream.order.growing(), None)
        number = 1
        while number < PASSES:
            moved = stream.run(stream.order.even(), _widening(number))
            if moved > STILL * stream.order.nodes or (number >= TIGHT and not stream.is_balanced):
                number += 1
            else:
                number = TIGHT if number < TIGHT else PASSES
        stream.fill_empty_parts()
        return stream.own_parts().astype(np.int32)


def _widening(number: int) -> float:
    """How much wider than asked for the tolerance of a pass is."""
    return max(1.0, WIDEST * (1 - (number - 1) / TIGHT))


class _Stream:
    """What a rank knows while nodes stream by."""

    def __init__(self, ranks: Ranks, problem: PartitionProblem) -> None:
        self._ranks, self._problem = ranks, problem
        self._num_parts, self._starts = problem.num_parts, problem.starts
        self._salt = 0
        nodes = int(problem.starts[-1])
        self.order = StreamOrder.of(nodes, problem.seed)
        self._kinds = Kinds.find(problem.weights)
        totals = add_up(ranks, problem.weights.sum(axis=0))
        self._loads = PartLoads(ranks, totals, problem.bounds, problem.num_parts)
        self._heaviness = Heaviness.of(ranks, problem.weights, totals)
        # The part after the last one stands for "none yet".
        self._parts = np.full(nodes, self._num_parts, part_dtype(self._num_parts + 1))

    @property
    def is_balanced(self) -> bool:
        """Whether every part keeps its bounds."""
        return self._loads.are_within_bounds

    def own_parts(self) -> Array:
        """Part of each of this rank's nodes."""
        return self._parts[self._starts[self._ranks.rank] : self._starts[self._ranks.rank + 1]]

    def deal_heavy_nodes(self) -> None:
        """Place the nodes that would overfill a part, or are few of their type; collective."""
        weights = self._problem.weights
        heavy = np.flatnonzero((weights > HEAVY * self._loads.mean).any(axis=1))
        owner, every = self._ranks.rank, self._ranks.gather((heavy, weights[heavy]))
        rows = np.concatenate([local + self._starts[rank] for rank, (local, _) in enumerate(every)])
        ids = np.concatenate([self._ids(local, rank) for rank, (local, _) in enumerate(every)])
        loads = np.concatenate([load for _, load in every])
        by_id = np.argsort(ids)
        order = np.random.default_rng(self._problem.seed % (1 << 64)).permutation(self._num_parts)
        found = part_loads.level(loads[by_id], self._loads.most, self._num_parts, order.tolist())
        self._parts[rows[by_id]] = found
        mine = self._parts[heavy + self._starts[owner]]
        self._loads.change(part_loads.sums(mine, weights[heavy], self._num_parts))

    def run(self, batches: list[Ints], widening: float | None) -> int:
        """One pass; collective.

        Args:
            batches: The blocks of each batch.
            widening: How much wider the tolerance is; None in the first pass.

        Returns:
            How many nodes of all ranks have moved.
        """
        moved = 0
        for batch in batches:
            self._salt += 1
            rows = self.order.rows(batch, self._ranks.rank, self._ranks.size)
            before = self.own_parts()[rows]
            after = self._decide(rows, before, len(batches), widening)
            moved += int(np.count_nonzero(before != after))
            self._tell(batch, after)
        return sum(self._ranks.gather(moved))

    def fill_empty_parts(self) -> None:
        """Give each part without a node the one with the lowest ID of the part that has the most.

        Chance can leave parts of small graphs empty, which jobs cannot use. Every rank knows all parts and
        finds the same; collective. Each counts its own: numpy counts in 8 bytes for each node.
        """
        counts = add_up(self._ranks, np.bincount(self.own_parts(), minlength=self._num_parts))
        for part in np.flatnonzero(counts == 0).tolist():
            fullest = int(counts.argmax())
            if counts[fullest] < 2:  # fewer nodes than parts
                return
            held = [np.flatnonzero(self._parts[low:high] == fullest) for low, high in pairwise(self._starts)]
            firsts = [
                (int(self._ids(each[:1], rank)[0]), rank) for rank, each in enumerate(held) if len(each)
            ]
            rank = min(firsts)[1]
            self._parts[self._starts[rank] + held[rank][0]] = part
            counts[[part, fullest]] += 1, -1

    def _decide(self, rows: Ints, before: Array, batches: int, widening: float | None) -> Array:
        """The parts that this rank's nodes of a batch get; collective."""
        wide, kinds = widening or 1.0, self._kinds.of[rows]
        ids, weights = self._ids(rows, self._ranks.rank), self._problem.weights[rows]
        salt = 5 * self._salt + (self._problem.seed << 32)
        choice = self._choose(rows, before, kinds, chances(ids, salt), widening)
        has = before < self._num_parts
        excess = self._loads.excess(batches, wide)
        leaving, reason = self._leaving(ids, before, weights, salt + 1, excess)
        wants = choice.score > np.where(leaving, 0.0, choice.own)
        wanted = add_up(self._ranks, part_loads.sums(choice.part[wants], weights[wants], self._num_parts))
        room = self._loads.admission(self._kinds, wanted, wide)
        moves = wants & (chances(ids, salt + 2) < room[kinds, choice.part])
        after = before.copy()
        after[moves] = choice.part[moves]
        self._loads.change(self._delta(before, after, weights))
        placed = after.copy()
        if excess.any():  # all ranks know the same loads
            # Who must leave and comes into no part that it wants goes anywhere, as far as there is room for
            # what its part has too much of: more of them would only have to leave again.
            go = np.flatnonzero(leaving & ~moves)
            go = go[self._has_place(ids[go], weights[go], reason[go], salt + 4)]
            placed[go] = self._loads.deal_by(reason[go], even_chances(ids[go], salt + 3))
        rest = ~has & ~moves  # who has no part yet gets one in any case
        placed[rest] = self._loads.deal(self._kinds, kinds[rest], even_chances(ids[rest], salt + 3))
        self._loads.change(self._delta(after, placed, weights))
        return placed

    def _has_place(self, ids: Ints, weights: Ints, reason: Ints, salt: int) -> NDArray[np.bool_]:
        """Which of the nodes that leave because of a constraint other parts have room for; collective."""
        asked = [int(weights[reason == each, each].sum()) for each in range(weights.shape[1])]
        shares = self._loads.places(add_up(self._ranks, np.array(asked)))
        return chances(ids, salt) < shares[reason]

    def _leaving(
        self, ids: Ints, before: Array, weights: Ints, salt: int, excess: Array
    ) -> tuple[NDArray[np.bool_], Ints]:
        """Which nodes must leave parts that are too full, and for each the constraint because of which."""
        leaving, reason = np.zeros(len(before), np.bool_), np.zeros(len(before), np.int64)
        too_full = np.append(excess.any(axis=1), False)  # "none yet" is not
        some = np.flatnonzero(too_full[before])
        shares = self._heaviness.chances(weights[some], excess[before[some]])
        reason[some] = shares.argmax(axis=1)
        leaving[some] = chances(ids[some], salt) < shares.max(axis=1, initial=0.0)
        return leaving, reason

    def _choose(
        self, rows: Ints, before: Array, kinds: Array, chance: Array, widening: float | None
    ) -> Choice:
        """The best part of each node; see `stream_choice.choose`."""
        slack = self._loads.slack(self._kinds, widening)
        found = Choice(np.zeros(len(rows), np.int64), np.zeros(len(rows)), np.zeros(len(rows)))
        for piece in self._pieces(rows):
            near = self._neighbours(rows[piece])
            best = stream_choice.choose(near, before[piece], slack, kinds[piece], chance[piece])
            found.part[piece], found.score[piece], found.own[piece] = best.part, best.score, best.own
        return found

    def _pieces(self, rows: Ints) -> Iterator[slice]:
        """Cut a batch so that what is worked on at once stays small."""
        xadj, cells = self._problem.rows.xadj, min(self._num_parts, stream_choice.TABLE_PARTS) + 1
        pieces = np.cumsum(xadj[rows + 1] - xadj[rows] + cells) // PIECE
        cuts = [0, *(np.flatnonzero(np.diff(pieces)) + 1).tolist(), len(rows)]
        for low, high in pairwise(cuts):
            if low < high:
                yield slice(low, high)

    def _neighbours(self, rows: Ints) -> Neighbours:
        graph = self._problem.rows
        degrees = graph.xadj[rows + 1] - graph.xadj[rows]
        at = spans(graph.xadj[rows], degrees)
        owner = np.repeat(np.arange(len(rows)), degrees)
        return Neighbours(owner, self._parts[graph.adjncy[at]], graph.count[at])

    def _delta(self, before: Array, after: Array, weights: Ints) -> Ints:
        """What parts gain and lose by this rank's nodes, int64, shape (parts, constraints)."""
        moved = np.flatnonzero(before != after)
        old, weights = before[moved], weights[moved]
        had = old < self._num_parts
        gained = part_loads.sums(after[moved], weights, self._num_parts)
        return gained - part_loads.sums(old[had], weights[had], self._num_parts)

    def _tell(self, batch: Ints, own: Array) -> None:
        """Give every rank the parts of the batch's nodes; collective."""
        size = self._ranks.size
        counts = [self.order.count(batch, rank, size) for rank in range(size)]
        every = self._ranks.concatenate(own, counts)
        at = 0
        for rank, count in enumerate(counts):
            # One rank's rows after the other's: all together take 8 bytes for each node of the batch.
            rows = self.order.rows(batch, rank, size)
            self._parts[self._starts[rank] + rows] = every[at : at + count]
            at += count

    def _ids(self, local: Ints, rank: int) -> Ints:
        """Homogeneous IDs of a rank's nodes (round robin)."""
        return local * self._ranks.size + rank
