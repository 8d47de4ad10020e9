"""SIGKILL of any rank at any stage: nobody is left, nothing half-written is seen, the next run makes it good.

A rank ends itself by SIGKILL right before or after a call that belongs to the stage.
`pytest --hypothesis-profile=long` on this file draws a hundred for each program.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.cluster.daemons import running
from tests.support.heterographs import a_toy
from tests.support.needs import NEEDS_MPI
from tests.support.wait import wait_for

pytestmark = [pytest.mark.mpi, NEEDS_MPI]
ROOT = Path(__file__).parents[4]
RANKS = 3
SOME = settings(
    max_examples=max(2, settings().max_examples // 50),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # a try takes seconds: no search for a smaller one
)

DIES = """
import importlib, os, signal

def end_at(place, call, when):
    module, _, names = place.partition(":")
    owner = importlib.import_module(module)
    *path, name = names.split(".")
    for each in path:
        owner = getattr(owner, each)
    work, seen = getattr(owner, name), 0

    def killing(*args, **more):
        nonlocal seen
        seen += 1
        if seen == call and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        found = work(*args, **more)
        if seen == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(owner, name, killing)

def be_a_rank(number):
    open(f"{os.environ['RANKS_SEEN']}/{os.getpid()}", "w").close()
    if number == int(os.environ["KILL_RANK"]):
        end_at(os.environ["KILL_PLACE"], int(os.environ["KILL_CALL"]), os.environ["KILL_WHEN"])

if "OMPI_COMM_WORLD_RANK" in os.environ and "RANKS_SEEN" in os.environ:
    be_a_rank(int(os.environ["OMPI_COMM_WORLD_RANK"]))
elif os.environ.get("RANKS_FORKED"):
    from dglrun.mpi import forked_ranks
    begin = forked_ranks.ForkedRanks.__init__
    def beginning(self, rank, *args):
        be_a_rank(rank)
        begin(self, rank, *args)
    forked_ranks.ForkedRanks.__init__ = beginning
