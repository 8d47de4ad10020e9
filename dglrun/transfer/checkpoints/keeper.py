"""A keeper's loop: bring back what was kept, then send what is new when the launcher begins a round."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from dglrun.contract import exitcodes
from dglrun.transfer.checkpoints.folder import OWN, Version, all_whole_files, in_the_way
from dglrun.transfer.checkpoints.link import Link
from dglrun.transfer.checkpoints.messages import Message
from dglrun.transfer.checkpoints.order import KeeperOrder
from dglrun.transfer.checkpoints.target import ChangedError, KeepError, Target

MOST_OPEN = 500
"""Files that are open at a time; a round of more files may miss some that are removed meanwhile."""
INCOMING = f"{OWN}incoming"


@dataclass(frozen=True)
class Round:
    """What one round has done.

    Attributes:
        files: How many files were sent.
        size: Their bytes.
        is_complete: Whether all that was there is kept now.
        trouble: Why not, or why something older could not be removed.
    """

    files: int = 0
    size: int = 0
    is_complete: bool = True
    trouble: str = ""


class Keeper:
    """Keeps the folders of one worker's ranks.

    Args:
        folders: By the rank's name.
        target: Where to.
    """

    def __init__(self, folders: dict[str, str], target: Target) -> None:
        self._folders, self._target = folders, target
        self._kept: dict[str, Version | None] = {}
        """What the target has, and of which version where that is known."""
        self._seen: set[str] | None = None
        """The files of the last round, if that has kept them all."""

    def begin(self, ranks: int, has_to_restore: bool) -> Round:
        """Compare with what is kept, and bring it back; returns what was brought.

        What is there already stays as it is: a worker that goes on has newer files than any other place.

        Raises:
            KeepError: what is kept is of another number of ranks, or cannot be brought back.
        """
        _require_ranks(self._target, ranks)
        self._kept = dict.fromkeys(sorted(self._target.kept()))
        brought = [name for name in self._kept if has_to_restore and self._bring_back(name)]
        size = sum(version.size for name in brought if (version := self._kept[name]))
        return Round(len(brought), size)

    def sync(self, is_limited: bool = True, has_to_prune: bool = False) -> Round:
        """Send what is new or has changed since the last round, which may be pruned before.

        The files are opened before anything is removed: keepers need different times for that, and the files
        of a round have to be those of one moment on all workers.
        """
        found = all_whole_files(self._folders)
        new = {name: version for name, version in found.items() if self._kept.get(name) != version}
        with _Opened(self._folders, list(new)) as opened:
            trouble = self._prune(set(found)) if has_to_prune else ""
            done = self._send_all(new, opened, is_limited)
        self._seen = set(found) if done.is_complete else None
        return replace(done, trouble=done.trouble or trouble)

    def prune(self) -> str:
        """Forget what was not there in the last round, if that was complete; returns what went wrong.

        A rank without any file keeps what it has: a folder that was emptied has no newer checkpoint.
        """
        return self._prune(set())

    def _prune(self, found: set[str]) -> str:
        if self._seen is None:
            return ""
        alive, stays = {_rank(name) for name in self._seen}, self._seen | found
        for name in [each for each in self._kept if each not in stays and _rank(each) in alive]:
            try:
                self._remove(name)
            except KeepError as error:
                return str(error)
        return ""

    def _send_all(self, new: dict[str, Version], opened: "_Opened", is_limited: bool) -> Round:
        files, size, trouble, is_complete = 0, 0, "", True
        for name, version in new.items():
            try:
                self._send(name, opened.file(name), version, is_limited)
            except (ChangedError, OSError):  # removed or replaced: the next round sees what is there then
                is_complete = False
            except KeepError as error:
                is_complete, trouble = False, str(error)
            else:
                files, size = files + 1, size + version.size
        return Round(files, size, is_complete, trouble)

    def _send(self, name: str, file: int, version: Version, is_limited: bool) -> None:
        for other in in_the_way(name, self._kept):
            self._remove(other)
        self._kept[name] = None  # from now on nobody knows which version is there, until it is known again
        self._target.put(name, file, version, is_limited)
        self._kept[name] = version

    def _remove(self, name: str) -> None:
        self._target.remove(name)
        del self._kept[name]

    def _bring_back(self, name: str) -> bool:
        """Whether the file was missing and is there now."""
        path = _path(self._folders, name)
        if path is None or path.exists():
            return False
        incoming = Path(self._folders[_rank(name)], INCOMING)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._target.fetch(name, incoming)
            incoming.replace(path)
            self._kept[name] = Version.of(path.lstat())
        except OSError as error:
            raise KeepError(f"{path}: cannot be written: {error.strerror}", exitcodes.IO) from error
        finally:
            with contextlib.suppress(OSError):
                incoming.unlink()
        return True


@dataclass
class _Opened:
    """Files opened at the same moment: their ranks may remove or replace them while others are sent."""

    folders: dict[str, str]
    names: list[str]
    _files: dict[str, int] = field(default_factory=dict)

    def __enter__(self) -> "_Opened":
        for name in self.names[:MOST_OPEN]:
            with contextlib.suppress(OSError):
                self._files[name] = self._open(name)
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            os.close(file)

    def file(self, name: str) -> int:
        """An open file.

        Raises:
            OSError: it is gone.
        """
        if name not in self._files:
            self._files[name] = self._open(name)
        return self._files[name]

    def _open(self, name: str) -> int:
        path = _path(self.folders, name)
        return os.open(path or "", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)


def serve(order: KeeperOrder, link: Link, target: Target) -> None:
    """Keep until the launcher says that it is enough.

    Raises:
        KeepError: what was kept is of another number of ranks, or cannot be brought back; the launcher has
            been told.
    """
    start = link.ask({"do": "hello"})
    if any(Path(folder).parent.joinpath(start["marker"]).exists() for folder in order.folders.values()):
        with _telling_failures(link):
            _require_ranks(target, order.ranks)
        _serve_shared(link)
        return
    keeper = Keeper(dict(order.folders), target)
    with _telling_failures(link):
        done = keeper.begin(order.ranks, bool(start["restore"]))
    answer = link.ask(_told("ready", 0, done))
    while not answer.get("leave"):
        done = keeper.sync(is_limited=not answer["last"], has_to_prune=answer["prune"])
        answer = link.ask(_told("sent", answer["round"], done))
    if answer["prune"]:
        keeper.prune()
    link.ask({"do": "bye"})


def _serve_shared(link: Link) -> None:
    """The folders are the launcher's own, on a shared volume: there is nothing to bring anywhere."""
    answer = link.ask(_told("ready", 0, Round()))
    while not answer.get("leave"):
        answer = link.ask(_told("sent", answer["round"], Round()))
    link.ask({"do": "bye"})


@contextlib.contextmanager
def _telling_failures(link: Link) -> Iterator[None]:
    """Tell the launcher why this cannot go on."""
    try:
        yield
    except KeepError as error:
        link.ask({"do": "failed", "what": str(error), "code": error.code})
        raise


def _require_ranks(target: Target, ranks: int) -> None:
    kept_of = target.ranks(ranks)
    if kept_of != ranks:
        what = f"the checkpoints that are kept there are of {kept_of} ranks, and this training has {ranks}"
        remedy = "expected as many trainers in all, or another name of the job or place"
        raise KeepError(f"{what}: {remedy}", exitcodes.USAGE)


def _told(what: str, number: int, done: Round) -> Message:
    return {
        "do": what,
        "round": number,
        "files": done.files,
        "size": done.size,
        "is_complete": done.is_complete,
        "trouble": done.trouble,
    }


def _rank(name: str) -> str:
    return name.split("/", 1)[0]


def _path(folders: dict[str, str], name: str) -> Path | None:
    """Where a file of this name lies; None for one of no rank here."""
    rank, _, rest = name.partition("/")
    return Path(folders[rank], rest) if rank in folders and rest else None
