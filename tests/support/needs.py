"""What some tests need of the machine, as marks that skip them where it is not there."""

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys

import pytest

from dglrun.errors import BackendMissingError
from dglrun.partitioning import metis
from dglrun.partitioning.distributed import libraries


def has_metis() -> bool:
    try:
        metis.load()
    except BackendMissingError:
        return False
    return True


NEEDS_METIS = pytest.mark.skipif(not has_metis(), reason="libmetis is not installed (Debian: libmetis5)")


NEEDS_KAMINPAR = pytest.mark.skipif(importlib.util.find_spec("kaminpar") is None, reason="no kaminpar")
NEEDS_DUCKDB = pytest.mark.skipif(importlib.util.find_spec("duckdb") is None, reason="no duckdb")


def mpi_here() -> bool:
    found = subprocess.run((sys.executable, "-c", "import mpi4py"), capture_output=True, check=False)
    return shutil.which("mpirun") is not None and found.returncode == 0


def library_here(backend: str) -> bool:
    try:
        return isinstance(libraries.load(backend)[1], ctypes.CDLL)
    except BackendMissingError:
        return False


LICENCE = "DGL_OPERATOR_ACCEPT_PARMETIS_LICENSE"
NEEDS_PARMETIS = pytest.mark.skipif(
    os.environ.get(LICENCE) != "yes", reason=f"skipped for its licence ({LICENCE} is not yes)"
)
NEEDS_ZOLTAN = pytest.mark.skipif(not library_here("zoltan"), reason="no libtrilinos_zoltan")
NEEDS_MPI = pytest.mark.skipif(not mpi_here(), reason="no mpirun or no mpi4py")
