"""Workers check their own parts: nobody has the whole folder, yet nothing wrong goes unseen."""

import argparse
import json
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from dglrun.arrays import Array
from dglrun.commands import validate_parts
from dglrun.dispatch.pipeline import dispatch
from dglrun.dispatch.source import Options
from dglrun.errors import DataError
from dglrun.formats.dgl.arrays import StoredArray
from dglrun.formats.dgl.folder import load_folder
from dglrun.formats.dgl.graphs import read_graph
from dglrun.formats.dgl.tensors import read_tensors
from dglrun.mpi import source_sums
from dglrun.mpi.collectives import Ranks, SingleRank
from tests.support.commands import run_program
from tests.support.heterographs import Toy, a_toy
from tests.support.needs import NEEDS_MPI
from tests.support.thread_ranks import on_ranks
from tests.unit.dglrun.verify.test_verify import FAULTS, a_partition, poke

ROOT = Path(__file__).parents[4]


def flags(
    json_path: Path, source: Path, numbers: Path, verify: str = "auto", limit: int = 1 << 30
) -> list[str]:
    """The command line for a partition of `a_partition`."""
    folders = ("--in-dir", str(source), "--partitions-dir", str(source / "parts"), "--json", str(numbers))
    return [str(json_path), *folders, "--verify", verify, "--limit", str(limit)]


def on_workers(json_path: Path) -> list[Path]:
    """Give each worker a disk with its own part; returns the JSON of each."""
    found = []
    for part in range(load_folder(json_path).parts):
        disk = json_path.parents[1] / f"worker{part}"
        shutil.copytree(json_path.parent / f"part{part}", disk / f"part{part}")
        for beside in json_path.parent.glob(source_sums.FILENAME):
            shutil.copy(beside, disk)
        found.append(Path(shutil.copy(json_path, disk)))
    return found


def verify_alone(args: argparse.Namespace, ranks: Ranks) -> None:
    """The comparison without what DGL's server needs."""
    validate_parts._verify(args, load_folder(args.part_config), ranks)


def problem_of(
    workers: Sequence[Path],
    *more: str,
    work: Callable[[argparse.Namespace, Ranks], None] = validate_parts.run,
) -> str:
    """What the ranks have to say, all the same."""

    def check(ranks: Ranks) -> str:
        own = workers[ranks.rank]
        wanted = flags(own, own.parents[1] / "in", own.with_name("q.json"))
        try:
            work(validate_parts._arguments([*wanted, *more]), ranks)
        except DataError as error:
            return str(error)
        return ""

    said = on_ranks(len(workers), check)
    assert len(set(said)) == 1, said
    return said[0]


@pytest.mark.parametrize(
    ("verify", "against"), [("auto", "what dispatch read of the source"), ("always", "the source")]
)
def test_the_sums_of_dispatch_stand_for_the_source_unless_all_is_read_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verify: str, against: str
) -> None:
    """It says which; `--verify always` does not take dispatch's word."""
    workers = on_workers(a_partition(tmp_path, a_toy(1, (30, 20), (90, 60), 2), sums=True))

    assert problem_of(workers, "--verify", verify) == ""
    assert f"2 parts: verified against {against} (" in capsys.readouterr().out


@pytest.mark.parametrize(("verify", "times"), [("never", 1), ("auto", 1), ("always", 2)])
def test_edges_are_read_once_to_check_count_and_add_them_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verify: str, times: int
) -> None:
    """Each pass costs: only to name what differs, or without sums of dispatch, are they read again."""
    toy = a_toy(1, (30, 20), (90, 60), 1)
    workers = on_workers(a_partition(tmp_path, toy, sums=True))
    sources = read_graph(workers[0].with_name("part0") / "graph.dgl").formats["coo"]["src"]
    rows: list[int] = []
    read = StoredArray.rows

    def noting(array: StoredArray, start: int, stop: int) -> Array:
        if (array.path, array.offset) == (sources.path, sources.offset):
            rows.append(stop - start)
        return read(array, start, stop)

    monkeypatch.setattr(StoredArray, "rows", noting)

    assert problem_of(workers, "--verify", verify) == ""
    assert sum(rows) == times * sum(map(len, toy.edges.values()))


