"""The JSON of a partition, as the launcher and every command read it."""

import json
from pathlib import Path

import pytest

from dglrun.errors import DataError
from dglrun.formats.dgl import part_config

PART = {"part_graph": "part0/graph.dgl", "node_feats": "part0/node_feat.dgl"}


def test_the_entries_of_each_part_are_read(tmp_path: Path) -> None:
    """In the order of the parts; the back end is ours and may be missing."""
    path = tmp_path / "g.json"
    path.write_text(json.dumps({"num_parts": 2, "part-1": {"part_graph": "b"}, "part-0": PART}))

    found = part_config.load(path, expected=2)

    assert found.parts == (PART, {"part_graph": "b"})
    assert found.backend is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "expected the partition's JSON"),
        ("{", "expected JSON"),
        ("[]", "expected a JSON object, found list"),
        ("{}", "num_parts: expected 1, found None"),
        ('{"num_parts": true}', "num_parts: expected 1, found True"),
        ('{"num_parts": 2}', "num_parts: expected 1, found 2"),
        ('{"num_parts": 1}', "part-0: expected an object with the part's files, found None"),
        ('{"num_parts": 1, "part-0": {"part_graph": 3}}', "part-0: expected an object with the part's files"),
    ],
)
def test_what_is_no_json_of_this_partition_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    """With the file, what was expected and what was found."""
    path = tmp_path / "g.json"
    if text is not None:
        path.write_text(text)

    with pytest.raises(DataError, match=f"g.json: {message}"):
        part_config.load(path, expected=1)


def test_a_json_of_another_kind_describes_no_parts(tmp_path: Path) -> None:
    """A dispatch removes the descriptions of earlier parts from its folder, and nothing else."""
    parts, other = tmp_path / "parts.json", tmp_path / "other.json"
    parts.write_text(json.dumps({"part-0": PART}))
    other.write_text(json.dumps(["part-0"]))

    assert part_config.describes_parts(parts)
    assert not part_config.describes_parts(other)
    assert not part_config.describes_parts(tmp_path / "missing.json")
