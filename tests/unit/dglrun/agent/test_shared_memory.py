"""Shared-memory segments of a run."""

from pathlib import Path

from dglrun.agent import shared_memory


def test_only_new_segments_of_ours_are_removed(tmp_path: Path) -> None:
    """What was there before stays, and so do folders."""
    (tmp_path / "old").touch()
    before = shared_memory.names(tmp_path)
    (tmp_path / "new").touch()
    (tmp_path / "folder").mkdir()

    gone = shared_memory.remove_new(tmp_path, before)

    assert gone == ("new",)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "old"]
    assert shared_memory.names(tmp_path / "missing") == frozenset()
