"""The program pm_dglpart, of which there are two, by stand-ins."""

import sys
from pathlib import Path

import numpy as np
import pytest

from dglrun.formats import assignment
from tests.support.needs import NEEDS_MPI
from tests.unit.dglrun.partitioning.builders import partition, two_communities

FAKE = """#!{python}
import glob, os, sys
if len(sys.argv) != {arguments}:
    print("usage:", sys.argv[0]); sys.exit(0)
if int(os.environ["OMPI_COMM_WORLD_RANK"]):
    sys.exit(0)
names = ["graph_nodes.txt"] if {arguments} == 3 else [line.split()[0] for line in open(sys.argv[3])]
nodes = [line.split() for name in names for line in open(name)]
parts = 2
if {arguments} == 3:
    for part in range(parts):
        with open(f"p{{part:03}}-graph_nodes.txt", "w") as file:
            file.writelines(f"{{n}} {{' '.join(w)}}\\n" for n, w in enumerate(nodes) if n % parts == part)
else:
    assert len(open(sys.argv[3]).readlines()) == len(open(sys.argv[4]).readlines()) == 2
    with open("graph_part.2", "w") as file:
        file.writelines(f"{{n}} {{n % parts}}\\n" for n in reversed(range(len(nodes))))
"""


@pytest.mark.mpi
@NEEDS_MPI
@pytest.mark.parametrize("arguments", [3, 5], ids=["pieces", "lists"])
def test_either_program_named_pm_dglpart_is_driven(tmp_path: Path, arguments: int) -> None:
    """A stand-in with the files and the usage line of each of the two; the real one may not be shipped."""
    graph = two_communities(tmp_path / "in")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "pm_dglpart"
    program.write_text(FAKE.format(python=sys.executable, arguments=arguments))
    program.chmod(0o755)
    flags = ("--mode", "ParMETIS", "--backend", "pm_dglpart", "--num-parts", "2", "--ranks", "2")
    (tmp_path / "out/.dglrun-pm_dglpart-killed").mkdir(parents=True)

    ended = partition(tmp_path / "in", tmp_path / "out", *flags, path=str(program.parent))

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
    program = tmp_path / "pm_dglpart"
    program.write_text(FAKE.format(python=sys.executable, arguments=3))
    program.chmod(0o755)
    (tmp_path / "work").mkdir()
    (tmp_path / "work/mine.txt").write_text("kept")
    flags = ("--mode", "ParMETIS", "--backend", "pm_dglpart", "--num-parts", "2", "--ranks", "2")

    ended = partition(
        tmp_path / "in", tmp_path / "out", *flags, "--work-dir", str(tmp_path / "work"), path=str(tmp_path)
    )

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
