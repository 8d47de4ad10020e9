"""Bytes that are kept to be read once: where there is no place for them, they are read again."""

import os
import tempfile
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dglrun.formats import store
from dglrun.formats.chunked import kept_bytes
from dglrun.formats.store import Place

Usage = namedtuple("Usage", "total used free")
DATA = b"0123456789"


@pytest.fixture(autouse=True)
def of_this_test(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A process that has kept nothing yet, with an empty disk."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(kept_bytes, "_known", {})
    monkeypatch.setattr(kept_bytes, "_file", kept_bytes._KeptFile())
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(1 << 40, 0, 1 << 40))
    yield
    kept_bytes._file.close()


def keep(folder: Path, number: int = 0) -> Place:
    """Ten bytes of an object."""
    place = store.place(str(folder / f"{number}.csv"))
    with kept_bytes.keeping(place, 5, 5 + len(DATA)) as kept:
        assert kept is not None
        kept.add(DATA[:4])
        kept.add(DATA[4:])
    return place


def count_kept(folder: Path, files: int = 40) -> int:
    """How many of so many objects are kept."""
    for number in range(files):
        keep(folder, number)
    return len(kept_bytes._known)


def disk(monkeypatch: pytest.MonkeyPatch, total: int, free: Callable[[], int]) -> None:
    """A disk that says how full it is."""
    monkeypatch.setattr("shutil.disk_usage", lambda _: Usage(total, total - free(), free()))


def reserved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the room that is taken from now on."""
    taken: list[int] = []
    monkeypatch.setattr("os.posix_fallocate", lambda _file, _offset, size: taken.append(size))
    return taken


def test_without_a_temporary_folder_nothing_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It saves requests; no rank may end by it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))

    assert keep(tmp_path) not in kept_bytes._known


def test_half_of_the_room_is_left_for_the_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of what is free and kept in all, not of what each file finds free."""
    taken = reserved(monkeypatch)
    disk(monkeypatch, 100, lambda: 100 - sum(taken))

    assert count_kept(tmp_path) == 5


def test_no_disk_is_filled_until_pods_are_evicted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """However little of what is free is kept."""
    taken = reserved(monkeypatch)
    disk(monkeypatch, 1000, lambda: 175 - sum(taken))

    assert count_kept(tmp_path) == 2


def test_room_is_taken_before_the_first_byte(tmp_path: Path) -> None:
    """Other ranks of this machine would count on it as well."""
    with kept_bytes.keeping(store.place(str(tmp_path / "edges.csv")), 0, 1 << 20):
        assert os.fstat(kept_bytes._file.fileno()).st_blocks * 512 >= 1 << 20


def test_room_that_another_rank_took_meanwhile_is_given_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Both have found it free."""
    taken: list[int] = []
    reserve = os.posix_fallocate

    def both(file: int, offset: int, size: int) -> None:
        reserve(file, offset, size)
        taken.append(95)

    monkeypatch.setattr("os.posix_fallocate", both)
    disk(monkeypatch, 100, lambda: 100 - sum(taken))

    assert keep(tmp_path) not in kept_bytes._known

    assert os.fstat(kept_bytes._file.fileno()).st_size == 0


def test_a_disk_without_room_keeps_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As with a quota, of which the file system's free space tells nothing."""

    def full(*_range: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)

    assert keep(tmp_path) not in kept_bytes._known


def test_nothing_is_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tmpfs counts towards the container's limit."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        monkeypatch.setattr("tempfile.tempdir", name)

        assert keep(Path(name)) not in kept_bytes._known


def test_many_objects_take_one_descriptor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hundreds of files left none for anything else."""
    made: list[int] = []
    make = tempfile.TemporaryFile

    def counted(**options: Any) -> Any:
        made.append(1)
        return make(**options)

    monkeypatch.setattr("tempfile.TemporaryFile", counted)

    assert count_kept(tmp_path) == 40

    assert len(made) == 1


def test_a_failed_range_gives_its_room_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The next one takes it."""
    keep(tmp_path)
    monkeypatch.setattr("os.pwrite", lambda *_: 0)

    place = keep(tmp_path, 1)

    assert place not in kept_bytes._known
    assert os.fstat(kept_bytes._file.fileno()).st_size == len(DATA)
