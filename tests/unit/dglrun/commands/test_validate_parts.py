"""Workers check their own parts: nobody has the whole folder, yet nothing wrong goes unseen."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dglrun.commands import validate_parts
from dglrun.errors import DataError
from dglrun.formats.dgl.folder import load_folder
from dglrun.formats.dgl.graphs import read_graph
from dglrun.mpi.collectives import SingleRank
from tests.support.heterographs import a_toy
from tests.support.needs import NEEDS_MPI
from tests.unit.dglrun.verify.test_verify import a_partition, poke

ROOT = Path(__file__).parents[4]


def flags(json_path: Path, numbers: Path, verify: str = "auto", limit: int = 1 << 30) -> list[str]:
    """The command line for a partition of `a_partition`."""
    source = json_path.parents[1] / "in"
    folders = ("--in-dir", str(source), "--partitions-dir", str(source / "parts"), "--json", str(numbers))
    return [str(json_path), *folders, "--verify", verify, "--limit", str(limit)]


class OneOf(SingleRank):
    """Rank `rank` of a run whose other ranks are silent: it sees just its own part."""

    def __init__(self, rank: int) -> None:
        self.rank = rank


def problem_of(json_path: Path, part: int) -> str:
    """What rank `part` has to say, alone with its own part."""
    for other in (json_path.parent / f"part{n}" for n in range(8) if n != part):
        shutil.rmtree(other, ignore_errors=True)
    try:
        validate_parts.run(
            validate_parts._arguments(flags(json_path, json_path.parent / "q.json")), OneOf(part)
        )
    except DataError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("part", [0, 1, 2])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_right_part_holds_without_the_others(tmp_path: Path, part: int, seed: int) -> None:
    """Other parts' files are on other disks."""
    json_path = a_partition(tmp_path, a_toy(seed, (30, 20), (90, 60), 3))

    assert problem_of(json_path, part) == ""


@pytest.mark.dgl
def test_dgls_loader_is_asked_for_the_ranks_own_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It loads a part without the others; what it refuses is refused."""
    json_path = a_partition(tmp_path, a_toy(1, (30, 20), (90, 60), 3))
    shutil.rmtree(json_path.parent / "part0")
    args = validate_parts._arguments([*flags(json_path, tmp_path / "q.json"), "--dgl"])
    validate_parts.run(args, OneOf(1))

    monkeypatch.setattr(sys, "executable", "/bin/false")

    with pytest.raises(DataError, match=r"part 1: DGL's loader refuses it \(exit code 1\)"):
        validate_parts.run(args, OneOf(1))


@pytest.mark.parametrize("name", ["node_feat.dgl", "edge_feat.dgl"])
def test_a_changed_feature_is_told_by_the_rank_that_has_it(tmp_path: Path, name: str) -> None:
    """The last byte of the last feature is another."""
    json_path = a_partition(tmp_path, a_toy(1, (30, 20), (90, 60), 3))
    path = json_path.parent / "part1" / name
    data = bytearray(path.read_bytes())
    data[-1] ^= 0x41
    path.write_bytes(data)

    assert problem_of(json_path, 1)


def test_a_changed_edge_is_told_by_the_rank_that_has_it(tmp_path: Path) -> None:
    """An edge begins at another node of the right type, which a part by itself cannot know."""
    json_path = a_partition(tmp_path, a_toy(1, (30,), (90,), 3))
    src = read_graph(json_path.parent / "part1/graph.dgl").formats["coo"]["src"]
    before = int(src.rows(0, 1)[0])
    poke(src, 0, before - 1 if before else 1)

    assert "the partition does not hold" in problem_of(json_path, 1)


def test_a_node_that_the_assignment_gives_to_another_part_is_told(tmp_path: Path) -> None:
    """Sound in itself is not enough: the part is held against the source."""
    json_path = a_partition(tmp_path, a_toy(1, (30, 20), (90, 60), 2))
    assignment = json_path.parents[1] / "in/parts/n0.txt"
    lines = assignment.read_text().split()
    first, second = lines.index("0"), lines.index("1")
    lines[first], lines[second] = "1", "0"
    assignment.write_text("\n".join(lines) + "\n")

    assert "the partition does not hold" in problem_of(json_path, 0)


def test_a_rank_on_the_wrong_worker_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The training takes part i from worker i."""
    json_path = a_partition(tmp_path, a_toy(1, (30, 20), (90, 60), 2))
    monkeypatch.setenv("DGL_OPERATOR_WORKER_INDEX", "1")

    assert "expected rank i on worker i" in problem_of(json_path, 0)


@pytest.mark.mpi
@NEEDS_MPI
@pytest.mark.parametrize(
    ("verify", "share", "verified"), [("auto", 1.0, True), ("auto", 0.9, False), ("never", 1.0, False)]
)
def test_the_ranks_numbers_are_those_of_the_whole_folder(
    tmp_path: Path, verify: str, share: float, verified: bool
) -> None:
    """Rank 0 writes what `dglrun report` says of all parts.

    Whether they are cheap to verify is a matter of all parts together, as every rank reads the whole source.
    """
    json_path = a_partition(tmp_path, a_toy(1, (30, 20), (90, 60), 3))
    folder = load_folder(json_path)
    limit = int(share * sum(validate_parts._size(folder, part) for part in range(3)))
    program = (sys.executable, "-m", "mpi4py", "-m", "dglrun.commands.validate_parts")
    numbers, whole = tmp_path / "q.json", tmp_path / "whole.json"
    mpirun = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "3")

    done = subprocess.run(
        (*mpirun, *program, *flags(json_path, numbers, verify, limit)),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    report = (sys.executable, "-m", "dglrun", "report", str(json_path), "--json", str(whole))
    subprocess.run(report, cwd=ROOT, check=True, capture_output=True)
    assert json.loads(numbers.read_text()) == {**json.loads(whole.read_text()), "verified": verified}
