"""The fingerprint of what a partition is made of: any change changes it, what does not matter does not."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dglrun.errors import DataError
from dglrun.formats import store
from dglrun.formats.kept import input_files
from dglrun.formats.kept.fingerprint import PartitionInput, differences, is_fingerprint

WORDS = st.text("abc:=,0 ", max_size=4)
PAIRS = st.dictionaries(WORDS, WORDS, max_size=4)


@given(PAIRS, PAIRS, st.randoms())
def test_order_makes_no_difference(source: dict[str, str], options: dict[str, str], random: object) -> None:
    """A mapping is the same in whatever order it was filled."""
    mixed = [dict(random.sample(list(each.items()), len(each))) for each in (source, options)]  # type: ignore[attr-defined]

    one, other = PartitionInput(source, options), PartitionInput(*mixed)

    assert one.fingerprint == other.fingerprint
    assert is_fingerprint(one.fingerprint)


@given(PAIRS, PAIRS, PAIRS, PAIRS)
def test_other_input_has_another_fingerprint(
    source: dict[str, str], options: dict[str, str], more: dict[str, str], other: dict[str, str]
) -> None:
    """Also where texts run into each other, or move from the source to the options."""
    one, two = PartitionInput(source, options), PartitionInput(more, other)

    assert (one.fingerprint == two.fingerprint) == ((source, options) == (more, other))


def test_differences_are_named_and_the_rest_is_counted() -> None:
    """Options first, as a user has chosen them."""
    wanted = PartitionInput({"file: a": "1", "file: b": "2"}, {"seed": "1", "parts": "2"})
    found = PartitionInput({"file: a": "9"}, {"seed": "2", "parts": "3"})

    assert differences(wanted, found) == (
        "parts: expected 2, got 3; seed: expected 1, got 2; file: a: expected 1, got 9; 1 more"
    )


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A chunked graph as far as the fingerprint looks at it."""
    folder = tmp_path / "graph"
    (folder / "edges").mkdir(parents=True)
    (folder / "data").mkdir()
    np.save(folder / "edges/0.npy", np.arange(6).reshape(3, 2))
    np.save(folder / "data/feat.npy", np.arange(4.0))
    write_metadata(folder, "edges/0.npy")
    return folder


def write_metadata(folder: Path, edges: str, name: str = "g") -> None:
    """A metadata.json that names two files."""
    table = {"format": {"name": "numpy"}, "data": [edges]}
    features = {"n": {"feat": {"format": {"name": "numpy"}, "data": ["data/feat.npy"]}}}
    raw = {"graph_name": name, "node_type": ["n"], "edges": {"n:e:n": table}, "node_data": features}
    (folder / "metadata.json").write_text(json.dumps(raw))


def of(folder: Path) -> str:
    """The fingerprint of a chunked graph."""
    return PartitionInput(input_files.of_chunked_graph(str(folder))).fingerprint


def test_where_a_chunked_graph_lies_makes_no_difference(graph: Path) -> None:
    """Copied with its times, or its files named by absolute paths, or its keys in another order."""
    before = of(graph)
    copied = shutil.copytree(graph, graph.parent / "elsewhere/g")
    assert of(copied) == before

    raw = json.loads((copied / "metadata.json").read_text())
    (copied / "metadata.json").write_text(json.dumps(dict(reversed(raw.items())), indent=3))
    assert of(copied) == before

    write_metadata(copied, str(copied / "edges/0.npy"))
    assert of(copied) == before


def test_files_may_be_named_by_uris(graph: Path) -> None:
    """Of a folder of this machine and of a store, within it and beside it, as the readers take them."""
    before = of(graph)
    write_metadata(graph, f"file://{graph}/edges/0.npy")
    assert of(graph) == before

    there, beside = store.place(f"mock:///{graph.name}/in"), store.place(f"mock:///{graph.name}/beside/0.npy")
    beside.upload(graph / "edges/0.npy")
    write_metadata(graph, str(beside))
    for name in ("metadata.json", "data/feat.npy"):
        (there / name).upload(graph / name)
    for folder in (str(graph), str(there)):
        assert f"file: {beside}" in input_files.of_chunked_graph(folder)
    beside.remove_tree()
    with pytest.raises(DataError, match=f"{beside} does not exist"):
        input_files.of_chunked_graph(str(there))


def test_a_relative_path_means_the_same_folder(graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user may write it."""
    monkeypatch.chdir(graph.parent)

    assert of(Path("graph")) == of(graph)


@settings(
    suppress_health_check=[*settings().suppress_health_check, HealthCheck.function_scoped_fixture],
    max_examples=20,
)
@given(st.sampled_from(["edges/0.npy", "data/feat.npy"]), st.integers(1, 10**15))
def test_any_changed_file_changes_the_fingerprint(graph: Path, name: str, nanoseconds: int) -> None:
    """By its time or by its size."""
    path = graph / name
    before, state = of(graph), path.stat()

    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + nanoseconds))
    assert of(graph) != before

    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert of(graph) == before

    content = path.read_bytes()
    path.write_bytes(content + b"0")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert of(graph) != before
    path.write_bytes(content)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def test_changed_metadata_change_the_fingerprint(graph: Path) -> None:
    """Though all files are the same."""
    before = of(graph)

    write_metadata(graph, "edges/0.npy", name="other")

    assert of(graph) != before


def test_a_file_that_is_missing_is_named(graph: Path) -> None:
    """In one line with the metadata that name it."""
    (graph / "data/feat.npy").unlink()

    with pytest.raises(DataError, match=r"metadata\.json: .*/data/feat\.npy does not exist"):
        of(graph)


@pytest.mark.parametrize("text", ["{", "[]", '{"edges": {"e": {"format": {}, "data": [1]}}}'])
def test_metadata_of_another_form_are_refused(graph: Path, text: str) -> None:
    """Not with a traceback."""
    (graph / "metadata.json").write_text(text)

    with pytest.raises(DataError):
        of(graph)


def test_a_script_counts_by_its_text_and_its_image(tmp_path: Path) -> None:
    """Not by its name or its time."""
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    one.write_text("print(1)")
    other.write_text("print(1)")
    assert input_files.of_script(str(one), "i@sha256:1") == input_files.of_script(str(other), "i@sha256:1")
    assert input_files.of_script(str(one), "i@sha256:1") != input_files.of_script(str(one), "i@sha256:2")

    other.write_text("print(2)")

    assert input_files.of_script(str(one), "i") != input_files.of_script(str(other), "i")


def test_an_assignment_that_the_user_brings_counts_by_its_content(tmp_path: Path) -> None:
    """A folder without one is refused."""
    with pytest.raises(DataError, match="expected an assignment"):
        input_files.of_assignment(str(tmp_path))
    (tmp_path / "n.txt").write_text("0\n1\n")
    before = input_files.of_assignment(str(tmp_path))

    (tmp_path / "n.txt").write_text("1\n0\n")

    assert input_files.of_assignment(str(tmp_path)) != before
