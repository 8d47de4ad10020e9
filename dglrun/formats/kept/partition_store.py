"""Kept partitions in a store: find, keep, list, check, remove."""

import hashlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from dglrun.errors import DataError, StoreError
from dglrun.formats import store
from dglrun.formats.kept import kept_partition
from dglrun.formats.kept.fingerprint import PartitionInput, differences, is_fingerprint
from dglrun.formats.kept.kept_partition import FOLDER, MANIFEST, KeptFile, KeptPartition, NoManifestError
from dglrun.formats.store import Place

AT_A_TIME = 4
"""Files that are written, or read, at the same time."""
_READ = 1 << 20
SPARED_SECONDS = 86400.0
"""Leftovers younger than that may be those of a job that runs: it writes them now, or reads them in place."""

T = TypeVar("T")


@dataclass(frozen=True)
class Content:
    """What lies under one fingerprint.

    Attributes:
        fingerprint: Which.
        kept: The partition that its manifest names; None: there is no manifest that can be read.
        problem: Why there is none.
        leftovers: Files of each folder that the manifest does not name: of writers that were killed, or are
            writing now, or whose partition was replaced. None where the manifest cannot be read: which files
            it names is not known.
        recent: Those of these folders that `remove` spares: their newest file, or the manifest that has made
            them leftovers, is younger than `SPARED_SECONDS`.
    """

    fingerprint: str
    kept: KeptPartition | None
    problem: str
    leftovers: Mapping[str, int]
    recent: frozenset[str] = frozenset()


