"""ParMETIS by ctypes: distributed multi-constraint k-way partitioning.

ParMETIS is not free software and is never part of this project: whoever accepts its licence installs
the library (Debian's non-free libparmetis4.0), and this module finds it.
"""

import ctypes

import numpy as np

from dglrun.arrays import NDArray
from dglrun.errors import BackendFailedError
from dglrun.mpi.collectives import MpiRanks
from dglrun.partitioning import metis
from dglrun.partitioning.distributed import backend as problems
from dglrun.partitioning.distributed import libraries
from dglrun.partitioning.distributed.ctypes_mpi import at, comm_pointer

WEIGHTS_ON_VERTICES = 2
OK = 1


class ParMetis:
    """The loaded library."""

    name = "parmetis"
    single = False

    def __init__(self) -> None:
        self.library, self._dll = libraries.load(self.name)
        self._idx = metis.integer_width(self._dll)

    def partition(self, ranks: MpiRanks, problem: problems.PartitionProblem) -> NDArray[np.int32]:
        """See `Backend.partition`: int32, shape (rows,); DataError only of a library with 32-bit numbers.

        ParMETIS_V3_PartKway of the ParMETIS 4.0 manual, with one weight for each constraint; the method is
        that of Schloegel, Karypis and Kumar, "Parallel Multilevel Algorithms for Multi-constraint Graph
        Partitioning" (Euro-Par 2000).
        """
        idx, rows = self._idx, problem.rows
        if idx is np.int32:
            problems.refuse_overflow(ranks, self.name, problem)
        graph = [
            np.ascontiguousarray(a, idx) for a in (problem.starts, rows.xadj, rows.adjncy, problem.weights)
        ]
        numbers = [
            np.array([n], idx) for n in (WEIGHTS_ON_VERTICES, 0, len(problem.bounds), problem.num_parts)
        ]
        targets = np.full(len(problem.bounds) * problem.num_parts, 1 / problem.num_parts, np.float32)
        options, cut = np.array([1, 0, problem.seed], idx), np.zeros(1, idx)
        part, handle = np.zeros(len(rows.xadj) - 1, idx), comm_pointer(ranks.comm)
        rc = self._dll.ParMETIS_V3_PartKway(
            *map(at, graph), None, *map(at, numbers), at(targets), at(problem.bounds), at(options), at(cut),
            at(part), ctypes.byref(handle),
        )  # fmt: skip
        if rc != OK:
            raise BackendFailedError(f"ParMETIS_V3_PartKway returned {rc} on rank {ranks.rank}")
        return part.astype(np.int32)
