"""`dglrun partitions`: what people see of kept partitions, and how these go."""

import json
import shlex
from pathlib import Path

import pytest

from dglrun import cli
from dglrun.formats.kept.kept_partition import KeptPartition
from dglrun.formats.kept.partition_store import PartitionStore
from tests.unit.dglrun.commands.test_fetch_part import INPUT, keep
from tests.unit.dglrun.formats.kept.test_partition_store import age


@pytest.fixture
def kept(tmp_path: Path) -> KeptPartition:
    """A partition in `tmp_path/store`."""
    return keep(tmp_path)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Run the command; returns its exit code and what it says."""
    code = cli.run_command(["partitions", *words])
    said = capsys.readouterr()
    return code, said.out + said.err


def test_each_partition_is_a_line(
    tmp_path: Path, kept: KeptPartition, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under a head; as JSON with bytes and leftovers."""
    uri = str(tmp_path / "store")
    code, said = run(capsys, "list", uri)
    head, line = said.splitlines()
    assert code == 0
    assert head.split() == ["FINGERPRINT", "GRAPH", "PARTS", "SIZE", "MADE", "JOB", "NOTE"]
    assert line.startswith(kept.fingerprint)
    assert "ns/job" in line

    code, said = run(capsys, "list", uri, "--json")

    (found,) = json.loads(said)
    assert (found["fingerprint"], found["bytes"], found["leftovers"]) == (kept.fingerprint, kept.size, {})


def test_show_tells_what_it_was_made_of(
    tmp_path: Path, kept: KeptPartition, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the beginning of its fingerprint."""
    code, said = run(capsys, "show", str(tmp_path / "store"), kept.fingerprint[:8])

    assert code == 0
    assert kept.path in said
    assert kept.files["part0/graph.dgl"].sha256 in said


def test_verify_reads_all_sums(
    tmp_path: Path, kept: KeptPartition, capsys: pytest.CaptureFixture[str]
) -> None:
    """A changed byte is FAILED, by name, with exit code 65."""
    uri = str(tmp_path / "store")
    code, said = run(capsys, "verify", uri)
    assert (code, f"{kept.fingerprint}: OK: 7 files" in said) == (0, True)
    path = tmp_path / "store" / kept.path / "part1/graph.dgl"
    path.write_bytes(b"?" + path.read_bytes()[1:])

    code, said = run(capsys, "verify", uri, kept.fingerprint)

    assert code == 65
    assert "FAILED" in said
    assert "part1/graph.dgl: expected SHA-256" in said


def test_what_a_killed_writer_has_left_is_told_and_can_be_removed(
    tmp_path: Path, kept: KeptPartition, capsys: pytest.CaptureFixture[str]
) -> None:
    """The partition itself stays."""
    uri, store = str(tmp_path / "store"), PartitionStore(str(tmp_path / "store"))
    store.write_file(INPUT, store.new_folder(), "g.json", tmp_path / "made/tiny.json")
    assert "1 files of writers" in run(capsys, "list", uri)[1]
    assert "1 folders stay" in run(capsys, "remove", uri, kept.fingerprint, "--leftovers")[1]
    age(tmp_path / "store")

    code, said = run(capsys, "remove", uri, kept.fingerprint, "--leftovers")

    assert (code, "removed: leftovers of" in said) == (0, True)
    assert store.find(INPUT)[0] == kept
    assert "writers" not in run(capsys, "list", uri)[1]


def test_what_a_job_is_writing_now_is_no_failure(
    tmp_path: Path, kept: KeptPartition, capsys: pytest.CaptureFixture[str]
) -> None:
    """Verify notes it; a manifest that cannot be read is FAILED."""
    uri, manifest = str(tmp_path / "store"), tmp_path / "store" / kept.fingerprint / "manifest.json"
    manifest.unlink()
    code, said = run(capsys, "verify", uri)
    assert (code, "FAILED" in said, "note: 7 files of writers" in said) == (0, False, True)

    manifest.write_text("{")

    code, said = run(capsys, "verify", uri)
    assert (code, "FAILED" in said) == (65, True)


def test_remove_takes_the_partition_away(
    tmp_path: Path, kept: KeptPartition, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing of it is left."""
    code, _ = run(capsys, "remove", str(tmp_path / "store"), kept.fingerprint)

    assert code == 0
    assert list((tmp_path / "store").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("show", "@", "0123456789abcdef"), (65, "0 that begin with it")),
        (("remove", "@", "012"), (65, "a shorter one")),
        (("remove", "@"), (2, "FINGERPRINT")),
        (("list", "relative"), (65, "expected an absolute path or a URI")),
        (("verify", "/none/of/this/name"), (65, "expected the folder of --partitions, found none")),
    ],
    ids=lambda words: str(words[0]),
)
def test_what_cannot_be_meant_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected: tuple[int, str]
) -> None:
    """Nothing is removed by a fingerprint that names nothing."""
    code, said = run(capsys, *(str(tmp_path) if word == "@" else word for word in words))

    assert code == expected[0]
    assert expected[1] in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("way", ["list", "show", "verify", "remove"])
def test_the_help_of_a_way_has_an_example(capsys: pytest.CaptureFixture[str], way: str) -> None:
    """That is understood."""
    with pytest.raises(SystemExit):
        cli.run_command(["partitions", way, "--help"])

    example = capsys.readouterr().out.rpartition("example:\n  ")[2]
    assert cli.command_parser("partitions").read(shlex.split(example)[2:]).way == way


def test_an_empty_place_has_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is asked."""
    assert run(capsys, "list", str(tmp_path))[0] == 0
    code, said = run(capsys, "verify", str(tmp_path))
    assert (code, "no partition is kept there" in said) == (0, True)