class PartitionStore:
    """The kept partitions below one place.

    Args:
        uri: A path, or a URI that `formats.store` opens.
        seconds: How long transient failures are tried again.

    Raises:
        StoreError: the URI cannot be meant.
    """

    def __init__(self, uri: str, seconds: float = 0.0) -> None:
        self._place, self._seconds = store.place(uri), seconds

    def __str__(self) -> str:
        return str(self._place)

    @property
    def is_remote(self) -> bool:
        """Whether it is no folder of this machine."""
        return self._place.is_remote

    def for_input(self, wanted: PartitionInput) -> "PartitionStore":
        """The store itself, or the one around it where the URI names a fingerprint, which then must be ours.

        Raises:
            DataError: it is another one's; names both and what differs.
            StoreError: the store cannot be read.
        """
        text, own, last = str(self._place), wanted.fingerprint, self._place.name
        found = self._own_manifest(last)
        if found is None and not is_fingerprint(last):
            return self
        given = last if found is None else found.fingerprint
        if given == own == last:
            return PartitionStore(str(self._place.parent), self._seconds)
        what = differences(wanted, found.input) if found and given != own else "the folder has another name"
        reason = what if found else "nothing is kept there, so what differs is not known"
        raise DataError(f"{text}: expected the kept partition {own} of this job, got {given}: {reason}")

    def find(self, wanted: PartitionInput) -> tuple[KeptPartition | None, str]:
        """The partition of this input, whose files are all there with their sizes.

        Returns:
            The partition, or None and why there is none.

        Raises:
            DataError: what lies there is no manifest.
            StoreError: the store cannot be read.
        """
        kept = self._manifest(self._place / wanted.fingerprint)
        if kept is None:
            return None, "none is kept"
        if problems := self.lacking(kept):
            return None, f"it is not whole: {problems[0]}"
        return kept, ""

    def get(self, fingerprint: str) -> KeptPartition:
        """The partition under a fingerprint.

        Raises:
            DataError: there is none, or its manifest is none.
            StoreError: the store cannot be read.
        """
        if kept := self._manifest(self._place / fingerprint):
            return kept
        raise DataError(f"{self._place / fingerprint}: expected {MANIFEST}, found none")

    def lacking(self, kept: KeptPartition) -> list[str]:
        """What is wrong with names and sizes of a partition's files, by one look into its folder."""
        folder = self._place / kept.path
        found = self._retried(folder.files)
        texts = []
        for name, file in kept.files.items():
            got = found[name].size if name in found else None
            if got != file.size:
                has = "found none" if got is None else f"found {got}"
                texts.append(f"{folder / name}: expected {file.size} bytes, {has}")
        return texts

    def fetch(self, kept: KeptPartition, name: str, path: Path) -> None:
        """Copy one file here, its sum compared.

        Raises:
            StoreError: it cannot be read or written, or is not what the manifest says.
        """
        place, sha256 = self._file(kept, name), kept.files[name].sha256
        self._read(lambda seconds: place.download(path, sha256, seconds))

    def local_folder(self, kept: KeptPartition) -> Path | None:
        """The folder of the files where they can be used in place; None: in a store they cannot."""
        if self._place.is_remote:
            return None
        return Path(self._place.key, kept.path)

    # --- writing

    def new_folder(self) -> str:
        """A name for the folder of one writer, which nobody else has."""
        return f"w-{secrets.token_hex(8)}"

    def write_file(self, wanted: PartitionInput, folder: str, name: str, path: Path) -> KeptFile:
        """Write one file of a partition; nobody sees it before `publish`.

        Raises:
            StoreError: it cannot be written.
        """
        target = self._place / wanted.fingerprint / folder / name
        found = self._retried(lambda: target.upload(path))
        return KeptFile(found.size, found.sha256)

    def write_files(
        self, wanted: PartitionInput, folder: str, files: Mapping[str, Path]
    ) -> dict[str, KeptFile]:
        """Write some files, several at a time.

        Raises:
            StoreError: one cannot be written; the others are not waited for longer than their own end.
        """
        with ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="keep") as pool:
            futures = {
                name: pool.submit(self.write_file, wanted, folder, name, path) for name, path in files.items()
            }
            try:
                return {name: future.result() for name, future in futures.items()}
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def publish(self, kept: KeptPartition, replaces: bool = False) -> KeptPartition:
        """Write the manifest, after which the partition can be found.

        Where another job has kept the same meanwhile, that stays, and the files of this writer go.

        Args:
            kept: The partition, whose files have been written.
            replaces: Whether it takes the place of an earlier one. The files of that stay until they are
                removed: jobs may be reading them.

        Returns:
            The partition that the manifest names now.

        Raises:
            StoreError: the store cannot be written, or lacks a file that somebody has removed.
        """
        if not replaces and (earlier := self.find(kept.input)[0]):
            self.drop(kept.input, kept.folder)
            return earlier
        if problems := self.lacking(kept):
            raise StoreError(f"{problems[0]}: changed or removed while the partition was written")
        place = self._place / kept.fingerprint / MANIFEST
        self._retried(lambda: place.write_bytes(kept_partition.encode(kept)))
        return kept

    def drop(self, wanted: PartitionInput, folder: str) -> None:
        """Remove the files of a writer that will publish nothing; best effort, as this may be why."""
        with suppress(StoreError):
            (self._place / wanted.fingerprint / folder).remove_tree()

    # --- for people

    def contents(self) -> list[Content]:
        """What the store has, by fingerprint.

        Raises:
            DataError: it is a folder that does not exist; object storage has no folders.
            StoreError: it cannot be read.
        """
        if not self.is_remote and not Path(self._place.key).exists():
            raise DataError(f"{self}: expected the folder of --partitions, found none")
        found: dict[str, dict[str, list[int]]] = {}
        for name, stat in self._retried(self._place.files).items():
            fingerprint, _, rest = name.partition("/")
            if is_fingerprint(fingerprint) and rest:
                entries = found.setdefault(fingerprint, {})
                entries.setdefault(rest.partition("/")[0], []).append(stat.mtime_ns)
        return [self._content(fingerprint, found[fingerprint]) for fingerprint in sorted(found)]

    def wrong_sums(self, kept: KeptPartition) -> list[str]:
        """Read all files of a partition and compare their sums.

        Raises:
            StoreError: the store cannot be read.
        """
        return list(self._wrong(kept))

    def remove(self, content: Content, only_leftovers: bool = False) -> int:
        """Remove what lies under a fingerprint, the manifest first, so that nobody finds what is going.

        Args:
            content: What is to go.
            only_leftovers: Keep the partition itself, and the recent leftovers.

        Returns:
            How many folders were removed.

        Raises:
            DataError: only leftovers are to go, and which these are is not known: the manifest is none.
            StoreError: the store cannot be written.
        """
        place = self._place / content.fingerprint
        if only_leftovers:
            return self._remove_leftovers(place, content)
        folders = [*content.leftovers, *([content.kept.folder] if content.kept else [])]
        self._retried((place / MANIFEST).remove_tree)
        for folder in folders:
            self._retried((place / folder).remove_tree)
        self._retried(place.remove_tree)
        return len(folders)

    def _remove_leftovers(self, place: Place, content: Content) -> int:
        kept = self._manifest(place)  # again: one of the folders may have become the partition meanwhile
        gone = content.leftovers.keys() - content.recent
        folders = [folder for folder in sorted(gone) if kept is None or folder != kept.folder]
        for folder in folders:
            self._retried((place / folder).remove_tree)
        return len(folders)

    def _wrong(self, kept: KeptPartition) -> Iterator[str]:
        yield from self.lacking(kept)
        found = {name: each.size for name, each in self._retried((self._place / kept.path).files).items()}
        for name, file in kept.files.items():
            place = self._file(kept, name)
            if found.get(name) == file.size:
                got = self._read(partial(_sum, place))
                if got != file.sha256:
                    yield f"{place}: expected SHA-256 {file.sha256}, got {got}"

    def _content(self, fingerprint: str, entries: Mapping[str, list[int]]) -> Content:
        """Of a fingerprint, by the times of the files of each of its entries, in ns."""
        try:
            kept, problem = self._manifest(self._place / fingerprint), f"no {MANIFEST}"
        except StoreError:
            raise
        except DataError as error:
            return Content(fingerprint, None, str(error), {})
        used = {kept.folder} if kept else set()
        left = {name: times for name, times in entries.items() if FOLDER.fullmatch(name) and name not in used}
        since, replaced = (time.time() - SPARED_SECONDS) * 1e9, entries.get(MANIFEST, [])
        recent = frozenset(name for name, times in left.items() if max(*times, *replaced, 0) > since)
        counts = {name: len(times) for name, times in left.items()}
        return Content(fingerprint, kept, "" if kept else problem, counts, recent)

    def _manifest(self, folder: Place) -> KeptPartition | None:
        """The manifest in a folder; None: there is none."""
        place = folder / MANIFEST
        if self._retried(place.stat) is None:
            return None
        try:
            return kept_partition.decode(self._read(place.read_bytes))
        except NoManifestError as error:
            raise DataError(f"{place}: {error}") from None

    def _own_manifest(self, last: str) -> KeptPartition | None:
        """The manifest in this very folder; in a folder of another name it may be unrelated."""
        try:
            return self._manifest(self._place)
        except StoreError:
            raise
        except DataError:
            if is_fingerprint(last):
                raise
            return None

    def _file(self, kept: KeptPartition, name: str) -> Place:
        return self._place / kept.path / name

    def _retried(self, call: Callable[[], T]) -> T:
        return store.retried(call, self._seconds)

    def _read(self, read: Callable[[float], T]) -> T:
        """Call what reads a file with a patience; of an object what has come stays, as each range has it."""
        return read(self._seconds) if self.is_remote else self._retried(lambda: read(0))


def _sum(place: Place, seconds: float) -> str:
    """The SHA-256 of a file in the store; `hashlib.file_digest` reads pieces that are small for requests."""
    found = hashlib.sha256()
    try:
        with place.open_range(seconds) as file:
            while block := file.read(_READ):
                found.update(block)
    except OSError as error:  # of a folder; a store has errors of its own
        raise StoreError(f"{place}: cannot be read: {error.strerror or error}") from error
    return found.hexdigest()
