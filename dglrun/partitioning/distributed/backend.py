"""What a distributed back end is asked, and the interface they share."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dglrun.arrays import Ints, NDArray
from dglrun.errors import DataError
from dglrun.mpi.collectives import MpiRanks, add_up
from dglrun.partitioning.csr import Csr
from dglrun.partitioning.weights import Floats, Weights

INT32_MAX = (1 << 31) - 1


@dataclass(frozen=True)
class PartitionProblem:
    """One rank's share of a graph to partition.

    Attributes:
        starts: First row of each rank and, last, the number of rows; int64, shape (ranks + 1,).
        rows: This rank's rows.
        weights: Vertex weights, int64, shape (rows, constraints).
        bounds: Load allowed in a part over the mean, float32, shape (constraints,).
        num_parts: Parts.
        seed: Seed of the back end.
    """

    starts: Ints
    rows: Csr
    weights: Weights
    bounds: Floats
    num_parts: int
    seed: int


class Backend(Protocol):
    """A distributed partitioner.

    Attributes:
        name: Its name for users.
        library: File name of the library that was loaded.
        single: Whether it takes one weight only.
    """

    name: str
    library: str
    single: bool

    def partition(self, ranks: MpiRanks, problem: PartitionProblem) -> NDArray[np.int32]:
        """Partition the graph; collective.

        Args:
            ranks: The ranks that own nodes; each has a row.
            problem: This rank's share.

        Returns:
            Part of each row of this rank, int32, shape (rows,).

        Raises:
            DataError: the graph overflows the library's numbers.
            BackendFailedError: the library failed.
        """
        ...


def refuse_overflow(ranks: MpiRanks, name: str, problem: PartitionProblem) -> None:
    """Stop before a library with 32-bit counters overflows.

    Raises:
        DataError: too many half-edges on a rank, or weight in all.
    """
    largest = max(int(problem.rows.xadj[-1]), int(problem.starts[-1]))
    weight = int(add_up(ranks, problem.weights.sum(axis=0)).max())
    if max(worst := max(ranks.gather(largest)), weight) > INT32_MAX:
        raise DataError(
            f"back end {name} counts in 32 bits, at most {INT32_MAX}; here a rank has {worst} half-edges and "
            f"the weights sum to {weight}: take more ranks, or leave edges out of --balance"
        )
