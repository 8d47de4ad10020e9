"""The command line: its help, its errors of one line, its exit codes."""

import errno
import re
import shlex
from importlib import metadata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dglrun import cli
from dglrun.cli.workflow import main
from dglrun.commands.arguments import Parser
from dglrun.contract import env
from dglrun.workflow.config import RunConfig
from tests.support.needs import NEEDS_METIS
from tests.support.terminal import in_a_terminal


@pytest.mark.parametrize(
    "words",
    [
        ("convert", "to-parmetis", "--in-dir", "@in", "--out-dir", "@file/out"),
        ("chunk", "--out-dir", "@file/out", "--name", "g", "--nodes", "n=5", "--edges", "n:e:n=@edges.npy"),
        ("partition", "--in-dir", "@in", "--out-dir", "@file/out", "--num-parts", "2", "--backend", "random"),
        ("dispatch", "--in-dir", "@in", "--partitions-dir", "@in/parts", "--out-dir", "@file/out"),
        ("report", "@in/g.json", "--json", "@file/out"),
    ],
    ids=lambda words: words[0],
)
def test_an_output_that_cannot_be_written_is_74_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    """Refused before the input, of which there is none here, is read: one line with the path."""
    (tmp_path / "file").write_text("")

    code = cli.run_command([word.replace("@", f"{tmp_path}/") for word in words])

    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (74, 1)
    assert f"{tmp_path}/file/out: cannot be written: {tmp_path}/file is not a folder" in said


