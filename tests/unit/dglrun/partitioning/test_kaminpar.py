"""KaMinPar in one process."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from dglrun.contract import exitcodes
from dglrun.errors import BackendFailedError, BackendMissingError, UnwritableError
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.partitioning import csr, kaminpar, serial, weights
from tests.support.heterographs import QUIET, WITH_NODES, Toy
from tests.support.needs import NEEDS_KAMINPAR


@NEEDS_KAMINPAR
@QUIET
@given(toy=WITH_NODES)
def test_kaminpar_partitions_any_graph(tmp_path_factory: pytest.TempPathFactory, toy: Toy) -> None:
    """Isolated nodes, self-loops, duplicates, empty types, more parts than nodes; the rows' file goes."""
    folder = tmp_path_factory.mktemp("g")
    graph = ChunkedGraph.load(toy.write(folder / "in"))

    parts, _ = serial.kaminpar_parts(graph, folder / "work", toy.parts, 1, weights.Balance(), 1.05)

    assert {ntype: len(found) for ntype, found in parts.items()} == toy.nodes
    assert all((found < toy.parts).all() for found in parts.values())
    assert not list(folder.glob("work/*"))


def test_a_disk_that_is_full_is_named() -> None:
    """With the file and the exit code of what cannot be written."""
    ends = np.array([0, 1, 3, 4])
    rows = csr.Csr(ends, np.array([1, 0, 2, 1], np.int32), np.ones(4, np.int32), np.zeros(3, np.int64))

    with pytest.raises(UnwritableError, match="/dev/full: cannot be written: No space left") as caught:
        kaminpar.write(Path("/dev/full"), rows, np.array([5, 1 << 40, 7]))

    assert caught.value.exit_code == exitcodes.IO


def test_the_rows_are_written_as_parhip_has_them(tmp_path: Path) -> None:
    """Form, nodes, half-edges, offsets in bytes, neighbours, weights: all uint64."""
    ends = np.array([0, 1, 3, 4])
    rows = csr.Csr(ends, np.array([1, 0, 2, 1], np.int32), np.ones(4, np.int32), np.zeros(3, np.int64))

    kaminpar.write(tmp_path / "rows", rows, np.array([5, 1 << 40, 7]))

    found = np.fromfile(tmp_path / "rows", np.uint64)
    first = 8 * (3 + 4)
    offsets = [first, first + 8, first + 24, first + 32]
    assert found.tolist() == [1, 3, 4, *offsets, 1, 0, 2, 1, 5, 1 << 40, 7]


@NEEDS_KAMINPAR
@pytest.mark.parametrize("most", [1 << 33, 1 << 34], ids=["even", "uneven"])
def test_weights_beyond_32_bits_are_balanced(tmp_path: Path, most: int) -> None:
    """A ring whose nodes have more than 2^31 each: the parts are even, and the cut is that of arcs."""
    nodes, parts = 400, 4
    own = np.arange(nodes)
    ring = np.sort(np.stack([(own - 1) % nodes, (own + 1) % nodes], axis=1), axis=1).astype(np.int32)
    ends, ones = np.arange(0, 2 * nodes + 1, 2), np.ones(2 * nodes, np.int32)
    loads = np.random.default_rng(3).integers(1 << 33, most + 1, nodes)
    kaminpar.write(tmp_path / "rows", csr.Csr(ends, ring.ravel(), ones, np.zeros(nodes, np.int64)), loads)

    found = kaminpar.assign(kaminpar.load(), tmp_path / "rows", nodes, parts, 1.05, 1, 1)

    held = [int(loads[found == part].sum()) for part in range(parts)]
    assert max(held) * parts <= 1.05 * sum(held)
    assert np.count_nonzero(found != np.roll(found, 1)) < 10


@NEEDS_KAMINPAR
def test_kaminpar_fails_by_name_on_a_file_that_it_cannot_read(tmp_path: Path) -> None:
    """Its own end, by exception or signal, is an error of the back end."""
    (tmp_path / "cut").write_bytes(b"")

    with pytest.raises(BackendFailedError, match="KaMinPar"):
        kaminpar.assign(kaminpar.load(), tmp_path / "cut", 4, 2, 1.05, 1, 1)


def test_an_absent_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name and that of our extra."""
    monkeypatch.setitem(sys.modules, "kaminpar", None)

    with pytest.raises(BackendMissingError, match=r"pip install 'dgl-operator\[kaminpar\]'"):
        kaminpar.load()


def test_a_small_type_weighs_as_much_as_a_large_one() -> None:
    """And each edge counts for itself."""
    types = np.array([0] * 90 + [1] * 10)
    degrees = np.arange(100)

    found = weights.single(degrees, None, 0, weights.Balance(), types)[:, 0] - degrees

    assert found[types == 0].sum() == 90
    assert found[types == 1].sum() == 50
    one = weights.single(degrees, None, 0, weights.Balance(), types * 0)
    assert (one == weights.single(degrees, None, 0, weights.Balance())).all()
