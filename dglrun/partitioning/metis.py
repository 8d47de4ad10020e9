"""METIS by ctypes: multi-constraint k-way partitioning in one process (library libmetis, Apache-2.0)."""

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from dglrun.arrays import Array
from dglrun.errors import BackendFailedError, BackendMissingError, DataError
from dglrun.formats.assignment import Parts
from dglrun.partitioning import child_call
from dglrun.partitioning.csr import Csr
from dglrun.partitioning.weights import Floats, Weights

SONAMES = ("libmetis.so.5", "libmetis.so")
OPTIONS = 40
OPTION_SEED = 8
METIS_OK = 1
INT32_MAX = (1 << 31) - 1


@dataclass(frozen=True)
class Library:
    """A loaded libmetis.

    Attributes:
        name: File name.
        dll: The library.
        idx: Its integer type, int32 in Debian's build.
    """

    name: str
    dll: ctypes.CDLL
    idx: type[np.signedinteger[Any]]


def load() -> Library:
    """Find libmetis.

    Raises:
        BackendMissingError: it is not installed.
    """
    for name in SONAMES:
        try:
            dll = ctypes.CDLL(name)
        except OSError:
            continue
        return Library(name, dll, integer_width(dll))
    raise BackendMissingError(
        "back end metis: libmetis.so.5 was not found; install it (Debian: apt-get install libmetis5)"
    )


def integer_width(dll: ctypes.CDLL) -> type[np.signedinteger[Any]]:
    """METIS fills the 40 options with -1: the bytes it touches tell the width of its integers.

    A library without this function (PT-Scotch's ParMETIS layer) is taken for Debian's 32-bit build.
    """
    if not hasattr(dll, "METIS_SetDefaultOptions"):
        return np.int32
    options = np.zeros(OPTIONS, np.int64)
    dll.METIS_SetDefaultOptions(options.ctypes.data_as(ctypes.c_void_p))
    return np.int64 if options[-1] == -1 else np.int32


def assign(lib: Library, graph: Csr, weights: Weights, bounds: Floats, num_parts: int, seed: int) -> Parts:
    """Partition a whole graph, in a child process that a signal to this one ends.

    METIS_PartGraphKway of the METIS 5.1.0 manual; the method is that of Karypis and Kumar, "Multilevel
    Algorithms for Multi-Constraint Graph Partitioning" (SC 1998). Edges have no weights.

    Args:
        lib: The library.
        graph: Rows of all nodes.
        weights: int64, shape (nodes, constraints); no column is all 0.
        bounds: Load allowed over mean load for each constraint, float32, shape (constraints,).
        num_parts: Parts.
        seed: Seed of METIS.

    Returns:
        Part of each node, uint16, shape (nodes,).

    Raises:
        DataError: more half-edges or weight than METIS can count.
        BackendFailedError: METIS returned an error, or was killed.
    """
    nodes = len(graph.xadj) - 1
    if num_parts == 1 or nodes <= num_parts:  # METIS divides by zero; each node alone is as even as can be
        return (np.arange(nodes) % num_parts).astype(np.uint16)
    _refuse_overflow(lib, int(graph.xadj[-1]), weights)
    part, cut = child_call.shared_array(nodes, lib.idx), np.zeros(1, lib.idx)
    options = np.full(OPTIONS, -1, lib.idx)
    lib.dll.METIS_SetDefaultOptions(_at(options))
    options[OPTION_SEED] = seed
    xadj, adjncy = graph.xadj.astype(lib.idx), graph.adjncy.astype(lib.idx, copy=False)
    vwgt = np.ascontiguousarray(weights, lib.idx)
    numbers = {
        name: np.array([value], lib.idx)
        for name, value in (("nodes", nodes), ("columns", weights.shape[1]), ("parts", num_parts))
    }
    arguments = (
        _at(numbers["nodes"]), _at(numbers["columns"]), _at(xadj), _at(adjncy), _at(vwgt), None, None,
        _at(numbers["parts"]), None, _at(bounds), _at(options), _at(cut), _at(part),
    )  # fmt: skip
    rc = child_call.call("METIS", lambda: int(lib.dll.METIS_PartGraphKway(*arguments)))
    if rc != METIS_OK:
        raise BackendFailedError(f"METIS_PartGraphKway returned {rc} for {nodes} nodes in {num_parts} parts")
    return part.astype(np.uint16)


def _at(array: Array) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


def _refuse_overflow(lib: Library, half_edges: int, weights: Weights) -> None:
    if lib.idx is np.int32 and max(half_edges, int(weights.sum(axis=0).max())) > INT32_MAX:
        raise DataError(
            f"{lib.name} counts in 32 bits, at most {INT32_MAX} half-edges (twice the edges) or edges in "
            f"all; the graph has {half_edges}. Take a distributed back end or a 64-bit libmetis"
        )