@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - {"a gap between ranges", "a total"}))
def test_a_fault_is_told_by_the_sums_as_by_the_source(tmp_path: Path, fault: str) -> None:
    """The source is read then, to name the rows."""
    json_path = a_partition(tmp_path, sums=True)
    spoil, message = FAULTS[fault]
    spoil(json_path.parent)

    assert message in problem_of(on_workers(json_path), work=verify_alone)


@pytest.mark.parametrize("parts", [1, 2, 3, 4])
def test_right_parts_hold_on_disks_of_their_own(tmp_path: Path, parts: int) -> None:
    """Other parts' files are on other disks."""
    workers = on_workers(a_partition(tmp_path, a_toy(parts, (30, 20), (90, 60), parts)))

    assert problem_of(workers) == ""
    assert json.loads(workers[0].with_name("q.json").read_text())["verified"]


@pytest.mark.parametrize("fault", sorted(FAULTS.keys() - {"a gap between ranges", "a total"}))
def test_a_fault_in_one_part_is_told_by_all_ranks(tmp_path: Path, fault: str) -> None:
    """Each fault that `dglrun verify` finds, with the same words, and where it can be told with the rank."""
    json_path = a_partition(tmp_path)
    spoil, message = FAULTS[fault]
    spoil(json_path.parent)

    said = problem_of(on_workers(json_path), work=verify_alone)

    assert message in said
    if "different" in message and fault != "another owner":
        assert f"(held by rank {1 if 'feature' in fault and 'edge' not in fault else 0})" in said


def test_the_message_says_how_to_look_closer(tmp_path: Path) -> None:
    """The names of the rows and the command that compares whole folders."""
    json_path = a_partition(tmp_path, a_toy(1, (30,), (90,), 3))
    poke(read_tensors(json_path.parent / "part1/node_feat.dgl")["n0/feat"], 0, 0.5)
    row = int(read_tensors(json_path.parent / "part1/orig_nids.dgl")["n0"].rows(0, 1)[0])

    said = problem_of(on_workers(json_path))

    assert f"node feature n0/feat: different: {row} (held by rank 1); numbers are original IDs" in said
    assert f"`dglrun verify toy.json --in-dir {tmp_path}/in --partitions-dir {tmp_path}/in/parts`" in said


def test_a_node_that_the_assignment_gives_to_another_part_is_told(tmp_path: Path) -> None:
    """Sound in itself is not enough: the parts are held against the source."""
    json_path = a_partition(tmp_path, a_toy(1, (30, 20), (90, 60), 2))
    assignment = tmp_path / "in/parts/n0.txt"
    lines = assignment.read_text().split()
    first, second = lines.index("0"), lines.index("1")
    lines[first], lines[second] = "1", "0"
    assignment.write_text("\n".join(lines) + "\n")

    assert f"n0 nodes: different: {min(first, second)}, {max(first, second)}" in problem_of(
        on_workers(json_path)
    )


def test_a_source_that_cannot_be_read_is_told_by_all_ranks(tmp_path: Path) -> None:
    """Its rows are shared among the ranks; the one that finds the bad row ends the others."""
    workers = on_workers(a_partition(tmp_path, a_toy(1, (30,), (90,), 3)))
    path = tmp_path / "in/n0-r0-n0-1.csv"
    path.write_text(path.read_text().replace("\n", "\nx", 1))

    assert "n0-r0-n0-1.csv" in problem_of(workers)


