"""manifest.json of a kept partition: what was made of what, by whom, and the size and sum of each file.

Standard library only: the launcher reads it, and starts without pyarrow.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

from dglrun.formats.kept import fingerprint
from dglrun.formats.kept.fingerprint import PartitionInput

MANIFEST = "manifest.json"
FOLDER = re.compile(r"w-[0-9a-f]{16}")
"""The name of a writer's folder."""
_FORMAT = 1
_SUM = re.compile(r"[0-9a-f]{64}")


class NoManifestError(ValueError):
    """The text is no manifest of a kept partition; says what was expected."""


@dataclass(frozen=True)
class KeptFile:
    """One file of a kept partition: bytes, and its SHA-256 in hexadecimal digits."""

    size: int
    sha256: str


@dataclass(frozen=True)
class KeptPartition:
    """One manifest.

    Attributes:
        fingerprint: Of what it was made of.
        folder: The writer's folder beside the manifest, which has all files.
        config: Name of the partition's JSON.
        parts: How many parts it has.
        files: By name, relative to the folder.
        input: What it was made of.
        made: When, in RFC 3339.
        job: By which job, with its namespace.
        dglrun: By which release.
        quality: As `status.partition` shows it; None: it was not measured.
    """

    fingerprint: str
    folder: str
    config: str
    parts: int
    files: Mapping[str, KeptFile]
    input: PartitionInput
    made: str
    job: str
    dglrun: str
    quality: Mapping[str, Any] | None = None

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files.values())

    @property
    def path(self) -> str:
        """The writer's folder within the store."""
        return f"{self.fingerprint}/{self.folder}"

    def files_of(self, names: set[str]) -> dict[str, KeptFile]:
        """The files with these names or below folders with these names, and the JSON last."""
        found = {name: file for name, file in self.files.items() if names & _prefixes(name)}
        found.pop(self.config, None)
        return {**found, self.config: self.files[self.config]}


def encode(kept: KeptPartition) -> bytes:
    """The text of a manifest."""
    return json.dumps({"format": _FORMAT, **asdict(kept)}, indent=1).encode() + b"\n"


def decode(text: bytes | str) -> KeptPartition:
    """Read what `encode` wrote.

    Raises:
        NoManifestError: it is something else, or names a file out of the folder.
    """
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise NoManifestError(f"expected JSON: {error}") from None
    return of_object(raw)


def of_object(raw: Any) -> KeptPartition:
    """Check what was read as JSON.

    Raises:
        NoManifestError: as `decode`.
    """
    try:
        found = dict(raw)
        if found.pop("format") != _FORMAT:
            raise ValueError(f"expected format {_FORMAT}")
        files = {str(name): KeptFile(**each) for name, each in found.pop("files").items()}
        kept = KeptPartition(files=files, input=fingerprint.decode(found.pop("input")), **found)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NoManifestError(f"expected the manifest of a kept partition: {error}") from None
    if problem := _problem(kept):
        raise NoManifestError(f"expected the manifest of a kept partition: {problem}")
    return kept


def _problem(kept: KeptPartition) -> str | None:
    bad = [name for name, file in kept.files.items() if not _is_inside(name) or not _is_whole(file)]
    if bad:
        return f"file {bad[0]!r}"
    if not isinstance(kept.folder, str) or not FOLDER.fullmatch(kept.folder):
        return f"folder {kept.folder!r}"
    if not fingerprint.is_fingerprint(str(kept.fingerprint)):
        return f"fingerprint {kept.fingerprint!r}"
    if kept.config not in kept.files or type(kept.parts) is not int or kept.parts < 1:
        return f"config {kept.config!r} of {kept.parts!r} parts"
    return None


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(path.parts) and str(path) == name and not path.is_absolute() and ".." not in path.parts


def _is_whole(file: KeptFile) -> bool:
    return type(file.size) is int and file.size >= 0 and bool(_SUM.fullmatch(str(file.sha256)))


def _prefixes(name: str) -> set[str]:
    """The name and its folders."""
    return {name, *(str(folder) for folder in PurePosixPath(name).parents)} - {"."}
