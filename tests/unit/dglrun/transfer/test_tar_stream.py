"""Streams of files with checksums, in and out."""

import errno
import io
import os
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dglrun.transfer import tar_stream
from dglrun.transfer.copy import RECEIVE
from dglrun.transfer.tar_stream import (
    ZEROS,
    Alive,
    Item,
    NameTakenError,
    PackError,
    items,
    output_items,
    pack,
    unpack,
)

names = st.lists(
    st.text("abz .é-", min_size=1, max_size=5).filter(lambda n: n.strip(". ")), min_size=1, max_size=3
)
trees = st.dictionaries(names.map("/".join), st.binary(max_size=3000), max_size=6).filter(
    lambda tree: not any(b.startswith(a + "/") for a in tree for b in tree)
)


any_names = st.binary(min_size=1, max_size=20).filter(
    lambda n: not {b"/"[0], 0} & {*n} and n not in (b".", b"..") and not n.startswith(b".dglrun-")
)
any_trees = st.dictionaries(any_names.map(os.fsdecode), st.binary(max_size=300), max_size=6)


def write_tree(folder: Path, tree: dict[str, bytes]) -> None:
    """Files with their content."""
    for name, content in tree.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def read_tree(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def packed(folder: Path) -> bytes:
    """An output folder as a stream."""
    stream = io.BytesIO()
    pack(output_items(folder)[0], stream, ZEROS)
    return stream.getvalue()


def packed_for_a_shell(folder: Path) -> bytes:
    """A folder as a stream for a shell."""
    stream = io.BytesIO()
    pack(items(folder), stream)
    return stream.getvalue()


@settings(deadline=None)  # files and processes on a busy machine
@given(trees)
def test_what_is_packed_is_unpacked(tmp_path_factory: pytest.TempPathFactory, tree: dict[str, bytes]) -> None:
    """Names with blanks, empty files, empty folders: the same files arrive."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("target")
    write_tree(source, tree)

    names = unpack(io.BytesIO(packed(source)), target)

    assert read_tree(target) == tree
    assert names == sorted(tree)


@settings(deadline=None)  # files on a busy machine
@given(any_trees)
@example({"back\\slash": b"1", "new\nline": b"2", os.fsdecode(b"latin-\xe9"): b"3", "-rf": b"4", " ": b"5"})
def test_any_name_that_linux_knows_is_carried(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, bytes]
) -> None:
    """A training is not thrown away for a backslash in the name of a checkpoint."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("target")
    write_tree(source, tree)

    names = unpack(io.BytesIO(packed(source)), target)

    assert read_tree(target) == tree
    assert names == sorted(tree)


def test_links_are_not_followed(tmp_path: Path) -> None:
    """A link within the folder stays a link; what leads out or nowhere is left out and noted."""
    source, target, outside = tmp_path / "source", tmp_path / "target", tmp_path / "outside"
    write_tree(source, {"epoch-3/model.pt": b"weights"})
    outside.write_text("a data set")
    for name, to in {
        "latest": "epoch-3",
        "epoch-3/best.pt": "../epoch-3/model.pt",
        "absolute": str(source / "epoch-3/model.pt"),
        "out": "../outside",
        "dangling": "epoch-4",
        "loop": "loop",
    }.items():
        (source / name).symlink_to(to)
    stream = io.BytesIO()

    found, notes = output_items(source)
    pack(found, stream, ZEROS)
    names = unpack(io.BytesIO(stream.getvalue()), target)

    assert names == ["epoch-3/best.pt", "epoch-3/model.pt", "latest"]
    assert (target / "latest/best.pt").read_bytes() == b"weights"
    assert os.readlink(target / "latest") == "epoch-3"  # noqa: PTH115
    assert [note.split()[2].rpartition("/")[2] for note in notes] == ["absolute", "dangling", "loop", "out"]


@pytest.mark.parametrize("to", ["/etc/passwd", "../x", "a/../../x", "a/.."])
def test_a_link_that_leads_out_is_refused(tmp_path: Path, to: str) -> None:
    """Whoever follows it on the launcher would read or write there."""
    stream = io.BytesIO()
    pack([Item(tmp_path, "link", to)], stream, ZEROS)

    with pytest.raises(PackError, match="within the folder"):
        unpack(io.BytesIO(stream.getvalue()), tmp_path / "target")

    assert list((tmp_path / "target").iterdir()) == []


def test_a_link_below_a_link_is_refused(tmp_path: Path) -> None:
    """Through the first one the second would lie, and lead, outside of its own folder."""
    stream = io.BytesIO()
    pack([Item(tmp_path, "d/e", ".."), Item(tmp_path, "d/e/other", "../../evil")], stream, ZEROS)

    with pytest.raises(PackError, match="expected a folder above it"):
        unpack(io.BytesIO(stream.getvalue()), tmp_path / "target")

    assert list((tmp_path / "target").iterdir()) == []


@pytest.mark.parametrize("names", [("./a/b/d", "a/b/d/e"), ("a//b/d", "a/b/d/e"), ("a/b/d", "./a/b/d/e")])
def test_a_link_below_a_link_is_refused_however_it_is_written(tmp_path: Path, names: tuple[str, str]) -> None:
    """Two ways to write one name are two names to whoever compares them."""
    stream = io.BytesIO()
    pack([Item(tmp_path, names[0], "../.."), Item(tmp_path, names[1], "../../../evil")], stream, ZEROS)

    with pytest.raises(PackError, match="expected a file within the folder"):
        unpack(io.BytesIO(stream.getvalue()), tmp_path / "target")

    assert list((tmp_path / "target").iterdir()) == []


@pytest.mark.parametrize("name", [".dglrun-incoming", ".dglrun-incoming/a", ".dglrun-shared-x", "."])
def test_a_name_of_dglruns_own_is_refused(tmp_path: Path, name: str) -> None:
    """It would take the place of a copy under way, or look like the mark of the launcher's own folder."""
    (tmp_path / "f").write_text("x")
    stream = io.BytesIO()
    pack([Item(tmp_path / "f", name)], stream, ZEROS)

    with pytest.raises(PackError, match="expected a "):
        unpack(io.BytesIO(stream.getvalue()), tmp_path / "target")

    assert list((tmp_path / "target").iterdir()) == []


@pytest.mark.parametrize("name", ["job-worker-1", "job-worker-1/model.pt"])
@pytest.mark.parametrize("link", ["", "job-worker-2"])
def test_a_name_that_belongs_to_another_worker_is_refused(tmp_path: Path, name: str, link: str) -> None:
    """As a file, as a folder and as a link; that worker's files stay."""
    target = tmp_path / "target"
    write_tree(target, {"job-worker-1/model.pt": b"its own"})
    (tmp_path / "f").write_text("x")
    stream = io.BytesIO()
    pack([Item(tmp_path / "f", "first"), Item(tmp_path / "f", name, link)], stream, ZEROS)

    with pytest.raises(NameTakenError, match=f"{name}: the name belongs to another worker"):
        unpack(io.BytesIO(stream.getvalue()), target, {"job-worker-1"})

    assert read_tree(target) == {"job-worker-1/model.pt": b"its own"}


def test_what_is_neither_file_nor_folder_is_left_out(tmp_path: Path) -> None:
    """A pipe would be read without end."""
    os.mkfifo(tmp_path / "pipe")

    found, notes = output_items(tmp_path)

    assert (found, notes) == ([], [f"not copied: {tmp_path}/pipe is no file"])


@pytest.fixture
def unlisted(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Folders that cannot be listed, by name, and for which error; root, as tests may be, lists any."""
    found, scandir = dict[str, int](), os.scandir

    def listed(path: Path) -> Any:
        number = found.get(Path(path).name)
        if number:
            raise OSError(number, os.strerror(number), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", listed)
    return found


def test_a_folder_that_may_not_be_listed_is_named(tmp_path: Path, unlisted: dict[str, int]) -> None:
    """The lost+found of a volume, for example; the rest comes."""
    write_tree(tmp_path, {"lost+found/x": b"1", "model.pt": b"2"})
    unlisted["lost+found"] = errno.EACCES

    found, notes = output_items(tmp_path)

    assert [item.name for item in found] == ["model.pt"]
    assert notes == [f"not copied: {tmp_path}/lost+found: cannot be read: Permission denied"]


def test_a_folder_on_a_disk_that_fails_fails(tmp_path: Path, unlisted: dict[str, int]) -> None:
    """A model would be lost while the job succeeds."""
    write_tree(tmp_path, {"epoch-1/model.pt": b"1", "log": b"2"})
    unlisted["epoch-1"] = errno.EIO

    with pytest.raises(PackError, match=f"{tmp_path}/epoch-1: cannot be read: Input/output error") as caught:
        output_items(tmp_path)

    assert isinstance(caught.value.__cause__, OSError)


def test_a_listing_shows_that_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads waits for 60 s only; what comes meanwhile is skipped, by an older launcher, too."""
    source, target = tmp_path / "source", tmp_path / "target"
    tree = {f"{at % 7}/{at}": b"x" for at in range(300)}
    write_tree(source, tree)
    monkeypatch.setattr(tar_stream, "ALIVE_SECONDS", 0.0)
    stream = io.BytesIO()

    found, _notes = output_items(source, alive=Alive(stream))
    shown = stream.tell()
    pack(found, stream, ZEROS)

    assert shown == 200 * 1024
    assert unpack(io.BytesIO(stream.getvalue()), target) == sorted(tree)


def test_a_file_with_holes_arrives_as_it_is_read(tmp_path: Path) -> None:
    """Its holes come as zeros: the same bytes, also at its end."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    with (source / "sparse").open("wb") as file:
        file.seek(2 << 20)
        file.write(b"data")
        file.truncate(5 << 20)

    unpack(io.BytesIO(packed(source)), target)

    assert (target / "sparse").read_bytes() == bytes(2 << 20) + b"data" + bytes((3 << 20) - 4)


@pytest.mark.parametrize("error", [ConnectionResetError, TimeoutError, ssl.SSLError, BrokenPipeError])
def test_a_stream_that_breaks_is_no_fault_of_the_file(tmp_path: Path, error: type[OSError]) -> None:
    """It may pass, and is tried again; a file that cannot be read is tried three times."""

    class Broken(io.BytesIO):
        has_failed = False

        def write(self, data: Any) -> int:
            if not self.has_failed:
                self.has_failed = True
                raise error("cut")
            return super().write(data)

    write_tree(tmp_path, {"model.pt": bytes(3 << 20)})

    with pytest.raises(error, match="cut"):
        pack(output_items(tmp_path)[0], Broken(), ZEROS)


def test_a_file_that_becomes_shorter_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its length stands before its bytes."""
    write_tree(tmp_path, {"log": b"x" * 100})
    states = os.fstat
    longer = lambda number: os.stat_result([*states(number)[:6], 200, *states(number)[7:10]])  # noqa: E731
    monkeypatch.setattr(os, "fstat", longer)

    with pytest.raises(PackError, match="log: cannot be read whole: unexpected end of data"):
        pack([Item(tmp_path / "log", "log")], io.BytesIO())


def test_a_new_output_takes_the_place_of_an_old_one(tmp_path: Path) -> None:
    """A file where a folder was, a folder where a file or a link was."""
    source, target, outside = tmp_path / "source", tmp_path / "target", tmp_path / "outside"
    write_tree(source, {"a": b"file", "b/c": b"file", "d/e": b"file"})
    write_tree(target, {"a/old": b"", "b": b"old"})
    write_tree(outside, {"mine": b""})
    (target / "d").symlink_to(outside)

    unpack(io.BytesIO(packed(source)), target)

    assert read_tree(target) == {"a": b"file", "b/c": b"file", "d/e": b"file"}
    assert (outside / "mine").exists()


@settings(deadline=None)  # files and processes on a busy machine
@given(trees.filter(bool))
def test_a_shell_with_tar_and_sha256sum_takes_it_too(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, bytes]
) -> None:
    """The receiving end in a container without Python of ours."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("target")
    write_tree(source, tree)
    entries = sorted({name.split("/")[0] for name in tree})

    done = subprocess.run(
        [*RECEIVE, str(target), *entries], input=packed_for_a_shell(source), capture_output=True, check=False
    )

    assert done.returncode == 0, done
    assert done.stdout.decode().splitlines()[-1] == "whole"
    assert read_tree(target) == tree


@settings(deadline=None)  # files and processes on a busy machine
@given(data=st.data())
def test_a_changed_stream_never_passes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """A flipped byte within a file's content, or a cut before the end: refused, and nothing is left."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("target")
    write_tree(source, {"a/b": b"x" * 700, "c": b"y" * 1500})
    stream = bytearray(packed(source))
    if data.draw(st.booleans()):
        at = data.draw(st.sampled_from([n for n, byte in enumerate(stream) if byte in b"xy" and n > 512]))
        stream[at] ^= data.draw(st.integers(1, 255))
    else:
        del stream[data.draw(st.integers(0, 3500)) :]

    with pytest.raises(PackError):
        unpack(io.BytesIO(bytes(stream)), target)

    assert list(target.iterdir()) == []


@pytest.mark.parametrize("name", ["../../outside", "{tmp_path}/outside", "a/../../../outside"])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    """A stream may write below its target only, whether its name climbs or is absolute."""
    (tmp_path / "f").write_text("x")
    stream = io.BytesIO()
    pack([Item(tmp_path / "f", name.format(tmp_path=tmp_path))], stream, ZEROS)

    with pytest.raises(PackError, match="within the folder"):
        unpack(io.BytesIO(stream.getvalue()), tmp_path / "target")

    assert not (tmp_path / "outside").exists()


def test_a_file_that_vanishes_is_named(tmp_path: Path) -> None:
    """The user's disk is the cause, not the stream."""
    with pytest.raises(PackError, match="gone: cannot be read whole"):
        pack([Item(tmp_path / "gone", "gone")], io.BytesIO())


def test_a_name_that_no_list_of_sums_can_hold_is_refused(tmp_path: Path) -> None:
    """sha256sum would escape it."""
    (tmp_path / "a\nb").touch()

    with pytest.raises(PackError, match="line breaks"):
        items(tmp_path)
