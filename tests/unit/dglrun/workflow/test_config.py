"""The command line and the pod's environment: accepted as in 2021, refused with one clear line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglrun.cli import parse, split
from dglrun.commands.arguments import UsageError
from dglrun.workflow.config import ConfigError
from tests.unit.dglrun.workflow.builders import a_config, a_context


@given(st.lists(st.text(max_size=6).filter(lambda word: word != "--")), st.lists(st.text(max_size=6)))
def test_what_follows_the_dashes_is_the_scripts(own: list[str], script: list[str]) -> None:
    """Only the first -- divides; the rest arrives word for word, further dashes included."""
    assert split([*own, "--", *script]) == (own, tuple(script))


def test_without_dashes_the_script_gets_nothing() -> None:
    """All words are ours."""
    assert split(["-g", "x"]) == (["-g", "x"], ())


@pytest.mark.parametrize("spelling", ["--workspace", "--worksapce"])
def test_both_spellings_of_the_workspace_are_understood(spelling: str) -> None:
    """2021 knew the wrong one only."""
    assert a_config(spelling, "/data").workspace == "/data"


def test_flags_of_2021_without_effect_are_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    """They change nothing, and a note says so."""
    tools = ("--dispatch-entry-point", "tools/dispatch.py", "--launch-entry-point", "tools/launch.py")
    more = ("--revise-hostfile-entry-point", "tools/revise_hostfile.py", "--num-workers", "4")

    config = a_config(*tools, *more)

    assert config == a_config()
    assert "note: --launch-entry-point tools/launch.py has no effect" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--num-epoch", "1"], "unknown argument '--num-epoch': did you mean --num-epochs?"),
        (["--batchsize=5"], "unknown argument '--batchsize=5': did you mean --batch-size?"),
        (["train.py"], "unknown argument 'train.py'"),
        (["--lr", "0.1"], "arguments of the training script go behind --"),
        (["--num-epochs"], "expected one argument"),
    ],
)
def test_an_unknown_argument_is_an_error(args: list[str], words: str) -> None:
    """2021 dropped it without a word."""
    with pytest.raises(UsageError) as error:
        parse(args)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--num-trainers", "0"), "--num-trainers: input should be greater than or equal to 1, got '0'"),
        (("--hang-timeout", "0"), "--hang-timeout: input should be greater than 0, got '0'"),
        (("--num-epochs", "x"), "--num-epochs: input should be a valid integer"),
        (("--backend", "mpi"), "--backend: input should be 'gloo' or 'nccl', got 'mpi'"),
        (("--graph-format", "csc,cox"), "--graph-format: expected one or more of coo, csc, csr"),
        (("-g", "a/b"), "--graph-name: expected a name without '/'"),
        (
            ("--num-partitions", "3"),
            "--num-partitions is 3, but the job has 2 workers (DGL_OPERATOR_NUM_WORKERS): "
            "expected the same number",
        ),
        (("--num-gpus", "1"), "--num-gpus is 1, but a worker has 0 GPUs"),
        (("--backend", "nccl"), "--backend nccl needs GPUs"),
        (("--output", "models"), "--output: expected an absolute path or a URI such as s3://bucket/prefix"),
    ],
)
def test_a_bad_value_is_said_with_its_flag(args: tuple[str, ...], words: str) -> None:
    """What, where, expected, got."""
    with pytest.raises(ConfigError) as error:
        a_config(*args)
    assert words in str(error.value)


@pytest.mark.parametrize("flag", ["--chunked-graph", "--checkpoints", "--partitions", "--output"])
@pytest.mark.parametrize("text", ["s3://key:secret@b/p", "s3://key:x/secret@b/p", "s3://b/p?key=secret"])
def test_a_uri_with_a_secret_is_refused_and_not_shown(flag: str, text: str) -> None:
    """A plan, a log and a process list would show it to many."""
    with pytest.raises(ConfigError) as error:
        a_config(flag, text)
    assert str(error.value).startswith(f"{flag}: expected no credentials")
    assert str(error.value).endswith("got 's3://...'")


@pytest.mark.parametrize("text", ["s3://", "s3:///p", "s3://bad_bucket!/p", "S3://b"])
def test_a_name_that_no_bucket_has_is_refused(text: str) -> None:
    """Before anything is started."""
    with pytest.raises(ConfigError, match=r"--output: expected a bucket's name as in s3://bucket/prefix"):
        a_config("--output", text)


def test_a_chunked_graph_may_be_named_by_a_relative_path() -> None:
    """Other places may not: pods have different working folders."""
    assert a_config("--chunked-graph", "graphs/g").chunked_graph == "graphs/g"
    with pytest.raises(ConfigError, match="--output: expected an absolute path"):
        a_config("--output", "models")


def test_all_problems_are_said_at_once() -> None:
    """One line for each."""
    with pytest.raises(ConfigError) as error:
        a_config("--num-trainers", "0", "--num-servers", "-1")
    assert [line.split(":")[0] for line in str(error.value).splitlines()] == [
        "--num-trainers",
        "--num-servers",
    ]


def test_nccl_takes_one_trainer_for_each_gpu() -> None:
    """Two ranks on one GPU would hang in the first collective."""
    nccl = ("--backend", "nccl", "--num-gpus", "2", "--num-trainers")

    assert a_config(*nccl, "2", gpus=2).num_gpus == 2
    with pytest.raises(ConfigError, match="nccl takes one trainer for each GPU"):
        a_config(*nccl, "3", gpus=2)


@pytest.mark.parametrize(
    ("phase", "missing"),
    [("Partitioner", "--num-partitions is missing: the Partitioner needs it"), (None, None)],
)
def test_each_role_needs_its_own_flags(phase: str | None, missing: str | None) -> None:
    """The launcher can do without --num-partitions, the partitioner cannot."""
    if missing is None:
        assert a_config(phase=phase).workers == 2
        return
    with pytest.raises(ConfigError, match=missing):
        a_config(phase=phase)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DGL_OPERATOR_PHASE_ENV", "Trainer"),
        ("DGL_OPERATOR_NUM_WORKERS", "two"),
        ("DGL_OPERATOR_PARTITION_MODE", "METIS"),
    ],
)
def test_a_bad_environment_names_its_variable(variable: str, value: str) -> None:
    """The operator and the image may be of different versions."""
    with pytest.raises(ConfigError, match=variable):
        a_context(env={variable: value})


def test_a_training_without_workers_is_not_watched() -> None:
    """In mode Skip the script runs in the launcher itself, without an agent."""
    with pytest.raises(ConfigError, match="--hang-timeout: mode Skip has no workers"):
        a_config("--hang-timeout", "9", phase="Launcher_Workload")