def test_a_rank_on_the_wrong_worker_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The training takes part i from worker i."""
    workers = on_workers(a_partition(tmp_path, a_toy(1, (30, 20), (90, 60), 2)))
    monkeypatch.setenv("DGL_OPERATOR_WORKER_INDEX", "1")

    assert "expected rank i on worker i" in problem_of(workers)


def test_a_worker_with_the_json_of_another_run_is_told(tmp_path: Path) -> None:
    """Ranks that do not agree on the ranges would wait for one another."""
    workers = on_workers(a_partition(tmp_path / "new", a_toy(1, (30,), (90,), 2)))
    earlier = a_partition(tmp_path / "old", a_toy(2, (30,), (90,), 2))
    shutil.copytree(earlier.parent, workers[1].parent, dirs_exist_ok=True)

    assert "toy.json: rank 1 has another one than rank 0" in problem_of(workers)


def test_another_number_of_parts_than_ranks_is_refused(tmp_path: Path) -> None:
    """As when the JSON is of an earlier run with more workers."""
    workers = on_workers(a_partition(tmp_path, a_toy(1, (30,), (90,), 3)))

    assert "toy.json: expected 2 parts, one for each rank, got 3" in problem_of(workers[:2])


@pytest.mark.dgl
def test_dgls_loader_is_asked_for_the_ranks_own_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It loads a part without the others; what it refuses is refused. Large parts it gets only on demand."""
    workers = on_workers(a_partition(tmp_path, a_toy(1, (30, 20), (90, 60), 2)))
    assert problem_of(workers, "--dgl") == ""

    monkeypatch.setattr(sys, "executable", "/bin/false")

    refusal = "part 0: DGL's loader refuses it (exit code 1)"
    assert refusal in problem_of(workers, "--dgl")
    assert refusal in problem_of(workers, "--dgl", "--limit", "0", "--verify", "always")
    assert problem_of(workers, "--dgl", "--limit", "0") == ""


@pytest.mark.parametrize("what", ["features", "edges"])
def test_memory_does_not_grow_with_the_rows(tmp_path: Path, what: str) -> None:
    """Neither the source's nor the part's rows are held: four times as many need no more."""

    def peak(times: int) -> int:
        edges = 400_000 * times if what == "edges" else 1000
        width = 64 * times if what == "features" else 1
        rng = np.random.default_rng(0)
        toy = Toy(
            {"n": 100_000},
            {"n:r:n": rng.integers(0, 100_000, (edges, 2))},
            {"n": np.zeros(100_000, int)},
            1,
            {"n": {"feat": rng.random((100_000, width), np.float32)}},
        )
        folder = tmp_path / str(times)
        source = toy.write(folder / "in", 2, "numpy" if what == "features" else "parquet")
        wanted = Options(source, source / "parts", folder / "out", save_orig_nids=True, save_orig_eids=True)
        dispatch(wanted, SingleRank(), lambda _: None)
        del toy
        args = validate_parts._arguments(flags(folder / "out/toy.json", source, folder / "q.json"))
        tracemalloc.start()
        try:
            verify_alone(args, SingleRank())
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(4) < 1.25 * peak(1)


@pytest.mark.mpi
@NEEDS_MPI
@pytest.mark.parametrize(("verify", "verified"), [("auto", True), ("never", False)])
def test_the_ranks_numbers_are_those_of_the_whole_folder(tmp_path: Path, verify: str, verified: bool) -> None:
    """Rank 0 writes what `dglrun report` says of all parts; they are verified whatever their size."""
    json_path = a_partition(tmp_path, a_toy(1, (30, 20), (90, 60), 3))
    program = (sys.executable, "-m", "mpi4py", "-m", "dglrun.commands.validate_parts")
    numbers, whole = tmp_path / "q.json", tmp_path / "whole.json"
    mpirun = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "3")

    done = run_program((*mpirun, *program, *flags(json_path, tmp_path / "in", numbers, verify, 0)))

    assert done.returncode == 0, done.stderr
    report = (sys.executable, "-m", "dglrun", "report", str(json_path), "--json", str(whole))
    subprocess.run(report, cwd=ROOT, check=True, capture_output=True)
    assert json.loads(numbers.read_text()) == {**json.loads(whole.read_text()), "verified": verified}
