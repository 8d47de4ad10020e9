"""What each rank of the partition job runs."""

import argparse
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dglrun.arrays import Ints
from dglrun.errors import BackendFailedError, DataError
from dglrun.formats import writable
from dglrun.formats.assignment import AssignmentMeta, Parts
from dglrun.formats.chunked import check
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.id_map import IdMap
from dglrun.mpi import read_from_storage, shared_folder
from dglrun.mpi.collectives import AgreedError, MpiRanks, add_up, run_on_all_ranks, say_once
from dglrun.mpi.shared_folder import Members
from dglrun.partitioning import ON_WORKERS, training_nodes, weights
from dglrun.partitioning.csr import MAX_NODES, Csr
from dglrun.partitioning.distributed import (
    distributed_csr,
    edge_cut,
    gather_assignment,
    parmetis,
    streaming,
    training_mask,
    without_edges,
    zoltan,
)
from dglrun.partitioning.distributed.backend import Backend, PartitionProblem
from dglrun.partitioning.distributed.vertex_distribution import CyclicDistribution

BY_EDGES: dict[str, Callable[[], Backend]] = {
    "zoltan": zoltan.Zoltan,
    "parmetis": parmetis.ParMetis,
    "streaming": streaming.Streaming,
}
"""Back ends that get the graph's rows."""
WITHOUT_EDGES = tuple(name for name in ON_WORKERS if name not in BY_EDGES)
"""Those that need none."""
BLOCK_ROWS = 1 << 19


def main(ranks: MpiRanks, args: argparse.Namespace) -> int:
    """Partition a chunked graph; called by every rank with the same arguments.

    Args:
        ranks: All ranks.
        args: From dglrun.commands.partition_rank.

    Returns:
        0; every error ends all ranks with its exit code, the message comes from one of them.
    """
    try:
        run(ranks, args)
    except AgreedError as error:
        say_once(ranks, f"dglrun partition: {error}")
        return error.exit_code
    except (DataError, BackendFailedError) as error:
        print(f"dglrun partition: {error}", file=sys.stderr, flush=True)
        ranks.abort(error.exit_code)
    return 0


def run(ranks: MpiRanks, args: argparse.Namespace) -> None:
    """Read, partition, measure, write.

    Raises:
        AgreedError: bad input, no such library, or an output that cannot be written, on any rank.
        DataError: the graph overflows the back end's numbers.
        BackendFailedError: the library failed.
    """
    run_on_all_ranks(ranks, lambda: writable.require_folder(args.out_dir))
    backend = None if args.backend in WITHOUT_EDGES else run_on_all_ranks(ranks, BY_EDGES[args.backend])
    with shared_folder.reserved(ranks, args.out_dir) as members:
        _run(ranks, args, backend, members)


def _run(ranks: MpiRanks, args: argparse.Namespace, backend: Backend | None, members: Members) -> None:
    clock = _Clock()
    graph = run_on_all_ranks(ranks, lambda: _graph(args, MAX_NODES if backend else None))
    nodes = CyclicDistribution.of(sum(graph.num_nodes), ranks.size)
    if backend is None:
        parts, details = _without_edges(ranks, args, graph, nodes, clock)
    else:
        parts, details = _by_edges(ranks, args, backend, (graph, nodes), clock)
    meta = AssignmentMeta(args.num_parts, args.backend, details)
    gather_assignment.write(ranks, args.out_dir, graph, nodes, parts, meta, members)
    clock.lap("write")
    _tell(ranks, clock)


def _without_edges(
    ranks: MpiRanks, args: argparse.Namespace, graph: ChunkedGraph, nodes: CyclicDistribution, clock: "_Clock"
) -> tuple[Parts, dict[str, Any]]:
    """Parts of this rank's nodes, and the details for the metadata."""
    details: dict[str, Any] = {"mpi": ranks.library, "ranks": ranks.size}
    note = weights.without_effect(args.backend, weights.Balance.parse(args.balance))
    if note and ranks.rank == 0:
        print(note, file=sys.stderr, flush=True)
    if args.backend == "random":
        parts = without_edges.random_parts(ranks, graph, nodes, args.num_parts, args.seed)
        details["seed"] = args.seed
    else:
        parts = without_edges.brought(ranks, graph, nodes, args.num_parts, args.assignment)
    clock.lap("partition")
    quality = edge_cut.measure_by_input(ranks, graph, nodes, parts, args.num_parts, args.block_rows)
    clock.lap("score")
    return parts, details | quality.details(graph.ntypes)


