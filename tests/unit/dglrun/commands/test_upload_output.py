"""The output of a job goes where --output says, its manifest last."""

import hashlib
import json
from pathlib import Path

import pytest

from dglrun.commands import upload_output
from dglrun.commands.upload_output import MANIFEST
from dglrun.contract import exitcodes
from dglrun.formats import store


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """What a job of two workers has left."""
    folder = tmp_path / "output"
    (folder / "g-worker-1").mkdir(parents=True)
    (folder / "model.pt").write_bytes(b"weights")
    (folder / "g-worker-1/log.txt").write_bytes(b"lines")
    return folder


@pytest.mark.parametrize("target", ["{folder}", "mock:///{name}"])
def test_all_files_arrive(output: Path, tmp_path: Path, target: str) -> None:
    """Each with its sum in the manifest, on a volume and on storage; a second run replaces them."""
    text = target.format(folder=tmp_path / "kept", name=tmp_path.name)
    place = store.place(text)
    (place / "model.pt").write_bytes(b"older")

    assert upload_output.main(["--folder", str(output), "--to", text]) == exitcodes.OK

    told = json.loads((place / MANIFEST).read_bytes())["files"]
    assert set(place.files()) == {"model.pt", "g-worker-1/log.txt", MANIFEST}
    assert (place / "model.pt").read_bytes() == b"weights"
    assert told["model.pt"] == {"size": 7, "sha256": hashlib.sha256(b"weights").hexdigest()}


def test_a_failed_upload_has_no_manifest(
    output: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The older manifest is gone, and one line says what could not be written."""
    kept = tmp_path / "kept"
    (kept / "model.pt").mkdir(parents=True)
    (kept / "model.pt/of-another").touch()
    (kept / MANIFEST).write_text("{}")

    code = upload_output.main(["--folder", str(output), "--to", str(kept)])

    assert code == exitcodes.STORE
    assert not (kept / MANIFEST).exists()
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith(f"dglrun: --output: {kept}/model.pt: ")


def test_no_output_leaves_no_manifest_of_an_earlier_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its files stay, but nobody takes them for what this run has made."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / MANIFEST).write_text("{}")
    (kept / "model.pt").write_bytes(b"older")

    assert upload_output.main(["--folder", str(tmp_path / "none"), "--to", str(kept)]) == exitcodes.OK

    assert [path.name for path in kept.iterdir()] == ["model.pt"]
    assert "no output to upload" in capsys.readouterr().out


def test_a_check_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A place that need not exist yet is good, and stays as it is."""
    for text in (str(tmp_path / "none/run"), f"mock:///{tmp_path.name}-check"):
        assert upload_output.main(["--check", "--to", text]) == exitcodes.OK

    assert list(tmp_path.iterdir()) == []
    assert store.place(f"mock:///{tmp_path.name}-check").files() == {}
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("ftp://host/run", exitcodes.DATA, "ftp://host: expected a path or a URI that pyarrow.fs opens"),
        ("{folder}/file", exitcodes.STORE, "/file: expected a folder that can be written"),
        ("{folder}/file/run", exitcodes.STORE, "/file/run: expected a folder that can be written"),
    ],
)
def test_a_check_says_what_an_upload_would_fail_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, code: int, words: str
) -> None:
    """In one line, with the code of an upload."""
    (tmp_path / "file").touch()

    assert upload_output.main(["--check", "--to", text.format(folder=tmp_path)]) == code

    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("dglrun: --output: ")
    assert words in said
