"""The commands of dglrun end with codes that do not lie."""

from pathlib import Path

import numpy as np
import pytest

from dglrun import cli
from tests.support.heterographs import a_toy


@pytest.mark.parametrize(
    "words",
    [
        ("convert", "to-parmetis", "--in-dir", "@in", "--out-dir", "@file/out"),
        ("chunk", "--out-dir", "@file/out", "--name", "g", "--nodes", "n=5", "--edges", "n:e:n=@edges.npy"),
        ("partition", "--in-dir", "@in", "--out-dir", "@file/out", "--num-parts", "2", "--backend", "random"),
        ("dispatch", "--in-dir", "@in", "--partitions-dir", "@in/parts", "--out-dir", "@file/out"),
    ],
    ids=lambda words: words[0],
)
def test_an_output_that_cannot_be_written_is_74_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    """The world's error, not bad input: one line with the path, no traceback."""
    a_toy(parts=2).write(tmp_path / "in")
    (tmp_path / "file").write_text("")
    np.save(tmp_path / "edges.npy", np.zeros((3, 2), np.int64))

    code = cli.run_command([word.replace("@", f"{tmp_path}/") for word in words])

    said = capsys.readouterr().err
    assert code == 74, said
    assert str(tmp_path / "file/out") in said.splitlines()[-1]
