"""What holds for each unit test."""

import shutil
import tempfile
from collections.abc import Iterator

import pytest

from tests.support import leftovers


@pytest.fixture(scope="session")
def mpi_folder() -> Iterator[str]:
    """Temporary files of MPI, for one process of tests; its path is short, since sockets lie in it."""
    folder = tempfile.mkdtemp(prefix="mpi-")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def own_folder_of_mpi(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mpirun removes TMPDIR/ompi.HOST.UID, which one of another process may just have found there."""
    if request.node.get_closest_marker("mpi"):
        monkeypatch.setenv("TMPDIR", request.getfixturevalue("mpi_folder"))


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No thread, process or socket outlives the test that has started it: another test would meet it."""
    with leftovers.nothing_left():
        yield
