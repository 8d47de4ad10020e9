"""Dispatch on real ranks, forked and of MPI, and DGL's own loader on what it wrote."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dglrun.mpi import mpirun
from tests.support.commands import run_program
from tests.support.heterographs import Toy, a_toy
from tests.support.needs import NEEDS_MPI

ROOT = Path(__file__).parents[4]

SIGNALLED = """
import os, runpy, signal, sys, threading, time
from types import SimpleNamespace
from dglrun.mpi import collectives

def sleep(seconds):
    if threading.current_thread() is threading.main_thread():
        os.kill(os.getpid(), int(os.environ["SIGNAL"]))
    else:
        time.sleep(seconds)

if collectives._mpi().COMM_WORLD.rank:
    signal.pause()
collectives.time = SimpleNamespace(monotonic=time.monotonic, sleep=sleep)
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""
"""Rank 1 never comes; rank 0 runs a program and gets a signal while it waits for it."""


FORKED, BY_MPI = "forked", "by MPI"
STARTS = pytest.mark.parametrize(
    "start", [FORKED, pytest.param(BY_MPI, marks=(pytest.mark.mpi, NEEDS_MPI))], ids=str
)
"""Ranks of `--ranks`, and those that a job starts on its workers."""


def dispatch(
    source: Path, out: Path, *more: str, ranks: int = 1, start: str = FORKED
) -> "subprocess.CompletedProcess[str]":
    folders = ("--in-dir", str(source), "--partitions-dir", str(source / "parts"), "--out-dir", str(out))
    argv: tuple[str, ...] = (sys.executable, "-m", "dglrun.commands.dispatch_rank", *folders, *more)
    if start == FORKED:
        argv = (*argv, "--ranks", str(ranks))
    elif ranks > 1:
        argv = mpirun.argv(mpirun.Job(argv, ranks, cwd=str(ROOT)))
    return run_program(argv)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@STARTS
@pytest.mark.parametrize(
    ("ranks", "toy"), [(2, a_toy(1, parts=4)), (3, a_toy(2, parts=2)), (4, a_toy(3, (5, 1, 2), (9, 3), 8))]
)
def test_ranks_write_what_one_process_writes(tmp_path: Path, ranks: int, toy: Toy, start: str) -> None:
    """More parts than ranks, fewer parts than ranks, parts without nodes."""
    source = toy.write(tmp_path / "in", chunks=3)
    flags = ("--save-orig-nids", "--save-orig-eids")
    assert dispatch(source, tmp_path / "one", *flags).returncode == 0

    ended = dispatch(source, tmp_path / "many", *flags, ranks=ranks, start=start)

    assert ended.returncode == 0, ended.stderr
    assert contents(tmp_path / "one") == contents(tmp_path / "many")


@STARTS
def test_bad_input_of_one_rank_ends_all_with_65(tmp_path: Path, start: str) -> None:
    """The reason is said once, by file and line."""
    source = a_toy().write(tmp_path / "in", chunks=2)
    (source / "n0-r0-n1-1.csv").write_text("0 0\n" * 44 + "99 0\n")

    ended = dispatch(source, tmp_path / "out", ranks=2, start=start)

    assert ended.returncode == 65
    assert ended.stderr.count("n0-r0-n1-1.csv: line 45: expected a source ID from 0 to 29, got 99") == 1
    assert not (tmp_path / "out").exists()


@STARTS
def test_a_failed_rank_fails_all_with_its_code(tmp_path: Path, start: str) -> None:
    """A rank that cannot write ends the others instead of leaving them waiting."""
    source = a_toy().write(tmp_path / "in")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/.dglrun-dispatch-1").write_text("where rank 1 wants its folder")

    ended = dispatch(source, tmp_path / "out", ranks=2, start=start)

    assert ended.returncode == 74
    assert "rank 1: " in ended.stderr
    assert ".dglrun-dispatch-1" in ended.stderr


def test_ranks_for_which_there_are_no_descriptors_are_an_error_that_says_so(tmp_path: Path) -> None:
    """And not one of the output folder, where nothing is written."""
    source = a_toy(parts=8).write(tmp_path / "in")
    flags = ("--in-dir", str(source), "--partitions-dir", str(source / "parts"), "--ranks", "8")
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (24, 24));"
    program = f"{limited} from dglrun.__main__ import main; sys.exit(main(sys.argv[1:]))"

    ended = run_program(
        (sys.executable, "-c", program, "dispatch", *flags, "--out-dir", str(tmp_path / "out"))
    )

    assert ended.returncode == 74
    assert ended.stderr == "dglrun dispatch: what the ranks share: Too many open files\n"
    assert not (tmp_path / "out/g.json").exists()


