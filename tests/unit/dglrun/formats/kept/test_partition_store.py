"""Kept partitions in a folder: what is found is one writer's, whole, whatever happens meanwhile."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dglrun.errors import DataError, StoreError
from dglrun.formats.kept import kept_partition, reference
from dglrun.formats.kept.fingerprint import PartitionInput
from dglrun.formats.kept.kept_partition import KeptFile, KeptPartition, NoManifestError
from dglrun.formats.kept.partition_store import PartitionStore
from dglrun.formats.kept.reference import Reference
from dglrun.formats.store import retry
from dglrun.formats.store.arrow_backend import Arrow

INPUT = PartitionInput({"file: a": "1"}, {"graph": "g", "parts": "1", "seed": "1"})
FILES = ("part0/graph.dgl", "part0/node_feat.dgl", "g.json")


def a_record(folder: str, files: dict[str, KeptFile], wanted: PartitionInput = INPUT) -> KeptPartition:
    """The manifest of a job."""
    return KeptPartition(
        wanted.fingerprint, folder, "g.json", 1, files, wanted, "2026-01-01T00:00:00Z", "ns/job", "0.2.0"
    )


def steps(
    store: PartitionStore, root: Path, text: str, replaces: bool = False
) -> Iterator[KeptPartition | None]:
    """A writer, step by step: file after file, and the manifest last; it may be killed between any two."""
    folder, files = store.new_folder(), {}
    for name in FILES:
        source = root / "source"
        source.write_text(f"{text} {name}")
        files[name] = store.write_file(INPUT, folder, name, source)
        yield None
    yield store.publish(a_record(folder, files), replaces)


def keep(store: PartitionStore, root: Path, text: str = "one", replaces: bool = False) -> KeptPartition:
    """A writer to its end."""
    *_, last = steps(store, root, text, replaces)
    assert last
    return last


def age(folder: Path, hours: float = 25) -> None:
    """Make all files below a folder that old."""
    then = time.time() - hours * 3600
    for path in folder.rglob("*"):
        os.utime(path, (then, then))


def texts(store: PartitionStore, kept: KeptPartition, root: Path) -> set[str]:
    """Whose the files of a partition are, by their content."""
    found = set()
    for name in kept.files:
        store.fetch(kept, name, root / "fetched")
        author, _, rest = (root / "fetched").read_text().partition(" ")
        assert rest == name
        found.add(author)
    return found


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([0, 1]), max_size=8), st.booleans())
def test_whatever_two_writers_do_in_turn_a_reader_sees_one_of_them(
    tmp_path_factory: pytest.TempPathFactory, turns: list[int], replaces: bool
) -> None:
    """After each step there is no partition, or a whole one of one writer; a killed writer shows nothing."""
    root = tmp_path_factory.mktemp("store")
    store = PartitionStore(str(root / "kept"))
    writers = [steps(store, root, "one"), steps(store, root, "two", replaces)]
    seen: list[KeptPartition] = []
    for turn in turns:
        next(writers[turn], None)
        kept, _ = store.find(INPUT)
        if kept:
            assert store.wrong_sums(kept) == []
            assert len(texts(store, kept, root)) == 1
            seen.append(kept)
    for kept in seen:  # whoever has found it goes on reading it
        assert len(texts(store, kept, root)) == 1
    shutil.rmtree(root)


def test_the_later_of_two_writers_uses_what_the_first_has_kept(tmp_path: Path) -> None:
    """And leaves nothing behind."""
    store = PartitionStore(str(tmp_path / "kept"))
    one, two = steps(store, tmp_path, "one"), steps(store, tmp_path, "two")
    for _ in FILES:
        next(two)

    *_, first = one
    *_, second = two

    assert first == second
    (content,) = store.contents()
    assert content.leftovers == {}


def test_a_partition_that_takes_the_place_of_another_leaves_its_files(tmp_path: Path) -> None:
    """Jobs may read them in place; they are leftovers then."""
    store = PartitionStore(str(tmp_path / "kept"))
    old = keep(store, tmp_path)

    new = keep(store, tmp_path, "two", replaces=True)

    assert store.find(INPUT)[0] == new
    assert texts(store, old, tmp_path) == {"one"}
    (content,) = store.contents()
    assert content.leftovers == {old.folder: len(FILES)}
    age(tmp_path / "kept")
    (content,) = store.contents()
    assert store.remove(content, only_leftovers=True) == 1
    assert store.find(INPUT)[0] == new
    assert store.contents()[0].leftovers == {}


@pytest.mark.parametrize("damage", ["missing", "shorter"])
def test_a_partition_that_is_not_whole_is_none(tmp_path: Path, damage: str) -> None:
    """The reason names the file; a new one takes its place without being asked."""
    store = PartitionStore(str(tmp_path / "kept"))
    kept = keep(store, tmp_path)
    path = tmp_path / "kept" / kept.path / FILES[0]
    if damage == "missing":
        path.unlink()
    else:
        path.write_text("s")

    found, why = store.find(INPUT)

    assert found is None
    assert FILES[0] in why
    again = keep(store, tmp_path, "two")
    assert store.find(INPUT)[0] == again
    assert texts(store, again, tmp_path) == {"two"}


def test_a_changed_byte_is_found_by_the_sum(tmp_path: Path) -> None:
    """When all files are read, and when the file is fetched."""
    store = PartitionStore(str(tmp_path / "kept"))
    kept = keep(store, tmp_path)
    path = tmp_path / "kept" / kept.path / FILES[0]
    content = path.read_bytes()
    path.write_bytes(b"?" + content[1:])

    (problem,) = store.wrong_sums(kept)

    assert f"{FILES[0]}: expected SHA-256 {kept.files[FILES[0]].sha256}" in problem
    with pytest.raises(StoreError, match="expected sha256"):
        store.fetch(kept, FILES[0], tmp_path / "fetched")
    assert not (tmp_path / "fetched").exists()


def test_a_uri_that_names_the_own_fingerprint_is_the_store_around_it(tmp_path: Path) -> None:
    """With or without a partition there."""
    store = PartitionStore(str(tmp_path / "kept"))
    inside = PartitionStore(str(tmp_path / "kept" / INPUT.fingerprint))

    assert str(inside.for_input(INPUT)) == str(store)
    kept = keep(store, tmp_path)
    assert inside.for_input(INPUT).find(INPUT)[0] == kept
    assert str(store.for_input(INPUT)) == str(store)


def test_a_uri_that_names_another_fingerprint_is_refused_by_name(tmp_path: Path) -> None:
    """Both are named, and what differs."""
    keep(PartitionStore(str(tmp_path / "kept")), tmp_path)
    other = PartitionInput(INPUT.source, {**INPUT.options, "seed": "2"})
    store = PartitionStore(str(tmp_path / "kept" / INPUT.fingerprint))

    with pytest.raises(DataError) as refused:
        store.for_input(other)

    text = str(refused.value)
    assert f"expected the kept partition {other.fingerprint} of this job, got {INPUT.fingerprint}" in text
    assert text.endswith(": seed: expected 2, got 1")


def test_a_fingerprint_under_which_nothing_is_kept_is_refused_too(tmp_path: Path) -> None:
    """A path given for reuse is not made into a store of its own."""
    other = PartitionInput(INPUT.source, {"parts": "9"})

    with pytest.raises(DataError, match=f"got {other.fingerprint}: nothing is kept there"):
        PartitionStore(str(tmp_path / other.fingerprint)).for_input(INPUT)


def test_a_manifest_in_a_folder_of_another_name_is_refused(tmp_path: Path) -> None:
    """A copy under another name would be written into under a name that nobody looks for."""
    kept = keep(PartitionStore(str(tmp_path / "kept")), tmp_path)
    moved = shutil.move(tmp_path / "kept" / kept.fingerprint, tmp_path / "mine")

    with pytest.raises(DataError, match="the folder has another name"):
        PartitionStore(str(moved)).for_input(INPUT)


def test_an_unrelated_manifest_in_the_folder_of_a_store_is_left_alone(tmp_path: Path) -> None:
    """A web application has a manifest.json, too."""
    (tmp_path / "manifest.json").write_text('{"name": "an app"}')
    store = PartitionStore(str(tmp_path))

    kept = keep(store.for_input(INPUT), tmp_path)

    assert store.for_input(INPUT).find(INPUT)[0] == kept
    assert (tmp_path / "manifest.json").read_text() == '{"name": "an app"}'


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"format": 2}'])
def test_what_is_no_manifest_is_refused_and_listed(tmp_path: Path, text: str) -> None:
    """It is not overwritten either."""
    store, folder = PartitionStore(str(tmp_path)), tmp_path / INPUT.fingerprint
    folder.mkdir()
    (folder / "manifest.json").write_text(text)

    with pytest.raises(DataError, match=r"manifest\.json: expected"):
        store.find(INPUT)
    (content,) = store.contents()
    assert content.kept is None
    assert "expected" in content.problem


@pytest.mark.parametrize(
    "changed",
    [
        {"folder": "../../etc"},
        {"config": "none.json"},
        {"files": {"../x": KeptFile(1, "0" * 64), "g.json": KeptFile(1, "0" * 64)}},
        {"files": {"/x": KeptFile(1, "0" * 64), "g.json": KeptFile(1, "0" * 64)}},
        {"files": {"g.json": KeptFile(-1, "0" * 64)}},
        {"files": {"g.json": KeptFile(1, "short")}},
        {"parts": 0},
        {"fingerprint": "/"},
    ],
    ids=lambda changed: f"{next(iter(changed))}",
)
def test_a_manifest_that_leads_elsewhere_is_none(changed: dict[str, object]) -> None:
    """Names come from whoever can write the store."""
    good = vars(a_record("w-0123456789abcdef", {"g.json": KeptFile(1, "0" * 64)}))

    text = kept_partition.encode(KeptPartition(**{**good, **changed}))

    with pytest.raises(NoManifestError):
        kept_partition.decode(text)


def test_a_manifest_reads_as_it_was_written(tmp_path: Path) -> None:
    """In the store and within a reference."""
    kept = keep(PartitionStore(str(tmp_path / "kept")), tmp_path)
    found = Reference("/kept", INPUT, kept)

    reference.write(found, tmp_path / "ref/kept.json")

    assert reference.read(tmp_path / "ref/kept.json") == found
    assert kept_partition.decode(kept_partition.encode(kept)) == kept


def test_removing_leaves_no_file(tmp_path: Path) -> None:
    """The manifest first, so that nobody finds what is going."""
    store = PartitionStore(str(tmp_path / "kept"))
    keep(store, tmp_path)
    next(steps(store, tmp_path, "killed"))

    (content,) = store.contents()
    store.remove(content)

    assert store.contents() == []
    assert list((tmp_path / "kept").iterdir()) == []


def test_the_files_of_a_manifest_that_cannot_be_read_are_no_leftovers(tmp_path: Path) -> None:
    """A later release may write manifests that this one does not know; all or nothing may be removed."""
    store = PartitionStore(str(tmp_path / "kept"))
    kept = keep(store, tmp_path)
    (tmp_path / "kept" / kept.fingerprint / "manifest.json").write_text('{"format": 2}')

    (content,) = store.contents()
    with pytest.raises(DataError, match=r"manifest\.json: expected"):
        store.remove(content, only_leftovers=True)

    assert content.leftovers == {}
    assert store.lacking(kept) == []
    store.remove(content)
    assert list((tmp_path / "kept").iterdir()) == []


def test_leftovers_of_the_last_day_stay(tmp_path: Path) -> None:
    """A writer may be at work on one folder, and jobs may read another that was replaced just now."""
    store = PartitionStore(str(tmp_path / "kept"))
    old = keep(store, tmp_path)
    age(tmp_path / "kept")
    new = keep(store, tmp_path, "two", replaces=True)
    next(steps(store, tmp_path, "three"))

    (content,) = store.contents()

    assert store.remove(content, only_leftovers=True) == 0
    assert content.recent == content.leftovers.keys()
    assert old.folder in content.recent
    age(tmp_path / "kept" / new.fingerprint)
    next(steps(store, tmp_path, "four"))
    (content,) = store.contents()
    assert store.remove(content, only_leftovers=True) == 2
    assert store.find(INPUT)[0] == new
    assert len(store.contents()[0].leftovers) == 1


def test_no_manifest_names_files_that_were_removed_meanwhile(tmp_path: Path) -> None:
    """The writer is told which file is missing, and nothing can be found."""
    store = PartitionStore(str(tmp_path / "kept"))
    writer = steps(store, tmp_path, "one")
    for _ in FILES:
        next(writer)
    (path,) = (tmp_path / "kept").rglob("g.json")
    path.unlink()

    with pytest.raises(StoreError, match=r"g\.json: expected \d+ bytes, found none: .* removed while"):
        next(writer)

    assert store.find(INPUT) == (None, "none is kept")


def test_a_leftover_that_has_become_the_partition_meanwhile_stays(tmp_path: Path) -> None:
    """Between the look and the removal its writer may have come to its end."""
    store = PartitionStore(str(tmp_path / "kept"))
    writer = steps(store, tmp_path, "one")
    for _ in FILES:
        next(writer)
    age(tmp_path / "kept")
    (content,) = store.contents()
    kept = next(writer)

    store.remove(content, only_leftovers=True)

    assert len(content.leftovers) == 1
    assert not content.recent
    assert store.find(INPUT)[0] == kept


class Clock:
    """A clock that goes on when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let them pass."""
        self.now += seconds


def test_a_store_that_is_away_is_tried_for_as_long_as_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that are tried again by themselves add nothing to it."""
    store, clock = PartitionStore(f"mock:///{tmp_path.name}", 600.0), Clock()
    kept = keep(store, tmp_path)

    def away(*_: object) -> None:
        raise OSError("curlCode: 7, no connection")

    monkeypatch.setattr(Arrow, "open_range", away)
    monkeypatch.setattr(retry, "time", clock)

    for read in (lambda: store.fetch(kept, "g.json", tmp_path / "f"), lambda: store.find(INPUT)):
        clock.now = 1.0
        with pytest.raises(StoreError, match="does not answer"):
            read()
        assert 590 < clock.now <= 601


def test_a_file_that_cannot_be_written_leaves_nothing_to_be_found(tmp_path: Path) -> None:
    """The writer says which, and its folder goes."""
    store, folder = PartitionStore(str(tmp_path / "kept")), "w-0123456789abcdef"
    (tmp_path / "there").write_text("x")

    with pytest.raises(StoreError):
        store.write_files(INPUT, folder, {"a": tmp_path / "there", "b": tmp_path / "missing"})
    store.drop(INPUT, folder)

    assert store.find(INPUT) == (None, "none is kept")
    assert store.contents() == []