"""

_ASSIGN = "dglrun.partitioning.distributed"
PLACES = {
    "partition": {
        "input checked": (f"{_ASSIGN}.rank_main:_graph", 1),
        "edges exchanged": (f"{_ASSIGN}.distributed_csr:_exchange", 1),
        "rows built": ("dglrun.partitioning.csr:build", 1),
        "first pass": (f"{_ASSIGN}.streaming:_Stream.run", 1),
        "third pass": (f"{_ASSIGN}.streaming:_Stream.run", 3),
        "scored": (f"{_ASSIGN}.edge_cut:measure", 1),
        "assignment written": (f"{_ASSIGN}.gather_assignment:_write_stretches", 1),
        "assignment published": (f"{_ASSIGN}.gather_assignment:write", 1),
    },
    "dispatch": {
        "assignment read": ("dglrun.dispatch.node_map:read_nodes", 1),
        "node map": ("dglrun.dispatch.node_map:make_node_map", 1),
        "shuffle": ("dglrun.dispatch.edges:Tally.add", 1),
        "last shuffle": ("dglrun.dispatch.edges:EdgeReader.read", 1),
        "a block of a file": ("dglrun.formats.dgl.arrays:ArrayFile.put", 7),
        "graph written": ("dglrun.dispatch.write_partition:PartGraph.write", 1),
        "graphs finished": ("dglrun.dispatch.checkpoint:Checkpoint.finish", 1),
        "IDs finished": ("dglrun.dispatch.checkpoint:Checkpoint.finish", 2),
        "features finished": ("dglrun.dispatch.checkpoint:Checkpoint.finish", 8),
        "state saved": ("dglrun.dispatch.checkpoint:Checkpoint._save", 4),
        "parts published": ("dglrun.dispatch.checkpoint:Checkpoint.publish", 1),
        "sums added": ("dglrun.mpi.source_sums:add", 1),
        "leftovers removed": ("dglrun.dispatch.checkpoint:Checkpoint.remove", 1),
    },
    "verify": {
        "parts checked": ("dglrun.verify.part:PartChecks.__init__", 1),
        "source found": ("dglrun.verify.source:load_source", 1),
        "assignment read": ("dglrun.verify.keys:read_assignment", 1),
        "halo nodes asked for": ("dglrun.verify.keys:OriginalIds._ask_for_halos", 1),
        "sums read": ("dglrun.mpi.source_sums:read", 1),
        "first checksum": ("dglrun.mpi.checksum:compare", 1),
        "known sums": ("dglrun.mpi.checksum:has_sums", 2),
        "measured": ("dglrun.report.measure:measure", 1),
    },
}


@dataclass(frozen=True)
class Kill:
    """Where a rank ends: before or after which call of which function."""

    rank: int
    stage: str
    when: str

    def environment(self, program: str, seen: Path) -> dict[str, str]:
        """What the ranks are told."""
        place, call = PLACES[program][self.stage]
        told = {"KILL_PLACE": place, "KILL_CALL": str(call), "KILL_WHEN": self.when}
        path, forked = f"{seen.parent}:{ROOT}", "yes" if program == "dispatch" else ""
        where = {"RANKS_SEEN": str(seen), "RANKS_FORKED": forked, "PYTHONPATH": path}
        return {**told, "KILL_RANK": str(self.rank), **where}


def kills(program: str) -> st.SearchStrategy[Kill]:
    """Any rank, stage and side of it."""
    sides = st.sampled_from(("before", "after"))
    return st.builds(Kill, st.integers(0, RANKS - 1), st.sampled_from(list(PLACES[program])), sides)


VERIFY = """
import sys
from dglrun.mpi import mpirun
program = (sys.executable, "-m", "mpi4py", "-m", "dglrun.commands.validate_parts", *sys.argv[1:])
sys.exit(mpirun.run(mpirun.argv(mpirun.Job(program, 3)), 120))
"""
MARKS = {"partition": "partition_meta.json", "dispatch": "toy.json", "verify": "numbers.json"}
"""The file without which readers take an output for none."""


@dataclass(frozen=True)
class Programs:
    """The three programs of one graph, whose files all runs share.

    Attributes:
        source: The chunked graph; its assignment is in `parts`.
        whole: By program: the output of a run in which nothing happens.
    """

    source: Path
    whole: dict[str, dict[str, bytes]]

    def run(self, program: str, out: Path, **env: str) -> "subprocess.CompletedProcess[str]":
        """Run a program on its ranks to its end."""
        argv = (sys.executable, *self._words(program, out))
        return subprocess.run(
            argv, cwd=ROOT, env=os.environ | env, capture_output=True, text=True, timeout=120, check=False
        )

    def _words(self, program: str, out: Path) -> tuple[str, ...]:
        where: tuple[str, ...] = ("--in-dir", str(self.source))
        if program == "verify":
            chosen = ("--verify", "auto", "--limit", "0", "--json", str(out / "numbers.json"))
            parts = ("--partitions-dir", str(self.source / "parts"))
            return (
                "-c",
                VERIFY,
                str(self.source.with_name("dispatch") / "toy.json"),
                *where,
                *parts,
                *chosen,
            )
        where = (program, *where, "--out-dir", str(out), "--ranks", str(RANKS))
        if program == "dispatch":
            saved = ("--save-orig-nids", "--save-orig-eids", "--source-sums")
            return ("-m", "dglrun", *where, "--partitions-dir", str(self.source / "parts"), *saved)
        chosen = ("--mode", "ParMETIS", "--backend", "streaming", "--num-parts", str(RANKS))
        return ("-m", "dglrun", *where, *chosen)

    def killed(self, program: str, out: Path, kill: Kill) -> "subprocess.CompletedProcess[str]":
        """Run a program in which one rank ends; no process of it is left."""
        seen = out.with_name("hook") / "seen"
        seen.mkdir(parents=True)
        (seen.parent / "sitecustomize.py").write_text(DIES)
        ended = self.run(program, out, **kill.environment(program, seen))
        pids = [int(path.name) for path in seen.iterdir()]
        assert len(pids) == RANKS, ended.stderr
        wait_for("the end of all ranks", lambda: not any(map(running, pids)))
        return ended


def visible(program: str, out: Path) -> dict[str, bytes]:
    """What readers see in an output folder."""
    if not (out / MARKS[program]).exists():
        return {}
    files = ((str(path.relative_to(out)), path) for path in out.rglob("*") if path.is_file())
    return {name: path.read_bytes() for name, path in files if not name.startswith(".")}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """Each program has run once."""
    folder = tmp_path_factory.mktemp("undisturbed")
    found = Programs(a_toy(1, (30, 20, 12), (90, 60, 60), RANKS).write(folder / "in", chunks=2), {})
    for program in ("dispatch", "partition", "verify"):
        out = folder / program
        out.mkdir()
        ended = found.run(program, out)
        assert ended.returncode == 0, ended.stderr
        found.whole[program] = visible(program, out)
    return found


def check(programs: Programs, program: str, kill: Kill) -> None:
    """Kill one rank, look at what is left, and run once more."""
    with TemporaryDirectory() as name:
        out = Path(name) / "out"
        out.mkdir()

        ended = programs.killed(program, out, kill)

        assert ended.returncode == 137, ended.stderr
        by_mpirun = rf"process rank {kill.rank} .*signal 9 \(Killed\)"
        assert re.search(rf"rank {kill.rank} was ended by SIGKILL|{by_mpirun}", ended.stderr, re.DOTALL)
        assert visible(program, out) in ({}, programs.whole[program])
        again = programs.run(program, out)
        assert again.returncode == 0, again.stderr
        assert visible(program, out) == programs.whole[program]
        assert not list(out.glob(".dglrun-*"))


@SOME
@given(kill=kills("partition"))
def test_a_killed_partition_leaves_no_assignment_or_a_whole_one(programs: Programs, kill: Kill) -> None:
    """Streaming on three ranks: the next run makes the same one."""
    check(programs, "partition", kill)


@SOME
@given(kill=kills("dispatch"))
def test_a_killed_dispatch_leaves_no_partition_or_a_whole_one(programs: Programs, kill: Kill) -> None:
    """From reading the assignment until the leftovers are removed; the next run takes up what is finished."""
    check(programs, "dispatch", kill)


@SOME
@given(kill=kills("verify"))
def test_a_killed_verification_says_nothing_and_can_be_repeated(programs: Programs, kill: Kill) -> None:
    """Never a file of numbers that says "verified" when a rank has not looked at its part."""
    check(programs, "verify", kill)