def _by_edges(
    ranks: MpiRanks,
    args: argparse.Namespace,
    backend: Backend,
    source: tuple[ChunkedGraph, CyclicDistribution],
    clock: "_Clock",
) -> tuple[Parts, dict[str, Any]]:
    """Parts of this rank's nodes by a back end that gets the rows, and the details for the metadata."""
    graph, nodes = source
    balance = weights.Balance.parse(args.balance)
    train = training_mask.of_own(ranks, graph, nodes) if balance.train else None
    rows = distributed_csr.rows(ranks, graph, nodes, args.block_rows)
    clock.lap("load")
    owners = ranks.split(0 if ranks.rank < nodes.owners else 1)
    parts, details = np.zeros(0, np.uint16), {}
    if ranks.rank < nodes.owners:
        types = IdMap.of(graph.ntypes, graph.num_nodes).to_typed(nodes.ids(ranks.rank))[0]
        problem = pose(owners, backend, graph, Own(rows, types, train), args)
        parts = _partition(owners, backend, problem)
        clock.lap("partition")
        shape = len(graph.ntypes), args.num_parts
        details = edge_cut.measure(owners, nodes.starts, rows, types, parts, shape).details(graph.ntypes)
        clock.lap("score")
    return parts, _details(backend, ranks, args) | ranks.gather(details)[0]


def _graph(args: argparse.Namespace, limit: int | None) -> ChunkedGraph:
    graph = ChunkedGraph.load(args.in_dir, args.metadata_filename)
    if limit is not None and not 0 < (nodes := sum(graph.num_nodes)) < limit:
        raise DataError(f"{graph.name}: expected 1 to {limit - 1} nodes, got {nodes}")
    check.check_parts(graph, args.num_parts)
    return graph


@dataclass(frozen=True)
class Own:
    """What a rank knows of its nodes.

    Attributes:
        rows: Their rows.
        types: Their type IDs, int64, shape (rows,).
        train: Which are training nodes, bool, shape (rows,); None where they are not balanced.
    """

    rows: Csr
    types: Ints
    train: training_nodes.Mask | None


def pose(
    ranks: MpiRanks, backend: Backend, graph: ChunkedGraph, own: Own, args: argparse.Namespace
) -> PartitionProblem:
    """The problem with its weights: columns and bounds are agreed on by all ranks; collective.

    Args:
        ranks: The ranks that own nodes.
        backend: Who will solve it.
        graph: The graph.
        own: This rank's nodes.
        args: From dglrun.commands.partition_rank.
    """
    balance = weights.Balance.parse(args.balance)
    in_degree = own.rows.in_degree
    if backend.single:
        training = sum(ranks.gather(0 if own.train is None else int(np.count_nonzero(own.train))))
        share = weights.training_share(sum(graph.num_nodes), sum(graph.num_edges), training, balance)
        loads = weights.single(in_degree, own.train, share, balance)
    else:
        columns = weights.type_columns(graph.num_nodes, balance)
        loads = weights.multi(columns, own.types, in_degree, own.train, balance)
    totals = add_up(ranks, loads.sum(axis=0))
    largest = np.max(ranks.gather(loads.max(axis=0, initial=0)), axis=0)
    bounds = weights.tolerances(totals, largest, args.num_parts, args.imbalance)
    starts = CyclicDistribution.of(sum(graph.num_nodes), ranks.size).starts
    loads = weights.without_empty(loads, totals)
    return PartitionProblem(starts, own.rows, loads, bounds[totals > 0], args.num_parts, args.seed)


def _partition(ranks: MpiRanks, backend: Backend, problem: PartitionProblem) -> Parts:
    """Call the back end, unless there is nothing to decide: libraries divide by zero where no edge is."""
    rows = len(problem.rows.xadj) - 1
    if problem.num_parts == 1 or sum(ranks.gather(len(problem.rows.adjncy))) == 0:
        first = int(problem.starts[ranks.rank])
        return (np.arange(first, first + rows) % problem.num_parts).astype(np.uint16)
    return backend.partition(ranks, problem).astype(np.uint16)


def _details(backend: Backend, ranks: MpiRanks, args: argparse.Namespace) -> dict[str, Any]:
    balance = sorted(set(args.balance.split(",")))
    return {
        "library": backend.library,
        "mpi": ranks.library,
        "ranks": ranks.size,
        "seed": args.seed,
        "balance": [word for word in balance if not (backend.single and word == "types")],
        "imbalance": args.imbalance,
    }


class _Clock:
    """Seconds of each stage on this rank."""

    def __init__(self) -> None:
        self.laps: dict[str, tuple[float, float]] = {}
        self._last = time.monotonic(), time.process_time()

    def lap(self, name: str) -> None:
        now = time.monotonic(), time.process_time()
        self.laps[name] = now[0] - self._last[0], now[1] - self._last[1]
        self._last = now


def _tell(ranks: MpiRanks, clock: _Clock) -> None:
    """One line for each stage: wall seconds of the slowest rank, CPU seconds of all; and the peak memory."""
    every = ranks.gather(clock.laps)
    peaks = ranks.gather(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    for name in clock.laps if ranks.rank == 0 else ():
        laps = [laps[name] for laps in every if name in laps]
        wall, cpu = max(lap[0] for lap in laps), sum(lap[1] for lap in laps)
        print(f"dglrun partition: {name} {wall:.2f} s, {cpu:.2f} CPU s on {len(laps)} ranks", flush=True)
    told = read_from_storage.line(ranks)
    if ranks.rank == 0:
        if told:
            print(f"dglrun partition: {told}", flush=True)
        print(f"dglrun partition: peak memory {max(peaks):.0f} MiB on the largest rank", flush=True)
