"""ctypes and MPI: addresses of arrays, communicators."""

import ctypes
from typing import Any

import numpy as np

from dglrun.arrays import Array


def at(array: Array) -> ctypes.c_void_p:
    """The address of the first item of an array of any dtype and shape; C reads it as contiguous."""
    return array.ctypes.data_as(ctypes.c_void_p)


def comm_pointer(comm: Any) -> Any:
    """The communicator as C has it: a pointer in Open MPI, an int in MPICH; mpi4py knows its size."""
    # An import begins MPI, and leaves variables by which each mpirun that this process starts would fail.
    from mpi4py import MPI  # noqa: PLC0415

    wide = MPI._sizeof(MPI.Comm) == ctypes.sizeof(ctypes.c_void_p)
    return (ctypes.c_void_p if wide else ctypes.c_int).from_address(MPI._addressof(comm))


def view(address: int | None, count: int, dtype: Any) -> Array:
    """A writable view of `count` items that a library owns: this dtype, shape (count,).

    It is valid as long as the library keeps the memory. Without an address or items: a new empty array.
    """
    if not address or count == 0:
        return np.empty(0, dtype)
    memory = (ctypes.c_char * (count * np.dtype(dtype).itemsize)).from_address(address)
    return np.asarray(np.frombuffer(memoryview(memory), dtype))
