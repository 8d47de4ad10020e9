"""What `--dry-run` shows: few lines in a user's terms, all of it with `-v`, both made of the plan alone."""

import shlex
from collections.abc import Iterator, Sequence
from typing import Any, get_args

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dglrun.cli.workflow import workflow
from dglrun.workflow import dry_run
from dglrun.workflow.config import RunConfig
from dglrun.workflow.steps import (
    CheckPartition,
    Collect,
    InParallel,
    PlanPhase,
    Serve,
    StartAgents,
    Step,
    Train,
)
from tests.support.dglrun_pods import ROOT
from tests.unit.dglrun.workflow.builders import a_config

LINES = 90
"""For two workers, whatever the flags."""

SCRIPT = ("--partition-entry-point", "code/part.py")
CHUNKS = ("--chunked-graph", "/data/g")
KEPT = ("--partitions", "s3://bucket/kept")
STORED = (*KEPT, "--checkpoints", "s3://bucket/saved", "--output", "s3://bucket/out")
SHAPES = {
    "DGL-API, script": ("DGL-API", SCRIPT),
    "DGL-API, chunked graph": ("DGL-API", CHUNKS),
    "DGL-API, script that writes the chunks": ("DGL-API", (*SCRIPT, *CHUNKS)),
    "ParMETIS": ("ParMETIS", CHUNKS),
    "ParMETIS, script that writes the chunks": ("ParMETIS", (*SCRIPT, *CHUNKS)),
    "DistParMETIS": ("DistParMETIS", CHUNKS),
    "Skip": ("Skip", ()),
}
KEEPING = {
    "a script's partition, kept": ("DGL-API", (*SCRIPT, *KEPT)),
    "a chunked graph's partition, kept": ("DGL-API", (*CHUNKS, *KEPT)),
    "ParMETIS, kept": ("ParMETIS", (*CHUNKS, *KEPT)),
    "DistParMETIS, kept": ("DistParMETIS", (*CHUNKS, *KEPT)),
    "all on storage": ("DistParMETIS", ("--chunked-graph", "s3://bucket/g", *STORED)),
}
"""Shapes of jobs that keep things elsewhere."""
WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=150)


def configuration(
    shape: str, *more: str, in_job: bool = True, phase: str | None = None, workers: int = 2
) -> RunConfig:
    """A configuration of a shape; outside of a job it describes all pods."""
    mode, source = {**SHAPES, **KEEPING}[shape]
    phase = "Launcher_Workload" if mode == "Skip" else phase
    training = ("-g", "g", "--train-entry-point", "code/train.py")
    flags = ("--num-partitions", str(workers), *training, *source, *more)
    env = {"DGL_OPERATOR_PARTITION_MODE": mode, "DGL_OPERATOR_IMAGE": "example/train@sha256:0"}
    base = a_config(phase=phase, workers=workers, gpus=9, env=env, base=flags)
    return base.model_copy(update={"context": base.context.model_copy(update={"in_job": in_job})})


def head(phases: Sequence[PlanPhase]) -> dict[str, str]:
    """What stands above the phases."""
    return {"role": "Launcher", "job": "job", "of": str(len(phases))}


def flat(phases: Sequence[PlanPhase]) -> Iterator[Step]:
    """The steps of a plan in their order, those that run in parallel too."""
    for phase in phases:
        for step in (*phase.steps, *phase.at_end):
            yield step
            yield from step.steps if isinstance(step, InParallel) else ()


def names_of(shown: dict[str, Any]) -> Iterator[str]:
    """The names of the steps as a dry run shows them, in their order."""
    for phase in shown["phases"]:
        yield from _names([*phase["steps"], *phase.get("however_these_end", [])])


def _names(steps: list[dict[str, Any]]) -> Iterator[str]:
    for step in steps:
        ((name, values),) = step.items()
        yield name
        yield from _names(values["steps"]) if name == "InParallel" else ()


@pytest.mark.parametrize("in_job", [True, False])
@pytest.mark.parametrize("shape", [*SHAPES, *KEEPING])
def test_two_workers_take_90_lines_at_most(shape: str, in_job: bool) -> None:
    """Issue 10's bound, for what each role shows in a job and for what all show outside of one."""
    for phase in (None, "Partitioner") if in_job and shape != "DistParMETIS" else (None,):
        shown = dry_run.as_yaml(configuration(shape, in_job=in_job, phase=phase))

        assert shown.count("\n") <= LINES


