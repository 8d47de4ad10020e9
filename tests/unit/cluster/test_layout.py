"""Images in a folder, and archives of them that leave out what the reader has."""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import layout
from tests.cluster.layout import Layout

OLD, NEW, OTHER = "job-00000000000000aa", "job-00000000000000bb", "job-modern-00000000000000cc"


class Folder:
    """Builds a layout as a builder's push does."""

    def __init__(self, path: Path) -> None:
        self.layout = Layout(path)
        self.entries: list[dict[str, Any]] = []
        (path / "blobs" / "sha256").mkdir(parents=True)

    def blob(self, content: bytes) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        (self.layout.folder / "blobs" / "sha256" / digest).write_bytes(content)
        return {"digest": f"sha256:{digest}", "size": len(content)}

    def push(self, ref: str, *layers: bytes) -> None:
        parts = {"config": self.blob(ref.encode()), "layers": [self.blob(layer) for layer in layers]}
        entry = {**self.blob(json.dumps(parts).encode()), "annotations": {layout.REF: ref}}
        self.entries.append(entry)
        (self.layout.folder / "index.json").write_text(json.dumps({"manifests": self.entries}))

    def blobs(self) -> int:
        return len(list((self.layout.folder / "blobs" / "sha256").iterdir()))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Two contents of an image and a variant of it, all on one layer."""
    made = Folder(tmp_path / "images")
    made.push(OLD, b"torch", b"old code")
    made.push(OTHER, b"torch", b"new torch")
    made.push(NEW, b"torch", b"new code")
    return made


def test_only_the_newest_content_is_kept(folder: Folder) -> None:
    """Older contents go with the blobs that only they had; variants are other images."""
    before = folder.blobs()

    folder.layout.keep(NEW)

    assert folder.layout.find(OLD) is None
    assert folder.layout.find(NEW) is not None
    assert folder.layout.find(OTHER) is not None
    assert before - folder.blobs() == 3


def test_an_archive_leaves_out_what_the_reader_has(folder: Folder) -> None:
    """The layer that both images share does not travel; the name does."""
    wanted = folder.layout.find(NEW)
    assert wanted is not None
    shared = f"sha256:{hashlib.sha256(b'torch').hexdigest()}"
    out = io.BytesIO()

    folder.layout.write(wanted, "docker.io/x/job:v1", [shared], out)

    out.seek(0)
    with tarfile.open(fileobj=out) as tar:
        names = tar.getnames()
        index = json.load(tar.extractfile("index.json"))  # type: ignore[arg-type]
    assert index["manifests"][0]["annotations"] == {layout.NAME: "docker.io/x/job:v1"}
    assert {"oci-layout", "index.json"} <= set(names)
    assert len(names) == 2 + 3
    assert f"blobs/{shared.replace(':', '/')}" not in names


def test_an_empty_folder_holds_nothing(tmp_path: Path) -> None:
    """Before the first push there is no index."""
    assert Layout(tmp_path / "none").find(NEW) is None
