"""`dglrun partition`: its flags, its back ends of one process, and what a user brings."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dglrun.commands import partition as partition_command
from dglrun.formats import assignment
from dglrun.formats.chunked import write
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.mpi import mpirun
from dglrun.partitioning import kaminpar, metis
from tests.cluster.daemons import running
from tests.support.commands import run_command
from tests.support.dglrun_pods import ROOT
from tests.support.heterographs import a_toy
from tests.support.needs import NEEDS_KAMINPAR, NEEDS_METIS, NEEDS_MPI, library_here
from tests.support.wait import wait_for


def partition(source: Path, out: Path, *flags: str) -> int:
    return run_command(partition_command, "partition", "--in-dir", str(source), "--out-dir", str(out), *flags)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0\n1\n", "expected 30 lines, one for each n0 node, got 2"),
        ("0\n" * 29 + "3\n", "line 30: expected a part from 0 to 2, got '3'"),
        ("0\n" * 3 + "x\n" + "0\n" * 26, "line 4: expected a part from 0 to 2, got 'x'"),
    ],
)
def test_an_assignment_of_the_user_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, expected: str
) -> None:
    """Number of lines and parts, told by file and line; nothing is written."""
    source = a_toy().write(tmp_path / "in")
    (source / "parts" / "n0.txt").write_text(text)
    flags = ("--backend", "user", "--assignment", str(source / "parts"), "--num-parts", "3")

    code = partition(source, tmp_path / "out", *flags)

    assert code == 65
    assert f"n0.txt: {expected}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_assignment_of_the_user_is_taken_as_it_is(tmp_path: Path) -> None:
    """And scored."""
    toy = a_toy()
    source = toy.write(tmp_path / "in")
    flags = ("--backend", "user", "--assignment", str(source / "parts"), "--num-parts", "3")

    code = partition(source, tmp_path / "out", *flags)

    meta, parts = assignment.load(tmp_path / "out", ChunkedGraph.load(source))
    assert (code, meta.method) == (0, "user")
    assert all((parts[ntype] == toy.assignment[ntype]).all() for ntype in toy.nodes)
    assert sum(meta.details["edges_per_part"]) == 130


def two_communities(folder: Path, rng: np.random.Generator) -> ChunkedGraph:
    """Two groups of 400 nodes, 300 of type a and 100 of type b in each, few edges between them."""
    group = {"a": np.arange(600) % 2, "b": np.arange(200) % 2}
    edges = {}
    for etype, count in (("a:r:a", 6000), ("b:s:a", 2000)):
        src_type, _, dst_type = etype.split(":")
        src = rng.integers(0, len(group[src_type]), count)
        own = group[src_type][src] ^ (rng.random(count) < 0.03)
        dst = 2 * rng.integers(0, len(group[dst_type]) // 2, count) + own
        edges[etype] = np.stack([src, dst], axis=1)
    return write.graph(folder, "two", {"a": 600, "b": 200}, edges)


@NEEDS_METIS
def test_metis_finds_communities_and_balances_types_and_edges(tmp_path: Path) -> None:
    """Few edges cut, and each type and the edges even."""
    two_communities(tmp_path / "in", np.random.default_rng(0))

    code = partition(tmp_path / "in", tmp_path / "out", "--num-parts", "2")

    meta = assignment.load_meta(tmp_path / "out")
    known = meta.details
    assert (code, meta.method, known["balance"]) == (0, "metis", ["edges", "types"])
    assert known["edge_cut_ratio"] < 0.05
    assert known["edge_balance"] < 1.08
    for row in known["nodes_per_part"].values():
        assert max(row) * 2 / sum(row) < 1.08


@NEEDS_KAMINPAR
def test_kaminpar_finds_communities_and_balances_types_and_edges_in_sum(tmp_path: Path) -> None:
    """Few edges cut, edges even; it names itself, and leaves nothing of a killed run."""
    two_communities(tmp_path / "in", np.random.default_rng(0))
    (tmp_path / "out" / f"{kaminpar.PREFIX}killed").mkdir(parents=True)

    code = partition(tmp_path / "in", tmp_path / "out", "--num-parts", "2", "--backend", "kaminpar")

    meta = assignment.load_meta(tmp_path / "out")
    assert (code, meta.method, meta.details["library"].split()[0]) == (0, "kaminpar", "kaminpar")
    assert meta.details["edge_cut_ratio"] < 0.05
    assert meta.details["edge_balance"] < 1.1
    assert not list((tmp_path / "out").glob(".*"))


@NEEDS_METIS
def test_one_seed_gives_one_assignment(tmp_path: Path) -> None:
    """Whatever the method."""
    graph = two_communities(tmp_path / "in", np.random.default_rng(0))

    for backend in ("random", "metis"):
        for out in ("one", "two"):
            flags = ("--num-parts", "4", "--backend", backend, "--seed", "7")
            assert partition(tmp_path / "in", tmp_path / out, *flags) == 0
        one, two = (assignment.load(tmp_path / out, graph)[1] for out in ("one", "two"))
        assert all((one[ntype] == two[ntype]).all() for ntype in graph.ntypes)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (
            ("--mode", "DGL-API", "--backend", "zoltan"),
            "--backend: expected metis, kaminpar, random, user in mode DGL-API, got 'zoltan'",
        ),
        (
            ("--mode", "DistParMETIS", "--backend", "metis"),
            "expected parmetis, zoltan, streaming, random, user in mode DistParMETIS, got 'metis'",
        ),
        (("--mode", "DistParMETIS"), "needs --hostfile and --agent outside of a job"),
        (("--backend", "user"), "--assignment and --backend user must be used together"),
        (("--assignment", "x"), "--assignment and --backend user must be used together"),
        (
            ("--num-parts", "0"),
            "--num-parts/--num-partitions: expected a whole number from 1 to 32768, got '0'",
        ),
        (("--imbalance", "1"), "--imbalance: expected a number above 1"),
        (("--balance", "nodes,luck"), "--balance: expected nodes, types, edges or train, got 'luck'"),
    ],
)
def test_flags_that_contradict_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], expected: str
) -> None:
    """Exit code 2; a mode never runs another back end than it names."""
    code = partition(a_toy().write(tmp_path / "in"), tmp_path / "out", "--num-parts", "2", *flags)

    assert code == 2
    assert expected in capsys.readouterr().err


NOTE = "dglrun partition: note: --balance train has no effect with --backend"


@pytest.mark.parametrize(
    ("backend", "why"),
    [("random", "each part gets its share of each type"), ("user", "the assignment is taken as it is")],
)
@pytest.mark.parametrize("words", ["train", "types,edges,train"])
def test_a_back_end_that_does_not_balance_says_so_where_training_nodes_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], backend: str, why: str, words: str
) -> None:
    """One line, and the assignment is written: a graph need not even have masks."""
    source = a_toy().write(tmp_path / "in")
    mine = ("--assignment", str(source / "parts")) if backend == "user" else ()

    code = partition(
        source, tmp_path / "out", "--num-parts", "3", "--backend", backend, *mine, "--balance", words
    )

    err = capsys.readouterr().err
    assert (code, err.count(NOTE)) == (0, 1)
    assert f"{NOTE} {backend}: {why}\n" in err
    assert assignment.load_meta(tmp_path / "out").method == backend


@pytest.mark.parametrize("backend", ["random", "user", pytest.param("metis", marks=NEEDS_METIS)])
@pytest.mark.parametrize("words", [(), ("--balance", "nodes"), ("--balance", "types,edges")])
def test_of_other_words_no_back_end_says_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], backend: str, words: tuple[str, ...]
) -> None:
    """A job gives its `--partition-balance` to every back end."""
    source = a_toy().write(tmp_path / "in")
    mine = ("--assignment", str(source / "parts")) if backend == "user" else ()

    code = partition(source, tmp_path / "out", "--num-parts", "3", "--backend", backend, *mine, *words)

    assert code == 0
    assert "note:" not in capsys.readouterr().err


def test_an_absent_back_end_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 69, and nothing else runs in its place."""
    monkeypatch.setattr(metis, "SONAMES", ("libnone.so.1",))

    code = partition(a_toy().write(tmp_path / "in"), tmp_path / "out", "--num-parts", "2")

    assert code == 69
    assert "install it (Debian: apt-get install libmetis5)" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("backend", [pytest.param("metis", marks=NEEDS_METIS), "kaminpar", "random", "user"])
