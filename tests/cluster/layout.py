"""A folder of images by the Open Container Initiative's layout, handed to the runtime without what it has.

Layers are most of an image, and few change from one build to the next: images share them here, and only
the missing ones travel.
"""

import io
import json
import re
import tarfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

REF = "org.opencontainers.image.ref.name"
NAME = "io.containerd.image.name"

Descriptor = dict[str, Any]


@dataclass(frozen=True)
class Layout:
    """The folder; `push` of a builder writes it, and a reference names one image in it."""

    folder: Path

    def find(self, ref: str) -> Descriptor | None:
        """Return the descriptor of an image, None when it is not here."""
        found = [entry for entry in self._entries() if entry.get("annotations", {}).get(REF) == ref]
        return found[0] if found else None

    def keep(self, ref: str) -> None:
        """Forget older contents of the image of this reference, and the blobs that only they had.

        References end with a hyphen and 16 hexadecimal digits, the hash of the content.
        """
        older = re.compile(re.escape(ref[:-16]) + r"[0-9a-f]{16}")
        entries = [e for e in self._entries() if not _is_older(e.get("annotations", {}).get(REF), ref, older)]
        index = self._index()
        index["manifests"] = entries
        aside = self.folder / ".index.json"
        aside.write_text(json.dumps(index))
        aside.rename(self.folder / "index.json")
        needed = {digest for entry in entries for digest in self.digests(entry)}
        for blob in (self.folder / "blobs" / "sha256").iterdir():
            if f"sha256:{blob.name}" not in needed:
                blob.unlink()

    def digests(self, descriptor: Descriptor) -> list[str]:
        """Return the blobs of an image: manifest, configuration, layers."""
        manifest = json.loads(self._blob(descriptor["digest"]).read_text())
        parts = [manifest["config"], *manifest["layers"]]
        return [str(descriptor["digest"]), *(str(part["digest"]) for part in parts)]

    def write(self, descriptor: Descriptor, name: str, present: Collection[str], out: IO[bytes]) -> None:
        """Write an archive of one image without the blobs that the reader has.

        Args:
            descriptor: the image.
            name: the full name that the reader shall know it by.
            present: digests that the reader has.
            out: where the archive goes; may be a pipe.
        """
        entry = {**descriptor, "annotations": {NAME: name}}
        index = {"schemaVersion": 2, "manifests": [entry]}
        with tarfile.open(fileobj=out, mode="w|") as tar:
            _add_text(tar, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}))
            for digest in dict.fromkeys(self.digests(descriptor)):
                if digest not in present:
                    tar.add(self._blob(digest), f"blobs/{digest.replace(':', '/')}")
            _add_text(tar, "index.json", json.dumps(index))

    def _blob(self, digest: str) -> Path:
        return self.folder / "blobs" / digest.replace(":", "/")

    def _index(self) -> dict[str, Any]:
        path = self.folder / "index.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"manifests": []}
        return found

    def _entries(self) -> list[Descriptor]:
        return list(self._index()["manifests"])


def _is_older(found: str | None, ref: str, older: re.Pattern[str]) -> bool:
    return found is None or (found != ref and older.fullmatch(found) is not None)


def _add_text(tar: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(text.encode())
    tar.addfile(entry, io.BytesIO(text.encode()))
