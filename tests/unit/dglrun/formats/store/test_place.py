"""Places for files: names, and what is read and written on a folder and on a file system of Arrow's."""

import hashlib
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglrun.contract import exitcodes
from dglrun.errors import DataError, RunError
from dglrun.formats import store, uri
from dglrun.formats.store import Place, StoreError, StoreFailure, bytes_read
from dglrun.formats.store.file_backend import PARTIAL, STEP

NAMES = st.text("ab.-_0", min_size=1, max_size=8).filter(lambda name: name not in (".", ".."))


@pytest.fixture(params=["folder", "arrow"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """An empty place on this machine, and one on Arrow's file system in memory."""
    found = store.place(str(tmp_path / "base") if request.param == "folder" else "mock:///base")
    yield found
    found.remove_tree()


def test_what_is_written_is_read(base: Place) -> None:
    """Bytes come back as they were written, and the place lists them with their size."""
    (base / "a/b.bin").write_bytes(b"0123456789")

    assert (base / "a/b.bin").read_bytes() == b"0123456789"
    assert {name: stat.size for name, stat in base.files().items()} == {"a/b.bin": 10}
    assert (base / "a" / "b.bin").stat() == base.files()["a/b.bin"]


def test_an_empty_file_is_a_file(base: Place) -> None:
    """A file of no bytes is written, listed and read."""
    (base / "empty").write_bytes(b"")

    assert (base / "empty").read_bytes() == b""
    assert [stat.size for stat in base.files().values()] == [0]


def test_a_place_that_is_missing_has_no_files(base: Place) -> None:
    """What does not exist has no files and no stat, and reading it says so."""
    assert (base / "none").files() == {}
    assert (base / "none").stat() is None
    with pytest.raises(StoreError, match=r"none: expected an object, found none") as caught:
        (base / "none").read_bytes()
    assert caught.value.failure is StoreFailure.MISSING


@pytest.mark.parametrize("target", ["self", "file"])
def test_a_folder_that_cannot_be_read_is_not_an_empty_one(tmp_path: Path, target: str) -> None:
    """Whoever takes it for empty makes anew what is there, or says that all is well."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "self").symlink_to(tmp_path / target)

    with pytest.raises(StoreError, match=f"{tmp_path}/self: cannot be read or written"):
        store.place(str(tmp_path / "self")).files()


def test_a_folder_is_no_file(base: Place) -> None:
    """A folder has files and no stat."""
    (base / "a/b").write_bytes(b"1")

    assert (base / "a").stat() is None


def test_ranges_are_read(base: Place) -> None:
    """A file is read from any byte on, past its end nothing."""
    (base / "f").write_bytes(bytes(range(100)))

    with (base / "f").open_range() as file:
        assert file.size() == 100
        assert file.read_at(3, 40) == bytes([40, 41, 42])
        file.seek(98)
        assert file.read(10) == bytes([98, 99])
        assert file.read(10) == b""


def test_a_file_is_uploaded_and_downloaded(base: Place, tmp_path: Path) -> None:
    """A file of several steps arrives as it is, with its sum, in both directions."""
    data = hashlib.sha256(b"seed").digest() * (STEP // 32 * 2 + 1)
    (tmp_path / "from").write_bytes(data)

    sent = (base / "f").upload(tmp_path / "from")
    got = (base / "f").download(tmp_path / "to", sent.sha256)

    assert sent == got == store.Sum(hashlib.sha256(data).hexdigest(), len(data))
    assert (tmp_path / "to").read_bytes() == data


def test_another_sum_than_the_expected_one_leaves_no_file(base: Place, tmp_path: Path) -> None:
    """A download that is not what it must be fails and leaves what was there."""
    (base / "f").write_bytes(b"wrong")
    (tmp_path / "to").write_bytes(b"before")

    with pytest.raises(StoreError, match=r"f: expected sha256 00, got .* of 5 bytes") as caught:
        (base / "f").download(tmp_path / "to", "00")

    assert caught.value.failure is StoreFailure.CHANGED
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["to"]
    assert (tmp_path / "to").read_bytes() == b"before"


def test_a_failed_upload_leaves_what_was_there(base: Place, tmp_path: Path) -> None:
    """Where the file to upload is missing the place keeps the old one, and nothing half is listed."""
    (base / "f").write_bytes(b"before")

    with pytest.raises(StoreError, match="none"):
        (base / "f").upload(tmp_path / "none")

    assert {name: stat.size for name, stat in base.files().items()} == {"f": 6}


def test_a_file_that_grows_is_not_uploaded(base: Place, tmp_path: Path) -> None:
    """A file that changes under the upload is refused before the place shows it."""
    source = tmp_path / "grows"
    source.write_bytes(b"x" * STEP)
    before = source.stat().st_size

    class Grown(type(source)):  # type: ignore[misc]
        """Its size is asked before the second half is written."""

        def stat(self, *, follow_symlinks: bool = True) -> object:
            found = super().stat(follow_symlinks=follow_symlinks)
            with Path(self).open("ab") as file:
                file.write(b"y")
            return found

    with pytest.raises(StoreError, match=f"changed while it was read: {before} bytes before"):
        (base / "f").upload(Grown(source))
    assert base.files() == {}


def test_the_name_is_the_last_to_come(base: Place) -> None:
    """A file that is being written is not listed."""
    (base / f".f{PARTIAL}0").write_bytes(b"half")

    assert base.files() == {}


def test_a_tree_is_removed(base: Place) -> None:
    """A folder goes with all that is in it, a file alone, and what is missing is no error."""
    for name in ("a/b", "a/c/d", "e"):
        (base / name).write_bytes(b"1")

    (base / "a").remove_tree()
    (base / "e").remove_tree()
    (base / "e").remove_tree()

    assert base.files() == {}


def test_no_whole_file_system_is_removed() -> None:
    """A bucket or `/` is never meant."""
    for text in ("/", "mock:///"):
        with pytest.raises(DataError, match="is not removed"):
            store.place(text).remove_tree()


def test_bytes_of_objects_are_counted(tmp_path: Path) -> None:
    """What is read by ranges of a remote file is counted, and that alone."""
    remote = store.place("mock:///counted/f")
    remote.write_bytes(bytes(1000))
    before = bytes_read()

    with remote.open_range() as file:
        file.read_at(100, 50)
        file.read_at(7, 900)

    assert bytes_read() - before == 107


@given(st.lists(NAMES, min_size=1, max_size=4))
def test_names_are_joined(names: list[str]) -> None:
    """A place of joined names is the one of the whole text, on a machine and on S3."""
    for root in ("/data", "s3://bucket/prefix"):
        text = "/".join(names)
        whole = store.place(f"{root}/{text}", {})
        parts = store.place(root, {})
        for name in names:
            parts = parts / name

        assert whole == parts == store.place(root, {}) / text
        assert str(whole) == f"{root}/{text}"
        assert (whole.name, whole.parent / whole.name) == (names[-1], whole)


def test_no_name_leads_out() -> None:
    """A name cannot climb out of a bucket."""
    with pytest.raises(DataError, match="expected a name within it"):
        _ = store.place("s3://bucket/a", {}) / "../../b"
    with pytest.raises(DataError, match="expected a name relative to it"):
        _ = store.place("s3://bucket/a", {}) / "/b"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data", "expected an absolute path or a URI such as s3://bucket/prefix, got 'data'"),
        ("s3://", "expected s3://bucket/prefix"),
        ("s3:///key", "expected s3://bucket/prefix"),
        ("s3://b!/key", "expected s3://bucket/prefix"),
        ("s3://bucket/a/../b", "expected names other than"),
        ("s3://bucket/a?region=x", "no credentials and no options"),
        ("s3://user:secret@bucket/a", "no credentials and no options"),
        ("s3://user:se/cret@bucket/a", "no credentials and no options"),
        ("S3://user:1/secret@bucket/a", "no credentials and no options"),
        ("s3://user:secret", "no credentials and no options"),
        ("s3://secret/x@bucket/a", "no credentials and no options"),
        ("hdfs://user:secret/a", "no credentials and no options"),
        ("s3://[x/a", "expected a URI such as s3://bucket/prefix"),
        ("s3:/user:secret@bucket", "expected an absolute path or a URI"),
        ("file://host/a", "expected file:///PATH"),
        ("nothing://a/b", "nothing://a: expected a path or a URI that pyarrow.fs opens"),
    ],
)
def test_a_text_that_is_no_place_is_refused(text: str, message: str) -> None:
    """Each refusal says what was expected and shows no secret."""
    with pytest.raises(DataError, match=message) as caught:
        store.place(text, {})

    assert "secret" not in str(caught.value)
    assert "cret@" not in str(caught.value)


@given(st.text("ab/:.1", min_size=1), st.text("ab/:.1", min_size=1), st.sampled_from(["s3", "gs", "hdfs"]))
def test_a_user_and_a_secret_are_refused_whatever_they_are(user: str, secret: str, scheme: str) -> None:
    """A URI with both is never shown, wherever a parser would split it."""
    text = f"{scheme}://{user}:{secret}@bucket/p"

    assert uri.may_have_secrets(text)
    assert uri.shown(text) == f"{scheme}://..."


@pytest.mark.parametrize("text", ["hdfs://name:8020/a:b", "hdfs://[::1]:8020/a", "s3://bucket/a:b", "/a@b"])
def test_a_port_is_no_secret(text: str) -> None:
    """A host with a port, a colon in a name, and a path with an '@' are as they were."""
    assert not uri.may_have_secrets(text)
    assert uri.shown(text) == text


def test_places_are_values() -> None:
    """Places are compared, hashed and sent to other processes; S3 is asked by none of it."""
    found = store.place("s3://bucket/a", {"AWS_ENDPOINT_URL": "https://minio:9000"})

    assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301 - our own bytes
    assert found.is_remote
    assert not store.place("file:///a/b").is_remote
    assert store.place("file:///a%20b") == store.place("/a b")


def test_a_store_error_ends_commands_and_runs() -> None:
    """The error is of both kinds, with a code of its own; a full disk keeps its code."""
    refused = StoreError("no", StoreFailure.CREDENTIALS)
    full = StoreError("no", StoreFailure.NO_SPACE)

    assert isinstance(refused, DataError)
    assert isinstance(refused, RunError)
    assert (refused.code, refused.exit_code) == (exitcodes.STORE, exitcodes.STORE)
    assert (full.code, full.exit_code) == (exitcodes.FULL, exitcodes.FULL)
    assert pickle.loads(pickle.dumps(full)).failure is StoreFailure.NO_SPACE  # noqa: S301