def test_a_dry_run_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str], backend: str) -> None:
    """It says what would be read, run and written."""
    source = a_toy(parts=2).write(tmp_path / "in")
    mine = ("--assignment", str(source / "parts")) if backend == "user" else ()

    code = partition(source, tmp_path / "out", "--num-parts", "2", "--backend", backend, "--dry-run", *mine)

    said = capsys.readouterr().out
    assert code == 0
    assert f"run {backend} in this process: 2 parts" in said
    assert "partition_meta.json" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.mpi
@NEEDS_MPI
@pytest.mark.skipif(not library_here("zoltan"), reason="no Zoltan (Debian: libtrilinos-zoltan-13.2)")
def test_a_dry_run_of_ranks_prints_mpirun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a line for a shell; no file is left."""
    source = a_toy(parts=2).write(tmp_path / "a b")
    flags = ("--num-parts", "2", "--mode", "ParMETIS", "--backend", "zoltan", "--dry-run")

    code = partition(source, tmp_path / "out", *flags)

    words = shlex.split(capsys.readouterr().out)
    assert code == 0
    assert (words[0], words[words.index("--in-dir") + 1]) == ("mpirun", str(source))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("mode", [("--backend", "random"), ("--dry-run",)])
def test_more_parts_than_nodes_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mode: tuple[str, ...]
) -> None:
    """Before anything is read but the metadata."""
    toy = a_toy()
    nodes = sum(toy.nodes.values())

    code = partition(toy.write(tmp_path / "in"), tmp_path / "out", "--num-parts", str(nodes + 1), *mode)

    assert code == 65
    assert (
        f"--num-parts: expected at most {nodes}, the nodes of toy, got {nodes + 1}" in capsys.readouterr().err
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "backend", [pytest.param("metis", marks=NEEDS_METIS), pytest.param("kaminpar", marks=NEEDS_KAMINPAR)]
)
def test_a_signal_ends_a_library_at_once(tmp_path: Path, number: signal.Signals, backend: str) -> None:
    """In the midst of the C code, which never returns: it is stopped here."""
    rng = np.random.default_rng(0)
    write.graph(
        tmp_path / "in", "g", {"n": 50000}, {"n:e:n": rng.integers(0, 50000, (800000, 2))}, layout="numpy"
    )
    folders = ("--in-dir", str(tmp_path / "in"), "--out-dir", str(tmp_path / "out"))
    argv = (sys.executable, "-m", "dglrun", "partition", *folders, "--num-parts", "8", "--backend", backend)
    started = subprocess.Popen(argv, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    child = wait_for(f"the child that runs {backend}", lambda: child_of(started.pid), 120)
    os.kill(child, signal.SIGSTOP)

    started.send_signal(number)
    _, said = started.communicate(timeout=120)
    said = re.sub(r".*: \d+ s\n", "", said)  # on a busy machine the time is shown first

    words = {signal.SIGINT: "interrupted", signal.SIGTERM: "ended by SIGTERM"}[number]
    assert (started.returncode, said) == (128 + number, f"dglrun partition: {words}\n")
    assert not running(child)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]


def child_of(pid: int) -> int | None:
    """The only child process, once there is one."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(found[0]) if found else None