@pytest.mark.mpi
@NEEDS_MPI
@pytest.mark.parametrize("program", [("dglrun.commands.dispatch_rank",), ("dglrun", "dispatch")])
def test_ranks_whose_variables_were_unset_are_ranks(tmp_path: Path, program: tuple[str, ...]) -> None:
    """MPI knows how many there are: none of them writes the whole graph."""
    source = a_toy(parts=4).write(tmp_path / "in")
    flags = ("--in-dir", str(source), "--partitions-dir", str(source / "parts"), "--out-dir")
    unset = ("env", "-u", "OMPI_COMM_WORLD_SIZE", "-u", "PMI_SIZE", "-u", "OMPI_COMM_WORLD_RANK")
    mpirun = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "4", *unset)

    ended = run_program((*mpirun, sys.executable, "-m", *program, *flags, str(tmp_path / "out")))

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("4 parts on 4 ranks") == 1


@pytest.mark.mpi
@NEEDS_MPI
def test_a_rank_that_mpi_holds_for_the_only_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with mpi4py of another MPI than mpirun's: each rank would write the whole graph."""
    monkeypatch.setenv("DGLRUN_WORLD_SIZE", "4")

    ended = dispatch(a_toy().write(tmp_path / "in"), tmp_path / "out")

    assert ended.returncode == 69
    assert "mpirun started 4 ranks, but mpi4py's MPI (Open MPI" in ended.stderr
    assert not (tmp_path / "out").exists()


DIES = """
import os, signal, time
if "DIES" in os.environ:
    from dglrun.dispatch.checkpoint import Checkpoint
    finish = Checkpoint.finish
    def dying(self, stage, facts=None):
        finish(self, stage, facts)
        if stage == "node:n0/feat" and self.folder.name == ".dglrun-dispatch-1":
            other, until = self.folder.parent / ".dglrun-dispatch-0/state.json", time.monotonic() + 30
            while stage not in other.read_text() and time.monotonic() < until:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
    Checkpoint.finish = dying
"""


@STARTS
def test_after_a_rank_was_killed_the_next_run_takes_up_what_was_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    """137 ends all; the second run names what it need not do again, and the result is that of one run."""
    source = a_toy(1, parts=4).write(tmp_path / "in", chunks=3)
    flags = ("--save-orig-nids", "--save-orig-eids")

    def run(out: str) -> "subprocess.CompletedProcess[str]":
        return dispatch(source, tmp_path / out, *flags, ranks=2, start=start)

    assert run("undisturbed").returncode == 0
    (tmp_path / "sitecustomize.py").write_text(DIES)
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
        patch.setenv("DIES", "yes")
        assert run("out").returncode == 137
    assert not list((tmp_path / "out").glob("*.json"))

    ended = run("out")

    assert ended.returncode == 0, ended.stderr
    assert "resumed: finished before: graph, orig_nids, node:n0/feat" in ended.stdout
    assert contents(tmp_path / "out") == contents(tmp_path / "undisturbed")


LOADER = """
import sys, warnings
warnings.simplefilter("ignore")
import dgl
for part in range(int(sys.argv[2])):
    graph, _, _, book, name, ntypes, _ = dgl.distributed.load_partition(sys.argv[1], part)
    assert name == "toy" and graph.num_nodes() == len(graph.ndata["_ID"])
"""


@pytest.mark.dgl
@pytest.mark.parametrize("toy", [a_toy(1), a_toy(2, (3, 0, 9), (0, 0, 5, 12), 6)])
@pytest.mark.parametrize("formats", ["coo", "csc", "coo,csc,csr"])
def test_dgl_loads_every_part_with_its_own_checks_on(tmp_path: Path, toy: Toy, formats: str) -> None:
    """DGL_DIST_DEBUG makes load_partition verify IDs, types and ranges; empty parts included."""
    source = toy.write(tmp_path / "in", chunks=2)
    assert dispatch(source, tmp_path / "out", "--graph-formats", formats).returncode == 0

    argv = (sys.executable, "-c", LOADER, str(tmp_path / "out/toy.json"), str(toy.parts))
    env = os.environ | {"DGL_DIST_DEBUG": "1", "DGLBACKEND": "pytorch"}
    ended = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=120, check=False)

    assert ended.returncode == 0, ended.stderr


@pytest.mark.mpi
@NEEDS_MPI
@pytest.mark.parametrize(
    ("program", "number", "told"),
    [
        (("dglrun", "dispatch"), signal.SIGTERM, "ended by SIGTERM"),
        (("dglrun", "dispatch"), signal.SIGINT, "interrupted"),
        (("dglrun.commands.dispatch_rank",), signal.SIGINT, "interrupted"),
    ],
)
def test_a_signal_to_a_rank_that_waits_ends_all(
    tmp_path: Path, program: tuple[str, ...], number: signal.Signals, told: str
) -> None:
    """The others would wait for it in the end of MPI, which takes no deadline."""
    source = a_toy().write(tmp_path / "in")
    flags = (
        "--in-dir",
        str(source),
        "--partitions-dir",
        str(source / "parts"),
        "--out-dir",
        str(tmp_path / "out"),
    )
    mpirun = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2")
    argv = (*mpirun, sys.executable, "-c", SIGNALLED, *program, *flags)
    env = {"SIGNAL": str(int(number))}

    ended = run_program(argv, env)

    assert ended.returncode == 128 + number
    assert f"rank 0: {told}" in ended.stderr
    assert "Traceback" not in ended.stderr
