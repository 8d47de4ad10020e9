"""Distributed partitioning by real MPI ranks and real libraries; mpirun's plan, deadline and failures."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglrun.formats import assignment
from dglrun.formats.chunked import write
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.mpi import mpirun
from dglrun.partitioning import partition_quality, training_nodes
from dglrun.partitioning.distributed.vertex_distribution import CyclicDistribution, to_owners
from tests.support.dglrun_pods import ROOT
from tests.support.heterographs import Toy, a_toy, random_toys
from tests.support.needs import NEEDS_MPI, NEEDS_PARMETIS, NEEDS_ZOLTAN, library_here
from tests.support.thread_ranks import ThreadRanks, on_ranks
from tests.unit.dglrun.partitioning.builders import partition, two_communities, with_training_nodes

BACKENDS = [
    pytest.param("zoltan", marks=NEEDS_ZOLTAN),
    pytest.param("parmetis", marks=NEEDS_PARMETIS),
    pytest.param("streaming"),
]

BACKENDS_BY_WEIGHTS = pytest.mark.parametrize(
    ("backend", "balanced"),
    [
        pytest.param(*each.values, weights, marks=each.marks)
        for each, weights in zip(BACKENDS, (False, True, True), strict=True)
    ],
)


@pytest.mark.mpi
@NEEDS_MPI
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("ranks", "layout"), [(1, "csv"), (2, "csv"), (4, "parquet")])
def test_ranks_find_communities_and_score_them_right(
    tmp_path: Path, backend: str, ranks: int, layout: str
) -> None:
    """The cut is small, and what the ranks counted is what one pass over the input counts."""
    graph = two_communities(tmp_path / "in", layout)
    flags = ("--mode", "ParMETIS", "--backend", backend, "--num-parts", "2", "--ranks", str(ranks))

    ended = partition(tmp_path / "in", tmp_path / "out", *flags)

    assert ended.returncode == 0, ended.stderr
    meta, parts = assignment.load(tmp_path / "out", graph)
    expected = partition_quality.of_assignment(graph, parts, 2).details(graph.ntypes)
    assert {key: meta.details[key] for key in expected} == expected
    assert (meta.method, meta.details["ranks"], meta.details["seed"]) == (backend, ranks, 1)
    assert meta.details["edge_cut_ratio"] < 0.06
    assert meta.details["edge_balance"] < 1.1
    assert f"{backend} made 2 parts: edge cut" in ended.stdout


@pytest.mark.mpi
@NEEDS_MPI
@BACKENDS_BY_WEIGHTS
@pytest.mark.parametrize("ranks", [1, 3])
def test_each_node_type_has_a_weight_of_its_own(
    tmp_path: Path, backend: str, ranks: int, balanced: bool
) -> None:
    """Two types that are two communities: the smallest cut keeps them apart, `--balance types` may not.

    Multi-constraint partitioning, which ParMETIS and our streaming know and Zoltan does not.
    """
    rng = np.random.default_rng(5)
    edges = {f"{t}:r:{t}": rng.integers(0, 300, (4000, 2)) for t in "ab"}
    edges["a:s:b"] = rng.integers(0, 300, (100, 2))
    graph = write.graph(tmp_path / "in", "types", {"a": 300, "b": 300}, edges, layout="csv", files=2)
    flags = ("--mode", "ParMETIS", "--backend", backend, "--num-parts", "2", "--ranks", str(ranks))

    ended = partition(tmp_path / "in", tmp_path / "out", *flags, "--balance", "types")

    assert ended.returncode == 0, ended.stderr
    _, parts = assignment.load(tmp_path / "out", graph)
    largest = [int(np.bincount(parts[ntype], minlength=2).max()) for ntype in ("a", "b")]
    assert all(each <= 165 for each in largest) if balanced else min(largest) > 250


@pytest.mark.mpi
@NEEDS_MPI
@BACKENDS_BY_WEIGHTS
@pytest.mark.parametrize("ranks", [1, 3])
def test_training_nodes_are_spread_over_the_parts(
    tmp_path: Path, backend: str, ranks: int, balanced: bool
) -> None:
    """All of them are in one of two communities, whole in one part by the cut alone."""
    graph = with_training_nodes(tmp_path / "in")
    flags = ("--mode", "ParMETIS", "--backend", backend, "--num-parts", "2", "--ranks", str(ranks))

    ended = partition(tmp_path / "in", tmp_path / "out", *flags, "--balance", "nodes,train")

    assert ended.returncode == 0, ended.stderr
    _, parts = assignment.load(tmp_path / "out", graph)
    training = np.bincount(parts["a"][training_nodes.mask(graph, 0, 400)], minlength=2)
    assert training.max() <= (0.6 if balanced else 0.8) * training.sum()


@pytest.mark.mpi
@NEEDS_MPI
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("toy", "ranks", "parts"),
    [
        (a_toy(1, (12, 0, 5), (25, 9, 3)), 3, 5),
        (a_toy(2, (1, 1), (4, 2)), 4, 2),
        (a_toy(3, (9, 4), (0, 0)), 2, 3),
        (a_toy(4, (40,), (300,)), 2, 8),
        (a_toy(5, (30, 3), (60, 9)), 2, 1),
    ],
    ids=["empty type", "fewer nodes than ranks", "no edges", "dense", "one part"],
)
def test_odd_graphs_are_partitioned_by_ranks(
    tmp_path: Path, backend: str, toy: Toy, ranks: int, parts: int
) -> None:
    """Isolated nodes, ranks without nodes, types without nodes."""
    graph = ChunkedGraph.load(toy.write(tmp_path / "in", chunks=3))
    flags = ("--mode", "ParMETIS", "--backend", backend, "--num-parts", str(parts), "--ranks", str(ranks))

    ended = partition(tmp_path / "in", tmp_path / "out", *flags)

    assert ended.returncode == 0, ended.stderr
    meta, found = assignment.load(tmp_path / "out", graph)
    assert {ntype: len(each) for ntype, each in found.items()} == toy.nodes
    assert meta.num_parts == parts
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        [*(f"{ntype}.txt" for ntype in toy.nodes), "partition_meta.json"]
    )


@pytest.mark.mpi
@NEEDS_MPI
@pytest.mark.skipif(not library_here("zoltan"), reason="no libtrilinos_zoltan")
def test_bad_input_of_one_rank_ends_all_with_one_message(tmp_path: Path) -> None:
    """65, the file and the line once, and nothing written."""
    two_communities(tmp_path / "in")
    path = tmp_path / "in" / "edges" / "1-s-2.csv"
    path.write_text(path.read_text().replace("\n", "\n0 450\n", 1).rsplit("\n", 2)[0] + "\n")
    flags = ("--mode", "ParMETIS", "--backend", "zoltan", "--num-parts", "2", "--ranks", "3")

    ended = partition(tmp_path / "in", tmp_path / "out", *flags)

    assert ended.returncode == 65, ended.stderr
    assert ended.stderr.count("1-s-2.csv: line 2: expected a destination ID from 0 to 449, got 450") == 1
    assert not (tmp_path / "out").exists()


READS = """
import os
if rank := os.environ.get("OMPI_COMM_WORLD_RANK"):
    from dglrun.formats.chunked import read
    really = read.edge_blocks
    def telling(spec, start, stop, *args, **named):
        with open(os.environ["READ_BY"] + rank, "a") as file:
            file.write(f"{stop - start}\\n")
        return really(spec, start, stop, *args, **named)
    read.edge_blocks = telling