@pytest.mark.mpi
@NEEDS_MPI
@pytest.mark.skipif(not library_here("zoltan"), reason="no Zoltan (Debian: libtrilinos-zoltan-13.2)")
def test_ranks_refuse_an_output_that_cannot_be_written_first(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each of them, before it reads: in DistParMETIS only they see the folder."""
    (tmp_path / "file").write_text("")
    flags = ("--metadata-filename", "none.json", "--backend", "zoltan", "--num-parts", "2")
    folders = ("--in-dir", str(tmp_path), "--out-dir", str(tmp_path / "file/out"))
    program = (sys.executable, "-m", "mpi4py", "-m", "dglrun.commands.partition_rank", *folders, *flags)
    more = ("--seed", "1", "--balance", "types,edges", "--imbalance", "1.05")

    code = mpirun.run(mpirun.argv(mpirun.Job((*program, *more), 2, cwd=str(ROOT))), 300)

    assert code == 74
    assert (
        f"{tmp_path}/file/out: cannot be written: {tmp_path}/file is not a folder" in capfd.readouterr().err
    )


@pytest.mark.mpi
@NEEDS_MPI
def test_a_rank_that_waits_longer_than_allowed_ends_all(tmp_path: Path) -> None:
    """As in dispatch and in the check of the parts; here the other rank takes no part."""
    folders = ("--in-dir", str(tmp_path), "--out-dir", str(tmp_path / "out"))
    flags = (
        "--metadata-filename none.json --backend random --num-parts 2 --seed 1 --balance types --imbalance 2"
    )
    rank = (sys.executable, "-m", "dglrun.commands.partition_rank", *folders, *flags.split())
    rank += ("--timeout", "0.5")
    other = (sys.executable, "-c", "import signal; from mpi4py import MPI; signal.pause()")
    both = ("-np", "1", *rank, ":", "-np", "1", *other)

    ended = subprocess.run(
        ("mpirun", "--allow-run-as-root", "--oversubscribe", *both),
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip

    assert ended.returncode == 124
    assert "rank 0: waited more than 0.5 s for the other ranks" in ended.stderr
