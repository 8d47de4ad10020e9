"""The partition modes that take a chunked graph: dglrun's own pipeline in the place of a script."""

import json
import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from dglrun.errors import RunError
from dglrun.transfer.streams import Streams
from dglrun.workflow.config import ConfigError
from dglrun.workflow.executor import Executor
from dglrun.workflow.progress import Reporter
from dglrun.workflow.steps import CheckPartition, PlanPhase, Run, VerifyPartition
from tests.support.dglrun_pods import Done, Pods, write_partition
from tests.support.heterographs import a_toy
from tests.support.needs import NEEDS_KAMINPAR
from tests.unit.dglrun.conftest import PodsOf
from tests.unit.dglrun.workflow.builders import a_config

MODERN = os.environ.get("DGLRUN_MODERN_PYTHON")


def partition(pods: Pods, mode: str, *more: str) -> Done:
    """Run the partitioner's part on a small heterograph."""
    a_toy(nodes=(60, 40), edges=(300, 200), parts=2).write(pods.root / "chunks")
    places = ("--workspace", "ws", "--dataset-dir", "dataset")
    flags = ("-g", "toy", "--num-partitions", "2", "--chunked-graph", str(pods.root / "chunks"), *more)
    env = {"DGL_OPERATOR_PARTITION_MODE": mode}
    return pods.run(*flags, *places, phase="Partitioner", where="partitioner", **env)


def is_delivered(pods: Pods, done: Done) -> None:
    """The parts are on the launcher, proved against their source, and their quality is reported."""
    assert done.code == 0, done.output
    assert "source: sound" in done.output
    assert "DGL's loader: sound" in done.output
    quality = pods.quality()
    assert quality
    assert (quality["numParts"], quality["verified"]) == (2, True)
    dataset = pods.launcher / "dataset"
    assert json.loads((dataset / "toy.json").read_text())["num_parts"] == 2
    assert (dataset / "part1/orig_nids.dgl").is_file()


@pytest.mark.mpi
@pytest.mark.parametrize("backend", ["metis", "random", pytest.param("kaminpar", marks=NEEDS_KAMINPAR)])
def test_dgl_api_takes_a_chunked_graph_without_a_script(pods_of: PodsOf, backend: str) -> None:
    """Assigned, dispatched, verified against the source with the mapping kept, delivered."""
    pods = pods_of()

    done = partition(pods, "DGL-API", "--partition-backend", backend)

    is_delivered(pods, done)


def test_parmetis_mode_takes_an_assignment_that_the_user_brings(pods_of: PodsOf) -> None:
    """Dispatched, verified and delivered like any other; the quality says whose it is."""
    pods = pods_of()
    brought = ("--partition-backend", "user", "--partition-assignment", str(pods.root / "chunks/parts"))

    done = partition(pods, "ParMETIS", *brought)

    is_delivered(pods, done)
    assert (pods.quality() or {})["method"] == "user"


@pytest.mark.mpi
def test_parmetis_mode_partitions_by_several_processes(pods_of: PodsOf) -> None:
    """Here by the free back end, which the log names."""
    pods = pods_of()

    done = partition(pods, "ParMETIS", "--partition-backend", "zoltan", "--partition-ranks", "2")

    is_delivered(pods, done)
    assert "zoltan made 2 parts" in done.output


def test_a_back_end_that_is_not_there_is_said(pods_of: PodsOf) -> None:
    """Nothing else runs silently in its place; nothing is delivered."""
    pods = pods_of()

    done = partition(pods, "DGL-API", "--partition-backend", "zoltan")

    assert done.code == 2
    assert "--partition-backend is zoltan: mode DGL-API has metis, random" in done.message
    assert not (pods.launcher / "dataset").exists()


@pytest.mark.mpi
def test_a_part_that_dgl_cannot_serve_is_refused_before_it_is_delivered(pods_of: PodsOf) -> None:
    """A type with one node is in one part only, and DGL's server cannot map the other's empty feature."""
    pods = pods_of()
    a_toy(nodes=(60, 1), edges=(300, 200), parts=2).write(pods.root / "one")

    done = partition(
        pods,
        "ParMETIS",
        *("--chunked-graph", str(pods.root / "one")),
        *("--partition-backend", "zoltan", "--partition-balance", "nodes"),
    )

    assert done.code == 65
    assert "no node of type n1, which has features: DGL's server cannot load it; partition" in done.message
    assert not (pods.launcher / "dataset").exists()