"""


@pytest.mark.mpi
@NEEDS_MPI
@pytest.mark.skipif(not library_here("zoltan"), reason="no libtrilinos_zoltan")
def test_each_rank_reads_only_its_share_of_the_edges(tmp_path: Path) -> None:
    """Together all rows once for the partitioning and once for its score."""
    graph = two_communities(tmp_path / "in")
    (tmp_path / "sitecustomize.py").write_text(READS)
    env = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "READ_BY": str(tmp_path / "rank-")}
    flags = ("--mode", "ParMETIS", "--backend", "zoltan", "--num-parts", "2", "--ranks", "3")

    ended = partition(tmp_path / "in", tmp_path / "out", *flags, **env)

    assert ended.returncode == 0, ended.stderr
    read_by = [sum(map(int, (tmp_path / f"rank-{rank}").read_text().split())) for rank in range(3)]
    total = sum(graph.num_edges)
    assert sum(read_by) % total == 0
    assert max(read_by) - min(read_by) <= 2 * sum(read_by) // total


def over_two_pods(folder: Path, before: str = "", backend: str = "zoltan") -> tuple[str, ...]:
    """Flags that run the ranks under the names of two pods on this machine, joined by interface `lo`.

    Open MPI's daemons get a folder of their own for temporary files, as they have in pods: two that share
    one now and then stumble over each other's.

    Args:
        folder: Takes the agent, its log and the hostfile.
        before: Shell text that the agent runs first, $1 being the pod.
        backend: Who partitions.
    """
    agent, hosts = folder / "agent.sh", folder / "hostfile"
    agent.write_text(
        "#!/bin/sh\n"
        f'echo "$1" >> {folder}/agent.log\n'
        f"{before}\n"
        f'export TMPDIR={folder}/"$1"; mkdir -p "$TMPDIR"; shift\n'
        'exec /bin/sh -c "$*"\n'
    )
    agent.chmod(0o755)
    hosts.write_text("10.0.0.1 30050 job-worker-0 slots=1\n10.0.0.2 30050 job-worker-1 slots=1\n")
    flags = ("--mode", "DistParMETIS", "--backend", backend, "--num-parts", "2", "--interface", "lo")
    return (*flags, "--hostfile", str(hosts), "--agent", str(agent))


@pytest.mark.mpi
@NEEDS_MPI
@pytest.mark.skipif(not library_here("zoltan"), reason="no libtrilinos_zoltan")
def test_an_agent_starts_the_ranks_instead_of_ssh(tmp_path: Path) -> None:
    """The whole DistParMETIS mode, with an agent that stays on this machine: two names, two folders."""
    graph = two_communities(tmp_path / "in")

    ended = partition(tmp_path / "in", tmp_path / "out", *over_two_pods(tmp_path))

    assert ended.returncode == 0, ended.stderr
    assert set((tmp_path / "agent.log").read_text().split()) == {"job-worker-0", "job-worker-1"}
    meta, _ = assignment.load(tmp_path / "out", graph)
    assert (meta.details["ranks"], meta.details["edge_cut_ratio"] < 0.06) == (2, True)


@pytest.mark.mpi
@NEEDS_MPI
def test_workers_deal_out_at_random_what_one_process_does(tmp_path: Path) -> None:
    """Mode DistParMETIS: the same assignment and score, without rows; a flag without effect is told once."""
    graph = two_communities(tmp_path / "in")
    one = partition(tmp_path / "in", tmp_path / "one", "--backend", "random", "--num-parts", "2")

    ended = partition(
        *(tmp_path / "in", tmp_path / "out"), *over_two_pods(tmp_path, backend="random"), "--balance", "train"
    )

    assert (one.returncode, ended.returncode) == (0, 0), ended.stderr
    told = "note: --balance train has no effect with --backend random: each part gets its share of each type"
    assert (one.stderr.count("note:"), ended.stderr.count(told)) == (0, 1)
    alone, together = (assignment.load(tmp_path / name, graph) for name in ("one", "out"))
    assert all((alone[1][ntype] == together[1][ntype]).all() for ntype in graph.ntypes)
    assert together[0].details == {
        **alone[0].details,
        "ranks": 2,
        "mpi": together[0].details["mpi"],
    }


@pytest.mark.mpi
@NEEDS_MPI
@pytest.mark.parametrize(("mine", "code"), [(True, 0), (False, 65)], ids=["whole", "one line short"])
def test_workers_take_an_assignment_that_the_user_brings(tmp_path: Path, mine: bool, code: int) -> None:
    """Mode DistParMETIS: checked, scored and written by all ranks; a bad one is told once."""
    graph = two_communities(tmp_path / "in")
    (tmp_path / "mine").mkdir()
    rng = np.random.default_rng(3)
    brought = {ntype: rng.integers(0, 2, count) for ntype, count in zip("ab", (450, 150), strict=True)}
    for ntype, parts in brought.items():
        lines = parts.tolist() if mine else parts.tolist()[1:]
        (tmp_path / "mine" / f"{ntype}.txt").write_text("".join(f"{part}\n" for part in lines))
    flags = (*over_two_pods(tmp_path, backend="user"), "--assignment", str(tmp_path / "mine"))

    ended = partition(tmp_path / "in", tmp_path / "out", *flags)

    assert ended.returncode == code, ended.stderr
    if not mine:
        assert ended.stderr.count("a.txt: expected 450 lines, one for each a node, got 449") == 1
        return
    meta, found = assignment.load(tmp_path / "out", graph)
    expected = partition_quality.of_assignment(graph, found, 2).details(graph.ntypes)
    assert {key: meta.details[key] for key in expected} == expected
    assert (meta.method, meta.details["ranks"]) == ("user", 2)
    assert all((found[ntype] == brought[ntype]).all() for ntype in graph.ntypes)


@pytest.mark.mpi
@NEEDS_MPI
@pytest.mark.parametrize(
    ("before", "words"),
    [
        ('[ "$1" != job-worker-1 ] || { echo "no such pod" >&2; exit 1; }', "no such pod"),
        ('[ "$1" != job-worker-1 ] || export OMPI_MCA_orte_tmpdir_base=/dev/null', "/dev/null"),
    ],
    ids=["agent", "daemon"],
)
def test_a_daemon_that_cannot_start_is_told_at_once(tmp_path: Path, before: str, words: str) -> None:
    """A detached daemon that fails says nothing, and mpirun would wait for it until the deadline."""
    two_communities(tmp_path / "in")

    ended = partition(tmp_path / "in", tmp_path / "out", *over_two_pods(tmp_path, before))

    assert ended.returncode == 69, ended.stderr
    assert words in ended.stderr
    assert "MPI could not be started on job-worker-0, job-worker-1 over interface lo" in ended.stderr
    assert not (tmp_path / "out").exists()


def with_nodes_for_all_parts(toy: Toy) -> Toy:
    """More parts than nodes are refused."""
    return replace(toy, parts=min(toy.parts, sum(toy.nodes.values())))


@pytest.mark.mpi
@NEEDS_MPI
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_random_heterographs_are_partitioned_and_scored(tmp_path: Path, backend: str, ranks: int) -> None:
    """Blocks of seven edges, so that every graph takes several rounds of the exchange."""
    every = {f"{at:02}": with_nodes_for_all_parts(toy) for at, toy in enumerate(random_toys(20))}
    for at, (name, toy) in enumerate(every.items()):
        toy.write(tmp_path / name, chunks=1 + at % 5, fmt=("csv", "parquet", "numpy")[at % 3])
        (tmp_path / name / "num_parts").write_text(str(toy.parts))
    program = (
        sys.executable,
        "-m",
        "mpi4py",
        "-m",
        "tests.unit.dglrun.partitioning.mpi_many",
        backend,
        str(tmp_path),
    )

    code = mpirun.run(mpirun.argv(mpirun.Job(program, ranks, cwd=str(ROOT))), 400)

    assert code == 0
    for name, toy in every.items():
        graph = ChunkedGraph.load(tmp_path / name)
        meta, parts = assignment.load(tmp_path / name / "out", graph)
        expected = partition_quality.of_assignment(graph, parts, toy.parts).details(graph.ntypes)
        assert {key: meta.details[key] for key in expected} == expected, name


SCOTCH = Path("/usr/lib/x86_64-linux-gnu/libptscotchparmetisv3-7.0.so")


@pytest.mark.mpi
@NEEDS_MPI
@pytest.mark.skipif(not SCOTCH.is_file(), reason="no libptscotch (Debian: libptscotch-7.0)")
def test_parmetis_is_called_as_its_interface_demands(tmp_path: Path) -> None:
    """PT-Scotch's layer has ParMETIS's interface and is free: it stands in under ParMETIS's file name.

    It knows one weight only, so it is the call and the way of the result that this proves.
    """
    graph = two_communities(tmp_path / "in")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libparmetis.so.4.0").symlink_to(SCOTCH)
    errors = SCOTCH.with_name("libptscotcherr-7.0.so")
    flags = ("--mode", "ParMETIS", "--num-parts", "2", "--ranks", "2", "--balance", "nodes")

    ended = partition(
        tmp_path / "in",
        tmp_path / "out",
        *flags,
        LD_LIBRARY_PATH=str(tmp_path / "lib"),
        LD_PRELOAD=str(errors),
    )

    assert ended.returncode == 0, ended.stderr
    meta, parts = assignment.load(tmp_path / "out", graph)
    assert (meta.method, meta.details["library"]) == ("parmetis", "libparmetis.so.4.0")
    assert meta.details["edge_cut_ratio"] < 0.06
    assert partition_quality.of_assignment(graph, parts, 2).cut == meta.details["edge_cut"]


@pytest.mark.mpi
@NEEDS_MPI
@pytest.mark.skipif(not library_here("zoltan"), reason="no libtrilinos_zoltan")
def test_ranks_without_a_folder_in_common_each_get_the_whole(tmp_path: Path) -> None:
    """As worker pods with own disks do: here every rank has its own --out-dir."""
    graph = two_communities(tmp_path / "in")
    flags = {
        "--in-dir": str(tmp_path / "in"), "--metadata-filename": "metadata.json", "--backend": "zoltan",
        "--num-parts": "3", "--seed": "1", "--balance": "edges", "--imbalance": "1.05",
    }  # fmt: skip
    rank = (
        sys.executable,
        "-m",
        "mpi4py",
        "-m",
        "dglrun.commands.partition_rank",
        *(word for pair in flags.items() for word in pair),
    )
    first = mpirun.argv(mpirun.Job((*rank, "--out-dir", str(tmp_path / "0")), 1, cwd=str(ROOT)), cpus=2)
    told = {f"{mpirun.WORLD_SIZE}=1": f"{mpirun.WORLD_SIZE}=2"}

    code = mpirun.run(
        (
            *(told.get(word, word) for word in first),
            ":",
            "-np",
            "1",
            "-wdir",
            str(ROOT),
            *rank,
            "--out-dir",
            str(tmp_path / "1"),
        ),
        60,
    )

    found = [assignment.load(tmp_path / name, graph) for name in ("0", "1")]
    assert (code, found[0][0]) == (0, found[1][0])
    assert all((found[0][1][ntype] == found[1][1][ntype]).all() for ntype in graph.ntypes)
    assert found[0][0].details["ranks"] == 2


@given(st.integers(1, 40), st.integers(1, 9))
def test_every_node_has_one_owner(nodes: int, ranks: int) -> None:
    """And every owner has a node."""
    layout = CyclicDistribution.of(nodes, ranks)

    owned = [layout.ids(rank) for rank in range(ranks)]

    assert sorted(np.concatenate(owned).tolist()) == list(range(nodes))
    assert all(len(owned[rank]) == layout.size(rank) for rank in range(ranks))
    assert all(layout.size(rank) for rank in range(layout.owners))
    owners, local = layout.locate(np.arange(nodes))
    assert all(owned[owner][at] == node for node, (owner, at) in enumerate(zip(owners, local, strict=True)))
    assert layout.starts.tolist() == [sum(map(len, owned[:rank])) for rank in range(layout.owners + 1)]


@given(st.integers(0, 1 << 40), st.lists(st.integers(0, 9), min_size=1, max_size=4))
def test_what_stretches_say_of_nodes_comes_to_their_owners(first: int, lengths: list[int]) -> None:
    """In the order of their rows, with IDs of 64 bits and ranks that know nothing."""
    ends = [first + sum(lengths[: rank + 1]) for rank in range(len(lengths))]
    nodes = CyclicDistribution((1 << 40) + 40, len(lengths))

    def work(ranks: ThreadRanks) -> list[int]:
        start = ends[ranks.rank] - lengths[ranks.rank]
        return to_owners(ranks, nodes, start, np.arange(start, ends[ranks.rank])).tolist()  # type: ignore[no-any-return]

    found = on_ranks(len(lengths), work)

    for rank, ids in enumerate(found):
        assert ids == [node for node in range(first, ends[-1]) if node % len(lengths) == rank]
        owners, local = nodes.locate(np.array(ids, np.int64))
        assert (owners == rank).all()
        assert (local * nodes.owners + rank == ids).all()


@pytest.mark.skipif(library_here("parmetis"), reason="libparmetis is installed")
def test_an_absent_parmetis_says_what_to_install_and_runs_nothing_else(tmp_path: Path) -> None:
    """The default of the ParMETIS mode; never silently another back end."""
    a_toy().write(tmp_path / "in")

    ended = partition(tmp_path / "in", tmp_path / "out", "--mode", "ParMETIS", "--num-parts", "2")

    assert ended.returncode == 69
    assert "back end parmetis: libparmetis.so.4.0 was not found" in ended.stderr
    assert "ACCEPT_PARMETIS_LICENSE=yes" in ended.stderr
    assert not (tmp_path / "out").exists()
