"""What a partition is made of, as it lies on disk or in a store: a chunked graph, a script, an assignment."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dglrun.errors import DataError
from dglrun.formats import store
from dglrun.formats.chunked.metadata import FILENAME

IMAGE = "image"
"""What the image is called in the source of a script's partition."""


def of_chunked_graph(folder: str) -> dict[str, str]:
    """The metadata's hash, and each file's size and time of modification.

    Where the folder lies, and the order of the keys in the metadata, make no difference.

    Args:
        folder: A path, or the URI of a store.

    Raises:
        DataError: the metadata cannot be read, or name a file that does not exist.
        StoreError: the store cannot be read.
    """
    root = _Folder(folder)
    raw = root.metadata()
    names = sorted({root.relative(entry) for spec in _tables(raw) for entry in spec["data"]})
    canonical = json.dumps(_with_names(raw, root), sort_keys=True, separators=(",", ":"))
    found = {f"file: {name}": root.state(name) for name in names}
    return {"chunked graph": hashlib.sha256(canonical.encode()).hexdigest(), **found}


def of_script(script: str, image: str) -> dict[str, str]:
    """The script's hash, and the image in which it runs.

    What else the script reads or downloads is not covered.

    Args:
        script: Its file.
        image: The image's digest, or its name where that is all that is known.

    Raises:
        DataError: the script cannot be read.
    """
    return {"partition script": _sum(Path(script)), IMAGE: image or "unknown"}


def of_assignment(folder: str) -> dict[str, str]:
    """The hash of each `<ntype>.txt` of an assignment that the user brings.

    Raises:
        DataError: there is none, or it cannot be read.
    """
    try:
        paths = sorted(Path(folder).glob("*.txt"))
    except OSError as error:
        raise _unreadable(folder, error) from error
    if not paths:
        raise DataError(f"{folder}: expected an assignment (<ntype>.txt), found none")
    return {f"assignment: {path.name}": _sum(path) for path in paths}


class _Folder:
    """The folder of a chunked graph.

    Files in a store are listed once: asking for each of many thousands would take minutes.
    """

    def __init__(self, text: str) -> None:
        self._place = store.place(text if store.is_uri(text) else str(Path(text).absolute()))
        self._files = self._place.files() if self._place.is_remote else None

    def metadata(self) -> dict[str, Any]:
        place = self._place / FILENAME
        text = place.read_bytes()
        try:
            raw = json.loads(text)
        except ValueError as error:
            raise DataError(f"{place}: is not JSON: {error}") from None
        if not isinstance(raw, dict):
            raise DataError(f"{place}: expected a JSON object, got {type(raw).__name__}")
        return raw

    def relative(self, entry: str) -> str:
        """A file's name as the folder's own where it lies in it, whatever the metadata call it."""
        return str(self._beside(entry)).removeprefix(f"{self._place}/")

    def state(self, name: str) -> str:
        place = self._beside(name)
        found = (self._files or {}).get(name) or place.stat()  # a URI may lead out of the folder
        if found is None:
            raise DataError(f"{self._place / FILENAME}: {place} does not exist")
        return f"{found.size} bytes of {found.mtime_ns} ns"

    def _beside(self, entry: str) -> store.Place:
        """As `chunked.input_file.beside`: relative to the folder, or an absolute path, or a URI."""
        return store.place(entry) if store.is_uri(entry) else self._place / entry


def _tables(raw: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The objects of the metadata that name files; `chunked.metadata` refuses later what has another form."""
    for value in raw.values():
        if isinstance(value, dict):
            if isinstance(value.get("data"), list) and "format" in value:
                if not all(isinstance(entry, str) for entry in value["data"]):
                    raise DataError(f"{FILENAME}: expected paths as data, got {value['data']!r}"[:200])
                yield value
            else:
                yield from _tables(value)


def _with_names(raw: Any, root: _Folder) -> Any:
    """The metadata with the files' names as `_Folder.relative` gives them."""
    if not isinstance(raw, dict):
        return raw
    if isinstance(raw.get("data"), list) and "format" in raw:
        return {**raw, "data": [root.relative(entry) for entry in raw["data"]]}
    return {key: _with_names(value, root) for key, value in raw.items()}


def _sum(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(str(path), error) from error


def _unreadable(where: str, error: OSError) -> DataError:
    return DataError(f"{where}: cannot be read: {error.strerror or error}")
