"""Bytes that are kept to be read once: where there is no place for them, they are read again."""

from collections import namedtuple
from pathlib import Path

import pytest

from dglrun.formats import store
from dglrun.formats.chunked import kept_bytes

Usage = namedtuple("Usage", "total used free")


def test_without_a_temporary_folder_nothing_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It saves requests; no rank may end by it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    place = store.place(str(tmp_path / "edges.csv"))

    with kept_bytes.keeping(place, 0, 4) as kept:
        assert kept is not None
        kept.add(b"0,1\n")

    assert place not in kept_bytes._known


def test_half_of_the_room_is_left_for_the_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of what is free and kept in all, not of what each file finds free."""
    monkeypatch.setattr(kept_bytes, "_known", {})
    held: list[int] = []
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(100, sum(held), 100 - sum(held)))

    for number in range(40):
        place = store.place(str(tmp_path / f"{number}.csv"))
        with kept_bytes.keeping(place, 0, 10) as kept:
            assert kept is not None
            kept.add(b"0123456789")
        held += [10] if place in kept_bytes._known else []

    assert sum(held) == 50
    for ranges in kept_bytes._known.values():
        for each in ranges:
            each.file.close()
