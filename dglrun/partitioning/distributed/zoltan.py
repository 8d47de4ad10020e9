"""Zoltan's parallel hypergraph partitioner on graphs (GRAPH_PACKAGE=PHG), by ctypes.

The free back end (BSD-3-Clause, Debian main). It takes one weight for each node; callbacks hand over
the graph, each for all nodes of the rank at once.
"""

import ctypes as C  # noqa: N812 - the name by which ctypes code is read
from typing import Any

import numpy as np

from dglrun.arrays import Ints, NDArray, spans
from dglrun.errors import BackendFailedError
from dglrun.mpi.collectives import MpiRanks
from dglrun.partitioning.distributed import backend as problems
from dglrun.partitioning.distributed import libraries
from dglrun.partitioning.distributed.ctypes_mpi import comm_pointer, view

OK, WARN = 0, 1
PTR, INT = C.c_void_p, C.c_int
NUM_OBJ = C.CFUNCTYPE(INT, PTR, C.POINTER(INT))
OBJ_LIST = C.CFUNCTYPE(None, PTR, INT, INT, PTR, PTR, INT, PTR, C.POINTER(INT))
NUM_EDGES = C.CFUNCTYPE(None, PTR, INT, INT, INT, PTR, PTR, PTR, C.POINTER(INT))
EDGE_LIST = C.CFUNCTYPE(None, PTR, INT, INT, INT, PTR, PTR, PTR, PTR, PTR, INT, PTR, C.POINTER(INT))


class Zoltan:
    """The loaded library."""

    name = "zoltan"
    single = True

    def __init__(self) -> None:
        self.library, self._dll = libraries.load(self.name)
        width = self._dll.Zoltan_get_global_id_type(C.byref(C.c_char_p()))
        self._ids = np.uint32 if width == 4 else np.uint64

    def partition(self, ranks: MpiRanks, problem: problems.PartitionProblem) -> NDArray[np.int32]:
        """See `Backend.partition`: int32, shape (rows,); a node without a part counts as a failure.

        Zoltan_LB_Partition of the Zoltan User's Guide, with its "General Zoltan Query Functions"; the method
        is that of Devine et al., "Parallel Hypergraph Partitioning for Scientific Computing" (IPDPS 2006).
        """
        problems.refuse_overflow(ranks, self.name, problem)
        version = C.c_float()
        self._dll.Zoltan_Initialize(0, None, C.byref(version))
        pointer = comm_pointer(ranks.comm)
        self._dll.Zoltan_Create.restype, self._dll.Zoltan_Create.argtypes = PTR, [type(pointer)]
        handle = PTR(self._dll.Zoltan_Create(pointer))
        for key, value in _parameters(problem).items():
            self._dll.Zoltan_Set_Param(handle, key.encode(), str(value).encode())
        callbacks = self._callbacks(ranks.rank, problem)
        self._dll.Zoltan_Set_Num_Obj_Fn(handle, callbacks[0], None)
        self._dll.Zoltan_Set_Obj_List_Fn(handle, callbacks[1], None)
        self._dll.Zoltan_Set_Num_Edges_Multi_Fn(handle, callbacks[2], None)
        self._dll.Zoltan_Set_Edge_List_Multi_Fn(handle, callbacks[3], None)
        return self._run(handle, ranks.rank, problem)

    def _run(self, handle: Any, rank: int, problem: problems.PartitionProblem) -> NDArray[np.int32]:
        ints, lists = [INT() for _ in range(5)], [PTR() for _ in range(8)]
        changes, gid_entries, lid_entries, imports, exports = map(C.byref, ints)
        rc = self._dll.Zoltan_LB_Partition(
            handle, changes, gid_entries, lid_entries, imports, *map(C.byref, lists[:4]), exports,
            *map(C.byref, lists[4:]),
        )  # fmt: skip
        if rc not in (OK, WARN):
            raise BackendFailedError(f"Zoltan_LB_Partition returned {rc} on rank {rank}")
        part, total = np.full(len(problem.rows.xadj) - 1, -1, np.int32), ints[4].value
        nodes = view(lists[4].value, total, self._ids).astype(np.int64) - problem.starts[rank]
        part[nodes] = view(lists[7].value, total, np.int32)
        if (part < 0).any():
            raise BackendFailedError(f"Zoltan left {np.count_nonzero(part < 0)} nodes of rank {rank} out")
        return part

    def _callbacks(self, rank: int, problem: problems.PartitionProblem) -> tuple[Any, Any, Any, Any]:
        """The four queries; ctypes must not lose them before the library is done."""
        ids, rows, low = self._ids, problem.rows, int(problem.starts[rank])
        count = len(rows.xadj) - 1
        degrees = np.diff(rows.xadj).astype(np.int32)

        @NUM_OBJ  # type: ignore[untyped-decorator]
        def num_obj(_data: Any, err: Any) -> int:
            err[0] = OK
            return count

        @OBJ_LIST  # type: ignore[untyped-decorator]
        def obj_list(
            _data: Any, _g: int, lids: int, gid: int, lid: int, wdim: int, wgt: int, err: Any
        ) -> None:
            view(gid, count, ids)[:] = np.arange(low, low + count)
            view(lid, count * lids, ids)[:] = np.arange(count)
            view(wgt, count * wdim, np.float32)[:] = problem.weights[:, 0]
            err[0] = OK

        @NUM_EDGES  # type: ignore[untyped-decorator]
        def num_edges(
            _data: Any, _g: int, _l: int, wanted: int, gid: int, _lid: int, out: int, err: Any
        ) -> None:
            view(out, wanted, np.int32)[:] = degrees[view(gid, wanted, ids).astype(np.int64) - low]
            err[0] = OK

        @EDGE_LIST  # type: ignore[untyped-decorator]
        def edge_list(
            _data: Any, _g: int, _l: int, wanted: int, gid: int, _lid: int, _num: int, neighbours: int,
            owners: int, _wdim: int, _wgt: int, err: Any,
        ) -> None:  # fmt: skip
            near = _neighbours(rows.xadj, rows.adjncy, view(gid, wanted, ids).astype(np.int64) - low)
            view(neighbours, len(near), ids)[:] = near
            view(owners, len(near), np.int32)[:] = np.searchsorted(problem.starts[1:-1], near, side="right")
            err[0] = OK

        return num_obj, obj_list, num_edges, edge_list


def _parameters(problem: problems.PartitionProblem) -> dict[str, object]:
    return {
        "LB_METHOD": "GRAPH",
        "GRAPH_PACKAGE": "PHG",
        "LB_APPROACH": "PARTITION",
        "NUM_GLOBAL_PARTS": problem.num_parts,
        "NUM_GID_ENTRIES": 1,
        "NUM_LID_ENTRIES": 1,
        "RETURN_LISTS": "PARTS",
        "OBJ_WEIGHT_DIM": 1,
        "EDGE_WEIGHT_DIM": 0,
        "IMBALANCE_TOL": float(problem.bounds[0]),
        "SEED": problem.seed,
        "DEBUG_LEVEL": 0,
        "CHECK_GRAPH": 0,
    }


def _neighbours(xadj: Ints, adjncy: NDArray[np.int32], local: Ints) -> NDArray[np.int32]:
    """Rows `local` one after another; Zoltan asks for all in order, which needs no copy."""
    if len(local) == len(xadj) - 1 and (np.diff(local) == 1).all():
        return adjncy
    return np.asarray(adjncy[spans(xadj[local], xadj[local + 1] - xadj[local])], np.int32)