@given(
    shape=st.sampled_from(sorted(SHAPES)),
    counts=st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(0, 9)),
    is_nccl=st.booleans(),
    in_job=st.booleans(),
    script_args=st.lists(WORDS, max_size=20),
)
def test_lines_do_not_grow_with_processes_or_arguments(
    shape: str, counts: tuple[int, int, int], is_nccl: bool, in_job: bool, script_args: list[str]
) -> None:
    """Trainers are shown as ranges of ranks and a command is one line, so that the bound holds for all."""
    trainers, servers, samplers = (str(count) for count in counts)
    nccl = ("--backend", "nccl", "--num-gpus", trainers) if is_nccl else ()
    numbers = ("--num-trainers", trainers, "--num-servers", servers, "--num-samplers", samplers)

    shown = dry_run.as_yaml(configuration(shape, *numbers, *nccl, "--", *script_args, in_job=in_job))

    assert shown.count("\n") <= LINES
    commands = [text for text in _texts(yaml.safe_load(shown)) if "code/train.py" in text]
    assert [shlex.split(command)[-len(script_args) or None :] for command in commands] == [
        [*script_args] or shlex.split(commands[0])
    ]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for item in value.values() for text in _texts(item))
    elif isinstance(value, list):
        yield from (text for item in value for text in _texts(item))


@settings(max_examples=30)  # the long form is slow to read
@given(
    shape=st.sampled_from(sorted(SHAPES)),
    in_job=st.booleans(),
    workers=st.integers(1, 4),
    verify=st.sampled_from(["auto", "always", "never"]),
    place=WORDS.filter(bool),
)
def test_long_and_short_form_show_the_same_steps_in_the_same_order(
    shape: str, in_job: bool, workers: int, verify: str, place: str
) -> None:
    """Both are valid YAML and made of the plan alone; neither leaves a step out."""
    more = (f"--workspace=/{place}", "--verify", verify)
    phases = dry_run.phases(configuration(shape, *more, in_job=in_job, workers=workers))
    expected = [type(step).__name__ for step in flat(phases)]

    short, full = (form(phases, head(phases)) for form in (dry_run.short, dry_run.full))

    assert list(names_of(yaml.safe_load(short))) == expected
    assert list(names_of(yaml.safe_load(full))) == expected


@given(
    shape=st.sampled_from(sorted({*SHAPES} - {"Skip"})),
    workers=st.integers(1, 20),
    trainers=st.integers(1, 5),
    seconds=st.integers(1, 9000),
)
def test_a_plan_says_all_that_its_execution_depends_on(
    shape: str, workers: int, trainers: int, seconds: int
) -> None:
    """Train follows the agents' start and comes before the collects; deadlines stand in the steps."""
    more = ("--num-trainers", str(trainers), "--start-timeout", str(seconds))
    steps = list(flat(dry_run.phases(configuration(shape, *more, in_job=False, workers=workers))))

    (start,) = (step for step in steps if isinstance(step, StartAgents))
    (train,) = (step for step in steps if isinstance(step, Train))
    collects = [step for step in steps if isinstance(step, Collect)]
    serves = [step for step in steps if isinstance(step, Serve)]
    order = [at for at, step in enumerate(steps) if isinstance(step, StartAgents | Train | Collect)]
    pods = tuple(f"job-worker-{index}" for index in range(workers))
    ranks = [process.rank for agent in start.agents for process in agent.spec.processes]
    assert [type(steps[at]) for at in order] == [StartAgents, Train, *[Collect] * workers]
    assert pods == train.workers == tuple(agent.host.name for agent in start.agents)
    assert [rank for rank in ranks if rank is not None] == list(range(train.world_size))
    assert pods == tuple(step.pod for step in collects)
    assert len({step.folder for step in collects}) == workers
    deadlines = [step.seconds for step in collects] + [step.seconds for step in serves]
    assert {start.seconds, *deadlines} == {float(seconds)}
    for serve in serves:
        checks = [step.config for step in steps[: steps.index(serve)] if isinstance(step, CheckPartition)]
        assert serve.config in checks


def test_every_step_stands_in_the_reference() -> None:
    """A dry run names steps; the reference says what each does."""
    reference = (ROOT / "docs/reference/dglrun.md").read_text()

    assert [step.__name__ for step in get_args(Step) if f"`{step.__name__}`" not in reference] == []


def test_verbose_prints_what_the_short_form_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    """Receivers, specs and every variable of every process."""
    args = shlex.split(
        "--dry-run -g g --num-partitions 2 --partition-entry-point p.py --train-entry-point t.py"
    )

    workflow(args)
    short = capsys.readouterr().out
    workflow([*args, "--verbose"])
    full = capsys.readouterr().out

    for word in ("dglrun.transfer.pull", "DGL_SERVER_ID", "kubectl", "dglrun.agent]"):
        assert word in full
        assert word not in short


def test_verbose_alone_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    """It would change nothing, which is said before anything runs."""
    code = workflow(["-v", "-g", "g", "--num-partitions", "2", "--train-entry-point", "t.py"])

    assert code == 2
    assert "--verbose: expected --dry-run with it" in capsys.readouterr().err
