"""The program pm_dglpart, of which there are two, by stand-ins."""

from pathlib import Path

import numpy as np
import pytest

from dglrun.formats import assignment
from tests.support.needs import NEEDS_MPI
from tests.unit.dglrun.partitioning.builders import a_pm_dglpart, partition, two_communities


@pytest.mark.mpi
@NEEDS_MPI
@pytest.mark.parametrize("arguments", [3, 5], ids=["pieces", "lists"])
def test_either_program_named_pm_dglpart_is_driven(tmp_path: Path, arguments: int) -> None:
    """A stand-in with the files and the usage line of each of the two; the real one may not be shipped."""
    graph = two_communities(tmp_path / "in")
    (tmp_path / "bin").mkdir()
    path = str(a_pm_dglpart(tmp_path / "bin", arguments))
    flags = ("--mode", "ParMETIS", "--backend", "pm_dglpart", "--num-parts", "2", "--ranks", "2")
    (tmp_path / "out/.dglrun-pm_dglpart-killed").mkdir(parents=True)

    ended = partition(tmp_path / "in", tmp_path / "out", *flags, path=path)

    assert ended.returncode == 0, ended.stderr
    meta, parts = assignment.load(tmp_path / "out", graph)
    assert meta.method == "pm_dglpart"
    assert np.concatenate(list(parts.values())).tolist() == [node % 2 for node in range(600)]
    assert not list((tmp_path / "out").glob(".dglrun*"))


@pytest.mark.mpi
@NEEDS_MPI
def test_a_work_folder_keeps_what_was_in_it(tmp_path: Path) -> None:
    """Only a folder of our own inside of it is removed."""
    two_communities(tmp_path / "in")
    path = str(a_pm_dglpart(tmp_path, 3))
    (tmp_path / "work").mkdir()
    (tmp_path / "work/mine.txt").write_text("kept")
    flags = ("--mode", "ParMETIS", "--backend", "pm_dglpart", "--num-parts", "2", "--ranks", "2")
    work = ("--work-dir", str(tmp_path / "work"))

    ended = partition(tmp_path / "in", tmp_path / "out", *flags, *work, path=path)

    assert ended.returncode == 0, ended.stderr
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["mine.txt"]


@pytest.mark.mpi
@NEEDS_MPI
def test_a_program_that_ends_well_without_a_result_has_failed(tmp_path: Path) -> None:
    """Both real programs end with 0 after a usage line."""
    two_communities(tmp_path / "in")
    program = tmp_path / "pm_dglpart"
    program.write_text("#!/bin/sh\necho usage\n")
    program.chmod(0o755)
    flags = ("--mode", "ParMETIS", "--backend", "pm_dglpart", "--num-parts", "2", "--ranks", "2")

    ended = partition(tmp_path / "in", tmp_path / "out", *flags, path=str(tmp_path))

    assert ended.returncode == 70
    assert "pm_dglpart ended with 0 but left no whole result" in ended.stderr