def output_of(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a call that shows something and ends well prints."""
    try:
        code = main(argv)
    except SystemExit as ended:
        code = int(ended.code or 0)
    assert code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("argv", [["--help"], ["help"]])
def test_the_help_describes_the_commands(capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    """Each with an example, and none of dglrun's own."""
    said = output_of(argv, capsys)

    for name, command in cli.COMMANDS.items():
        assert re.search(
            rf"^  {name} +{re.escape(command.summary)}\n +{re.escape(command.example)}$", said, re.M
        )
    assert not any(name in said for name in cli.INTERNAL)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_help_of_a_command_has_an_example(capsys: pytest.CaptureFixture[str], name: str) -> None:
    """By both ways."""
    said = output_of(["help", name], capsys)

    assert said == output_of([name, "--help"], capsys)
    assert f"example:\n  {cli.COMMANDS[name].example}\n" in said


@NEEDS_METIS
def test_the_examples_of_the_help_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, as they stand there."""
    monkeypatch.chdir(tmp_path)
    np.save("cites.npy", np.array([[0, 1], [1, 2], [2, 3], [3, 0]]))
    np.save("pred.npy", np.array([0.5, 0.25]))
    Path("mapping").mkdir()
    pq.write_table(pa.table({"id": ["ann", "bob"], "node": [0, 1]}), "mapping/user.parquet")
    order = ("chunk", "convert", "partition", "dispatch", "verify", "report", "ids", "partitions")

    codes = {name: main(shlex.split(cli.COMMANDS[name].example)[1:]) for name in order}

    ended = dict.fromkeys(cli.COMMANDS.keys() - {"local"}, 0)  # which leaves its namespaces
    assert codes == {**ended, "partitions": 65}  # whose folder is on no machine of ours
    assert Path("report.html").is_file()


@pytest.mark.parametrize("way", ["to-parmetis", "from-parmetis", "from-pieces", "from-part-file"])
def test_the_help_of_a_direction_has_an_example(capsys: pytest.CaptureFixture[str], way: str) -> None:
    """That is understood."""
    said = output_of(["convert", way, "--help"], capsys)

    example = said.rpartition("example:\n  ")[2]
    assert cli.command_parser("convert").read(shlex.split(example)[2:]).way == way


def defaults_of(parser: Parser) -> dict[str, tuple[str, object]]:
    """By destination: the default that the help tells, and the parser's own."""
    found = {}
    for action in parser._actions:
        if told := re.search(r"\(default: ([^,;)]*(?:,[^ ,;)]+)*)", str(action.help)):
            found[action.dest] = told[1], action.default
    return found


def test_the_defaults_of_the_workflow_in_the_help_are_its_own() -> None:
    """Those that are no description."""
    fields = {name: field.default for name, field in RunConfig.model_fields.items()}

    told = {name: text for name, (text, _) in defaults_of(cli.workflow_parser()).items()}

    plain = {name: text for name, text in told.items() if fields[name] is not None and name != "python"}
    assert len(plain) > 10
    assert plain == {
        name: f"{fields[name]:g}" if text.isdigit() else fields[name] for name, text in plain.items()
    }


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_the_defaults_of_a_command_in_its_help_are_its_own(name: str) -> None:
    """Numbers and words; formats of a graph are a tuple."""
    for told, default in defaults_of(cli.command_parser(name)).values():
        if default is not None and not told.startswith("that of the job"):
            shown = ",".join(default) if isinstance(default, tuple) else default
            assert told == (f"{shown:g}" if isinstance(shown, int | float) else shown)


def test_the_version_is_that_of_the_package(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is none, it says why."""
    assert output_of(["--version"], capsys) == f"dglrun {metadata.version('dgl-operator')}\n"

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)

    assert "copied here, not installed" in output_of(["--version"], capsys)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["partitoin"], "dglrun: unknown argument 'partitoin': did you mean partition?"),
        (["help", "chnk"], "dglrun help: unknown command 'chnk': did you mean chunk?"),
        (
            ["--num-partition", "2"],
            "dglrun: unknown argument '--num-partition': did you mean --num-partitions?",
        ),
        (["partition", "--num-prts", "3"], "unknown argument '--num-prts': did you mean --num-parts?"),
        (["partition", "--in", "x"], "unknown argument '--in': "),
        (["convert", "from-peices"], "got 'from-peices': did you mean from-pieces?"),
        (["convert", "from-pieces", "--peices-dir", "x"], "did you mean --pieces-dir?"),
        (["verify"], "dglrun verify: the following arguments are required: PART_CONFIG"),
        (["chunk", "--files", "0"], "dglrun chunk: --files: expected a whole number of at least 1, got '0'"),
        (["dispatch", "--deadline", "no"], "--deadline: expected a number above 0, got 'no'"),
        (["chunk", "--dialect", "bth"], "--dialect: expected per-chunk, per-type, both, got 'bth': did you"),
        (["pack"], "dglrun pack: the following arguments are required: DIR"),
        (
            ["--verify", "alway"],
            "dglrun: --verify: expected auto, always, never, got 'alway': did you mean always?",
        ),
        (["--partition-backend", "meti"], "did you mean metis?"),
        ([], "dglrun: expected a command or the flags of a run: dglrun --help lists them"),
    ],
)
def test_a_usage_error_is_one_line_and_2(
    capsys: pytest.CaptureFixture[str], argv: list[str], expected: str
) -> None:
    """What, expected, got, and what was probably meant."""
    code = main(argv)

    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (2, 1)
    assert expected in said


@pytest.mark.parametrize("name", [*cli.COMMANDS, *cli.INTERNAL])
def test_no_flag_may_be_cut_short(capsys: pytest.CaptureFixture[str], name: str) -> None:
    """A later flag that begins alike would change what it means."""
    assert main([name, "--hel"]) == 2
    assert "unknown argument '--hel'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        ("dglrun.agent",),
        ("dglrun", "pack", "docs"),
        ("dglrun", "supervise"),
        ("dglrun.commands.kill_leftovers", "x"),
        ("dglrun.commands.validate_input", "--in-dir", "x", "--graph-name", "g"),
        ("dglrun.commands.validate_parts",),
        ("dglrun.commands.dispatch_rank",),
        ("dglrun.commands.partition_rank",),
    ],
    ids=lambda argv: " ".join(argv[:2]),
)
def test_an_internal_command_refuses_a_terminal(argv: tuple[str, ...]) -> None:
    """One line that says who runs it."""
    code, shown = in_a_terminal("-m", *argv)

    assert code == 2
    assert re.fullmatch(r"dglrun( \w+)?: internal command, run by dglrun itself; [^\n]*\r\n", shown)


def test_pack_explains_itself(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """`--help` is no folder."""
    with pytest.raises(SystemExit) as ended:
        main(["pack", "--help"])

    assert ended.value.code == 0
    assert capsysbinary.readouterr().out.startswith(b"usage: dglrun pack [-h] [--unless NAME] DIR")


def test_outside_of_a_pod_one_line_says_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No bug, no traceback."""
    for name in ("KUBERNETES_SERVICE_HOST", env.OPERATOR, env.JOB_NAME):
        monkeypatch.delenv(name, raising=False)
    flags = ["-g", "g", "--num-partitions", "2", "--train-entry-point", "train.py"]

    code = main(flags)

    said = capsys.readouterr().err
    assert (code, said.count("\n")) == (2, 1)
    assert "this is no pod of a DGLJob: add --dry-run" in said


@pytest.mark.parametrize(("filename", "code", "lines"), [("/x/y", 74, 1), (None, 70, 5)])
def test_a_run_that_cannot_write_a_file_names_it(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    filename: str | None,
    code: int,
    lines: int,
) -> None:
    """Without a file it is a bug, whose traceback is needed."""

    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", filename)

    monkeypatch.setattr("dglrun.cli.workflow._workflow", fail)

    assert main(["-g", "g"]) == code
    said = capsys.readouterr().err
    assert said.count("\n") >= lines
    assert said.startswith(
        "dglrun: /x/y: No space left on device\n" if filename else "dglrun: a bug in dglrun: "
    )
