"""SIGKILL of any rank at any stage: nobody is left, nothing half-written is seen, the next run makes it good.

A rank ends itself by SIGKILL right before or after a call that belongs to the stage.
`pytest --hypothesis-profile=long` on this file draws fifty for each program.
"""

import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.cluster.daemons import running
from tests.support.commands import run_program
from tests.support.few_examples import by_chance
from tests.support.heterographs import a_toy
from tests.support.needs import NEEDS_MPI, NEEDS_PARMETIS, NEEDS_ZOLTAN
from tests.support.wait import wait_for

pytestmark = [pytest.mark.mpi, NEEDS_MPI]
ROOT = Path(__file__).parents[4]
RANKS = 3
SOME = settings(
    max_examples=max(2, settings().max_examples // 50),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # a try takes seconds: no search for a smaller one
)

FEWER = settings(SOME, max_examples=SOME.max_examples // 2)
"""Where several programs share a test."""

HOOK = """
import importlib, os, signal

def follow(place, before, after):
    module, _, names = place.partition(":")
    owner = importlib.import_module(module)
    *path, name = names.split(".")
    for each in path:
        owner = getattr(owner, each)
    work, seen = getattr(owner, name), 0

    def followed(*args, **more):
        nonlocal seen
        seen += 1
        call = seen
        before(call)
        found = work(*args, **more)
        after(call)
        return found

    setattr(owner, name, followed)

def end_at(chosen):
    if chosen == int(os.environ["KILL_CALL"]):
        os.kill(os.getpid(), signal.SIGKILL)

def tell(text=""):
    with open(f"{os.environ['RANKS_SEEN']}/{os.getpid()}", "a") as file:
        file.write(text)

def pass_by(call):
    pass

def be_a_rank(number):
    tell()
    for place in os.environ.get("COUNT_PLACES", "").split():
        follow(place, lambda call, place=place: tell(place + "\\n"), pass_by)
    if number == int(os.environ.get("KILL_RANK", -1)):
        sides = (end_at, pass_by) if os.environ["KILL_WHEN"] == "before" else (pass_by, end_at)
        follow(os.environ["KILL_PLACE"], *sides)

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
_BEGUN = {"input checked": (f"{_ASSIGN}.rank_main:_graph", 1)}
_LOADED = {
    "edges exchanged": (f"{_ASSIGN}.distributed_csr:_exchange", 1),
    "rows built": ("dglrun.partitioning.csr:build", 1),
}
_SCORED = {"scored": (f"{_ASSIGN}.edge_cut:measure", 1)}
_WRITTEN = {
    "assignment written": (f"{_ASSIGN}.gather_assignment:_write_stretches", 1),
    "assignment published": (f"{_ASSIGN}.gather_assignment:write", 1),
}
PLACES = {
    "streaming": {
        **_BEGUN,
        **_LOADED,
        "first pass": (f"{_ASSIGN}.streaming:_Stream.run", 1),
        "third pass": (f"{_ASSIGN}.streaming:_Stream.run", 3),
        **_SCORED,
        **_WRITTEN,
    },
    "random": {
        **_BEGUN,
        "parts drawn": (f"{_ASSIGN}.without_edges:random_parts", 1),
        "nodes sent to their owners": (f"{_ASSIGN}.without_edges:to_owners", 1),
        "parts of ends asked for": (f"{_ASSIGN}.edge_cut:ask_owners", 1),
        "scored": (f"{_ASSIGN}.edge_cut:measure_by_input", 1),
        **_WRITTEN,
    },
    "user": {
        **_BEGUN,
        "assignment read": (f"{_ASSIGN}.without_edges:brought", 1),
        "parts of ends asked for": (f"{_ASSIGN}.edge_cut:ask_owners", 1),
        "scored": (f"{_ASSIGN}.edge_cut:measure_by_input", 1),
        **_WRITTEN,
    },
    "parmetis": {
        **_BEGUN,
        **_LOADED,
        "library called": (f"{_ASSIGN}.parmetis:ParMetis.partition", 1),
        **_SCORED,
        **_WRITTEN,
    },
    "zoltan": {
        **_BEGUN,
        **_LOADED,
        "library called": (f"{_ASSIGN}.zoltan:Zoltan._run", 1),
        "asked by the library": (f"{_ASSIGN}.zoltan:_neighbours", 1),
        **_SCORED,
        **_WRITTEN,
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
"""By program: a function of each stage, and which of its calls belongs to it."""
PLACES["dispatch by mpirun"] = PLACES["dispatch"]
ASSIGNING = [
    *("streaming", "random", "user"),
    pytest.param("zoltan", marks=NEEDS_ZOLTAN),
    pytest.param("parmetis", marks=NEEDS_PARMETIS),
]
DISPATCHING = ["dispatch", "dispatch by mpirun"]


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
        return {**told, "KILL_RANK": str(self.rank), **hooked(program, seen)}


def hooked(program: str, seen: Path) -> dict[str, str]:
    """Let each rank load the hook, and leave a file in `seen`."""
    seen.mkdir(parents=True)
    (seen.parent / "sitecustomize.py").write_text(HOOK)
    forked = "yes" if program == "dispatch" else ""
    return {"RANKS_SEEN": str(seen), "RANKS_FORKED": forked, "PYTHONPATH": f"{seen.parent}:{ROOT}"}


def kills(program: str) -> st.SearchStrategy[Kill]:
    """Any rank, stage and side of it."""
    sides = st.sampled_from(("before", "after"))
    return by_chance(
        st.builds(Kill, st.integers(0, RANKS - 1), st.sampled_from(list(PLACES[program])), sides)
    )


BY_MPIRUN = f"""
import sys
from dglrun.mpi import mpirun
program = (sys.executable, "-m", "mpi4py", "-m", *sys.argv[1:])
sys.exit(mpirun.run(mpirun.argv(mpirun.Job(program, {RANKS})), 120))
"""
MARKS = {
    **dict.fromkeys(("streaming", "random", "user", "zoltan", "parmetis"), "partition_meta.json"),
    **dict.fromkeys(DISPATCHING, "toy.json"),
    "verify": "numbers.json",
}
"""The file without which readers take an output for none."""


@dataclass(frozen=True)
class Programs:
    """The programs of one graph, whose files all runs share.

    Attributes:
        source: The chunked graph; its assignment is in `parts`.
        whole: By program that was asked for: the output of a run in which nothing happens.
    """

    source: Path
    whole: dict[str, dict[str, bytes]]

    def output(self, program: str) -> dict[str, bytes]:
        """What a program leaves if nothing happens; runs it once."""
        if program not in self.whole:
            out = self.source.with_name(program)
            out.mkdir()
            ended = self.run(program, out)
            assert ended.returncode == 0, ended.stderr
            self.whole[program] = visible(program, out)
        return self.whole[program]

    def run(self, program: str, out: Path, **env: str) -> "subprocess.CompletedProcess[str]":
        """Run a program on its ranks to its end."""
        argv = (sys.executable, *self._words(program, out))
        return run_program(argv, env)

    def _words(self, program: str, out: Path) -> tuple[str, ...]:
        where: tuple[str, ...] = ("--in-dir", str(self.source))
        parts = ("--partitions-dir", str(self.source / "parts"))
        to, ranks, count = ("--out-dir", str(out)), ("--ranks", str(RANKS)), ("--num-parts", str(RANKS))
        saved = ("--save-orig-nids", "--save-orig-eids", "--source-sums")
        if program == "verify":
            self.output("dispatch")
            made = str(self.source.with_name("dispatch") / "toy.json")
            chosen = ("--verify", "auto", "--limit", "0", "--json", str(out / "numbers.json"))
            return ("-c", BY_MPIRUN, "dglrun.commands.validate_parts", made, *where, *parts, *chosen)
        if program == "dispatch":
            return ("-m", "dglrun", "dispatch", *where, *to, *ranks, *parts, *saved)
        if program == "dispatch by mpirun":
            return ("-c", BY_MPIRUN, "dglrun.commands.dispatch_rank", *where, *to, *parts, *saved)
        if program in ("random", "user"):  # on ranks in mode DistParMETIS only
            drawn = ("--metadata-filename", "metadata.json", "--backend", program, "--seed", "1")
            even = ("--balance", "types", "--imbalance", "1.05")
            brought = ("--assignment", str(self.source / "parts")) if program == "user" else ()
            rank = "dglrun.commands.partition_rank"
            return ("-c", BY_MPIRUN, rank, *where, *to, *count, *drawn, *even, *brought)
        mode = ("--mode", "ParMETIS", "--backend", program)
        return ("-m", "dglrun", "partition", *where, *to, *ranks, *count, *mode)

    def killed(self, program: str, out: Path, kill: Kill) -> "subprocess.CompletedProcess[str]":
        """Run a program in which one rank ends; no process of it is left."""
        seen = out.with_name("hook") / "seen"
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
    """Each program runs once before it is killed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return Programs(a_toy(1, (30, 20, 12), (90, 60, 60), RANKS).write(folder / "in", chunks=2), {})


def check(programs: Programs, program: str, kill: Kill) -> None:
    """Kill one rank, look at what is left, and run once more."""
    whole = programs.output(program)
    with TemporaryDirectory() as name:
        out = Path(name) / "out"
        out.mkdir()

        ended = programs.killed(program, out, kill)

        assert ended.returncode == 137, ended.stderr
        by_mpirun = rf"process rank {kill.rank} .*signal 9 \(Killed\)"
        assert re.search(rf"rank {kill.rank} was ended by SIGKILL|{by_mpirun}", ended.stderr, re.DOTALL)
        assert visible(program, out) in ({}, whole)
        again = programs.run(program, out)
        assert again.returncode == 0, again.stderr
        assert visible(program, out) == whole
        assert not list(out.glob(".dglrun-*"))


@pytest.mark.parametrize("program", [*ASSIGNING, *DISPATCHING, "verify"])
def test_every_rank_comes_through_every_stage(programs: Programs, program: str, tmp_path: Path) -> None:
    """Else a kill there would never happen: each function is called as often, where the hook sees it."""
    seen, places = tmp_path / "hook/seen", PLACES[program].values()
    (tmp_path / "out").mkdir()
    counted = {"COUNT_PLACES": " ".join({place for place, _ in places})}

    ended = programs.run(program, tmp_path / "out", **counted, **hooked(program, seen))

    assert ended.returncode == 0, ended.stderr
    calls = [Counter(path.read_text().split()) for path in seen.iterdir()]
    assert len(calls) == RANKS
    for stage, (place, call) in PLACES[program].items():
        assert min(of_rank[place] for of_rank in calls) >= call, stage


@pytest.mark.parametrize("program", ASSIGNING)
@FEWER
@given(data=st.data())
def test_a_killed_partition_leaves_no_assignment_or_a_whole_one(
    programs: Programs, program: str, data: st.DataObject
) -> None:
    """On three ranks: the next run makes the same one."""
    check(programs, program, data.draw(kills(program)))


@pytest.mark.parametrize("program", DISPATCHING)
@FEWER
@given(kill=kills("dispatch"))
def test_a_killed_dispatch_leaves_no_partition_or_a_whole_one(
    programs: Programs, program: str, kill: Kill
) -> None:
    """From reading the assignment until the leftovers are removed; the next run takes up what is finished."""
    check(programs, program, kill)


@SOME
@given(kill=kills("verify"))
def test_a_killed_verification_says_nothing_and_can_be_repeated(programs: Programs, kill: Kill) -> None:
    """Never a file of numbers that says "verified" when a rank has not looked at its part."""
    check(programs, "verify", kill)