@pytest.mark.parametrize("mode", ["DGL-API", "ParMETIS"])
def test_graphbolt_needs_a_dgl_that_knows_it(pods_of: PodsOf, mode: str) -> None:
    """Said before any part is made."""
    pods = pods_of()

    done = partition(pods, mode, "--partition-backend", "random", "--use-graphbolt")

    assert done.code == 2
    assert "--use-graphbolt needs dgl 2.1 or newer; this Python has dgl 1.1.3" in done.message
    assert not (pods.launcher / "dataset").exists()


@pytest.mark.parametrize("mode", ["DGL-API", "ParMETIS"])
@pytest.mark.skipif(not MODERN, reason="DGLRUN_MODERN_PYTHON names no Python with dgl 2.1")
def test_graphbolts_form_is_delivered_with_the_parts(pods_of: PodsOf, mode: str) -> None:
    """By DGL's own converter, or by our dispatch; DGL's loader finds the same graph in it."""
    pods = pods_of()

    done = partition(pods, mode, "--partition-backend", "random", "--use-graphbolt", "--python", str(MODERN))

    is_delivered(pods, done)
    dataset = pods.launcher / "dataset"
    described = json.loads((dataset / "toy.json").read_text())
    for part in ("part-0", "part-1"):
        assert (dataset / described[part]["part_graph_graphbolt"]).is_file()


@pytest.mark.parametrize("code", [0, 65])
def test_what_is_too_large_to_verify_is_still_asked_whether_dgl_can_serve_it(
    tmp_path: Path, code: int
) -> None:
    """Beyond the limit only names and shapes are read, which costs nothing."""
    write_partition(tmp_path, 2)
    config = str(tmp_path / "tiny.json")
    serving = Run(("sh", "-c", f"exit {code}"), title="verify")
    steps = (CheckPartition(config, 2), VerifyPartition(config, Run(("false",)), serving, limit=1))
    executor = Executor(None, Streams(), Reporter(None, None))

    with pytest.raises(RunError, match="verify ended with exit code 65") if code else nullcontext():
        executor.perform([PlanPhase(2, 5, "job-partitioner", "deliver", "Delivering", steps)])


@pytest.mark.parametrize(
    ("mode", "phase", "args", "words"),
    [
        ("ParMETIS", "Partitioner", (), "--chunked-graph is missing: the Partitioner needs it"),
        ("DistParMETIS", None, (), "--chunked-graph is missing: the Launcher needs it"),
        ("DistParMETIS", None, ("--chunked-graph", "c"), "--partition-entry-point: mode DistParMETIS takes"),
        ("DGL-API", "Partitioner", ("--partition-ranks", "2"), "DGL-API partitions in one process"),
        (
            "DistParMETIS",
            None,
            ("--partition-backend", "metis"),
            "has parmetis, zoltan, streaming, random, user",
        ),
        ("DistParMETIS", None, ("--chunked-graph", "c", "--partition-ranks", "1"), "expected one for each"),
        (
            "ParMETIS",
            "Partitioner",
            ("--partition-backend", "user"),
            "--partition-assignment DIR and --partition-backend",
        ),
        (
            "ParMETIS",
            "Partitioner",
            ("--partition-assignment", "d"),
            "--partition-assignment DIR and --partition-backend",
        ),
        ("DGL-API", "Partitioner", ("--use-graphbolt",), "--use-graphbolt goes with --chunked-graph"),
    ],
)
def test_each_mode_says_what_it_needs(
    mode: str, phase: str | None, args: tuple[str, ...], words: str
) -> None:
    """Before anything runs."""
    with pytest.raises(ConfigError) as error:
        a_config("--num-partitions", "2", *args, phase=phase, env={"DGL_OPERATOR_PARTITION_MODE": mode})
    assert words in str(error.value)


@pytest.mark.parametrize("backend", [None, "zoltan", "streaming", "random", "user"])
def test_workers_have_a_default_and_what_they_are_told(backend: str | None) -> None:
    """The default of mode DistParMETIS has not changed with the others."""
    named = ("--partition-backend", backend) if backend else ()
    brought = ("--partition-assignment", "/parts") if backend == "user" else ()
    env = {"DGL_OPERATOR_PARTITION_MODE": "DistParMETIS"}
    base = ("-g", "g", "--train-entry-point", "code/train.py", "--chunked-graph", "c")

    config = a_config("--num-partitions", "2", *named, *brought, env=env, base=base)

    assert config.assigner == (backend or "parmetis")
