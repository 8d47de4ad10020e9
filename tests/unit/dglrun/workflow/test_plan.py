"""Plans are data: what `--dry-run` prints is held by golden files."""

import shlex
from collections.abc import Sequence

import pytest
import yaml

from dglrun.cli.workflow import workflow
from dglrun.workflow.plan import ip_config, plan
from dglrun.workflow.steps import PlanPhase, Run, StartAgents, Train, WorkerAgent
from tests.support import golden
from tests.unit.dglrun.workflow.builders import a_config, hosts

GRAPHSAGE = (
    "--graph-name graphsage --partition-entry-point code/load_and_partition_graph.py "
    "--train-entry-point code/train_dist.py --num-epochs 1 --batch-size 1000"
)
CASES = {
    "workers-1": f"{GRAPHSAGE} --num-partitions 1",
    "workers-2": f"{GRAPHSAGE} --num-partitions 2 --num-trainers 2 --num-samplers 1 --num-servers 2"
    " --hang-timeout 1800 -- --lr 0.1",
    "workers-12": f"{GRAPHSAGE} --num-partitions 12",
    "gpu": f"{GRAPHSAGE} --num-partitions 2 --num-trainers 4 --num-gpus 4 --backend nccl",
    "kept-script": f"{GRAPHSAGE} --num-partitions 2 --partitions /kept",
    "edges": f"{GRAPHSAGE} --num-partitions 2 --graph-format csc,coo --workspace /data --output-dir /keep",
}
OF_2021 = {
    "2021-graphsage-dist": f"{GRAPHSAGE} --num-partitions 2 --balance-train --balance-edges "
    "--num-trainers 1 --num-samplers 4 --num-servers 1",
    "2021-tools": f"{GRAPHSAGE} --num-partitions 2 --worksapce /dgl_workspace --num-workers 4 "
    "--dataset-url https://example.org/reddit.zip "
    "--partition-config-path /dgl_workspace/dataset/graphsage.json "
    "--dispatch-entry-point tools/dispatch.py --launch-entry-point tools/launch.py "
    "--revise-hostfile-entry-point tools/revise_hostfile.py",
}
SKIP_OF_2021 = {
    f"2021-skip-{name}": f"--train-entry-point code/{name}.py"
    for name in ("graphsage", "node_classification", "link_predict", "graph_classification")
}
PIPELINE = "--graph-name g --chunked-graph /data/g --train-entry-point code/train.py --num-partitions 2"
SKIP = {"skip-chosen": "--train-entry-point code/train.py --num-epochs 7 --batch-size 9 -- --lr 0.1"}
MODES = {
    "chunked": ("DGL-API", f"{PIPELINE} --partition-backend random"),
    "chunked-kaminpar": ("DGL-API", f"{PIPELINE} --partition-backend kaminpar"),
    "chunked-balanced": ("DGL-API", f"{PIPELINE} --balance-train --balance-edges --use-graphbolt"),
    "assigned": ("ParMETIS", f"{PIPELINE} --partition-backend user --partition-assignment /data/parts"),
    "parmetis": ("ParMETIS", f"{PIPELINE} --partition-ranks 4 --balance-train"),
    "kept-chunked": ("DGL-API", f"{PIPELINE} --partitions s3://graphs/kept --repartition"),
    "kept-distparmetis": (
        "DistParMETIS",
        f"{PIPELINE} --partition-backend zoltan --partitions s3://graphs/kept",
    ),
    "distparmetis": ("DistParMETIS", f"{PIPELINE} --partition-backend zoltan --interface net1"),
    "distparmetis-user": (
        "DistParMETIS",
        f"{PIPELINE} --partition-backend user --partition-assignment /data/parts",
    ),
    "storage": (
        "DistParMETIS",
        f"{PIPELINE.replace('/data/g', 's3://graphs/g')} --output s3://models/run-1",
    ),
}


@pytest.fixture(autouse=True)
def _no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DGL_OPERATOR_ENV", "DGL_OPERATOR_JOB_NAME", "DGL_OPERATOR_PHASE_ENV"):
        monkeypatch.delenv(name, raising=False)


def agents(phases: Sequence[PlanPhase]) -> list[WorkerAgent]:
    """The agents that a plan starts."""
    starts = [step for phase in phases for step in phase.steps if isinstance(step, StartAgents)]
    return [agent for step in starts for agent in step.agents]


