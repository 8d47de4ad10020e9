"""Files that a receiver sees where their owner has them, and places that several receivers write."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dglrun.agent import folder_mark
from dglrun.contract import exitcodes
from dglrun.errors import RunError
from dglrun.transfer.pull import links, placing
from dglrun.transfer.pull import manifest as manifests
from tests.support.pulling import write_files

NAMES = ["none", "part0", "tiny.json"]
SIZES = {"part0/graph.dgl": 500, "part0/deep/feat.dgl": 20, "none/file": 0, "tiny.json": 70}


def test_entries_become_links(tmp_path: Path) -> None:
    """One for each at the top, with the content of all that is below; a second time changes nothing."""
    files = write_files(tmp_path / "there", SIZES)
    manifest, target = manifests.of_files(files), tmp_path / "a/b"

    for _ in range(2):
        assert links.place(manifest, tmp_path / "there", target, "pod")

    assert sorted(path.name for path in target.iterdir()) == NAMES
    assert all(path.is_symlink() for path in target.iterdir())
    assert all((target / name).read_bytes() == path.read_bytes() for name, path in files)


def test_what_was_there_is_replaced_and_its_owner_keeps_his(tmp_path: Path) -> None:
    """A folder of an earlier run, a link to an earlier partition, which stays as it is."""
    manifest = manifests.of_files(write_files(tmp_path / "there", SIZES))
    write_files(tmp_path / "here", {"part0/old.dgl": 9, "other/kept.dgl": 5})
    earlier = write_files(tmp_path / "earlier", {"none/old.dgl": 9})
    (tmp_path / "here/none").symlink_to(tmp_path / "earlier/none")

    assert links.place(manifest, tmp_path / "there", tmp_path / "here", "pod")

    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == sorted([*NAMES, "other"])
    assert not (tmp_path / "here/part0/old.dgl").exists()
    assert earlier[0][1].stat().st_size == 9


def test_the_folder_itself_needs_nothing(tmp_path: Path) -> None:
    """Under another path, too: nothing of the owner's is touched."""
    files = write_files(tmp_path / "there", SIZES)
    (tmp_path / "same").symlink_to(tmp_path / "there")

    assert links.place(manifests.of_files(files), tmp_path / "there", tmp_path / "same", "pod")

    assert not any(path.is_symlink() for path in (tmp_path / "there").rglob("*"))


def test_a_target_that_takes_no_links_is_told(tmp_path: Path) -> None:
    """Then the files are sent."""
    manifest = manifests.of_files(write_files(tmp_path / "there", SIZES))
    (tmp_path / "file").touch()

    assert not links.place(manifest, tmp_path / "there", tmp_path / "file/target", "pod")


@pytest.mark.parametrize(("change", "got"), [(Path.unlink, "nothing"), (Path.touch, "0 bytes")])
def test_a_file_that_is_not_seen_as_it_is_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None], got: str
) -> None:
    """A network's file system may be late, but not for ever."""
    monkeypatch.setattr(links, "SEEN_SECONDS", 0.2)
    manifest = manifests.of_files(write_files(tmp_path / "there", {"a": 1, "b": 70}))
    (tmp_path / "there/b").unlink()
    (tmp_path / "there/b").touch()
    change(tmp_path / "there/b")

    with pytest.raises(RunError, match=f"there/b: expected 70 bytes, .* got {got}") as caught:
        links.place(manifest, tmp_path / "there", tmp_path / "here", "pod")

    assert caught.value.code == exitcodes.IO


def test_a_file_that_is_seen_late_is_waited_for(tmp_path: Path) -> None:
    """As one that another pod has just written."""
    files = write_files(tmp_path / "there", SIZES)
    manifest, content = manifests.of_files(files), files[0][1].read_bytes()
    files[0][1].unlink()
    placed = list[bool]()
    thread = threading.Thread(
        target=lambda: placed.append(links.place(manifest, tmp_path / "there", tmp_path / "here", "pod"))
    )
    thread.start()

    files[0][1].write_bytes(content)
    thread.join(60)

    assert placed == [True]


def test_many_who_place_one_entry_leave_it_whole(tmp_path: Path) -> None:
    """Workers that share a folder and have files in one folder of the partition all place that."""
    sources = [tmp_path / f"of-{at}" for at in range(8)]
    for source in sources:
        write_files(source, {f"file-{at}": 10 for at in range(20)})
    start, failures = threading.Barrier(len(sources)), list[OSError]()

    def place(source: Path) -> None:
        start.wait(60)
        try:
            placing.move(source, tmp_path / "entry")
        except OSError as error:
            failures.append(error)

    threads = [threading.Thread(target=place, args=(source,)) for source in sources]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert failures == []
    assert len(list((tmp_path / "entry").iterdir())) == 20


def test_a_mark_is_there_as_long_as_it_is_wanted(tmp_path: Path) -> None:
    """And is seen through every path that leads to the folder."""
    (tmp_path / "link").symlink_to(tmp_path)
    with folder_mark.marked(tmp_path, "mark") as is_there:
        assert is_there
        assert folder_mark.is_seen(tmp_path / "link", "mark")
        assert folder_mark.seen(tmp_path, "ma") == ("rk",)

    assert not folder_mark.is_seen(tmp_path, "mark")


def test_a_folder_that_cannot_be_marked_counts_as_not_shared(tmp_path: Path) -> None:
    """Copying is right everywhere."""
    with folder_mark.marked(tmp_path / "missing", "mark") as is_there:
        assert not is_there
    with folder_mark.marked(tmp_path, "") as is_there:
        assert not is_there
    assert folder_mark.seen(tmp_path / "missing", "mark") == ()