@pytest.mark.parametrize("verbose", [True, False])
@pytest.mark.parametrize("name", [*CASES, *OF_2021, *SKIP_OF_2021, *SKIP, *MODES])
def test_plans_are_as_agreed(
    name: str,
    verbose: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each shape of command line, those of 2021 among them, gives the plan in its golden files."""
    if name in {**SKIP_OF_2021, **SKIP}:
        monkeypatch.setenv("DGL_OPERATOR_PHASE_ENV", "Launcher_Workload")
    mode, line = MODES.get(name, ("DGL-API", {**CASES, **OF_2021, **SKIP_OF_2021, **SKIP}.get(name, "")))
    monkeypatch.setenv("DGL_OPERATOR_PARTITION_MODE", mode)

    more = ["-v"] if verbose else []

    code = workflow(["--dry-run", *more, "--python", "/usr/bin/python3", *shlex.split(line)])

    assert code == 0
    folder = "plan" if verbose else "dry_run"
    golden.check(f"{folder}/{name}", f"# dglrun {line}\n{capsys.readouterr().out}")


def test_twelve_workers_keep_their_order() -> None:
    """Worker i has part i, line i, machine i: integer order, not that of strings."""
    config = a_config("--num-partitions", "12", workers=12)

    phases = plan(config, hosts(12))

    steps = agents(phases)
    lines = steps[0].spec.files[ip_config(config)].splitlines()
    assert lines == [f"10.0.0.{index + 1} 30050" for index in range(12)]
    assert [step.host.name for step in steps] == [f"job-worker-{index}" for index in range(12)]
    for index, step in enumerate(steps):
        server, trainer = step.spec.processes
        assert server.env["DGL_SERVER_ID"] == str(index)
        assert trainer.env["RANK"] == str(index)


def test_ranks_and_clients_are_counted_over_all_workers() -> None:
    """World size M x T, ranks without gap, DGL_NUM_CLIENT = M x T x (1 + K), server IDs m x S + s."""
    config = a_config("--num-trainers", "2", "--num-samplers", "3", "--num-servers", "2", workers=3)

    phases = plan(config, hosts(3))

    processes = [process for agent in agents(phases) for process in agent.spec.processes]
    trainers = [process for process in processes if process.rank is not None]
    servers = [process for process in processes if process.rank is None]
    assert [trainer.env["RANK"] for trainer in trainers] == ["0", "1", "2", "3", "4", "5"]
    assert {trainer.env["WORLD_SIZE"] for trainer in trainers} == {"6"}
    assert [trainer.env["LOCAL_RANK"] for trainer in trainers] == ["0", "1"] * 3
    assert {process.env["DGL_NUM_CLIENT"] for process in processes} == {"24"}
    assert [server.env["DGL_SERVER_ID"] for server in servers] == ["0", "1", "2", "3", "4", "5"]
    assert {trainer.env["MASTER_ADDR"] for trainer in trainers} == {"10.0.0.1"}


def test_an_interpreter_with_python_in_its_path_stays_intact() -> None:
    """2021 replaced each `python` in the command by other text."""
    config = a_config(
        "--python",
        "/opt/python3/bin/python3",
        "--train-entry-point",
        "/opt/python3/train.py",
        "--",
        "python3",
    )

    phases = plan(config, hosts(2))

    argv = agents(phases)[0].spec.processes[0].argv
    assert argv[:4] == (
        "/opt/python3/bin/python3",
        "-m",
        "dglrun.agent.script_runner",
        "/opt/python3/train.py",
    )
    assert argv[-1] == "python3"


def test_the_plan_of_a_pod_holds_its_own_phases(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a job each role shows what it does itself."""
    monkeypatch.setenv("DGL_OPERATOR_ENV", "1")
    monkeypatch.setenv("DGL_OPERATOR_NUM_WORKERS", "2")

    workflow(["--dry-run", *shlex.split(GRAPHSAGE)])
    launcher = yaml.safe_load(capsys.readouterr().out)
    monkeypatch.setenv("DGL_OPERATOR_PHASE_ENV", "Partitioner")
    workflow(["--dry-run", *shlex.split(GRAPHSAGE), "--num-partitions", "2"])
    partitioner = yaml.safe_load(capsys.readouterr().out)

    assert [phase["phase"][:3] for phase in launcher["phases"]] == ["3/5", "4/5", "5/5"]
    assert [phase["phase"][:3] for phase in partitioner["phases"]] == ["1/5", "2/5"]


@pytest.mark.parametrize(
    ("gpus", "flags", "watched", "seconds"),
    [
        (0, (), (), None),
        (0, ("--hang-timeout", "90"), ("output", "cpu"), 90.0),
        (1, ("--hang-timeout", "90"), ("output",), 90.0),
    ],
)
def test_agents_watch_what_tells_of_a_hang(
    gpus: int, flags: tuple[str, ...], watched: tuple[str, ...], seconds: float | None
) -> None:
    """Nothing unless it is asked for; on a GPU a rank that waits keeps a CPU busy."""
    phases = plan(a_config(*flags, gpus=gpus), hosts(2))

    trains = [step for phase in phases for step in phase.steps if isinstance(step, Train)]
    assert {agent.spec.watched for agent in agents(phases)} == {watched}
    assert [step.hang_seconds for step in trains] == [seconds]


@pytest.mark.parametrize("phase", ["Launcher", "Launcher_Workload"])
def test_the_place_of_the_output_is_checked_first(phase: str) -> None:
    """In both modes of training; without --output nothing is checked."""
    before, *_ = [step for each in plan(a_config(phase=phase), hosts(2)) for step in each.steps]
    phases = plan(a_config("--output", "/kept", phase=phase), hosts(2))
    first, second, *_ = [step for each in phases for step in each.steps]

    assert isinstance(first, Run)
    assert first.argv[-3:] == ("--check", "--to", "/kept")
    assert second == before
    assert phases[0].at_end == ()
