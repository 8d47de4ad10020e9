"""The folder that a command writes: locked, filled out of sight, and replaced when the new output is whole.

The output grows in a hidden folder inside the target. Inside, not beside it: the target may be a volume's
mount point, which cannot be renamed, or the only place that this user may write, and every pod that mounts
the volume must find the same lock. Files that dglrun has not written are never moved or deleted.
"""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from dglrun.agent import ending_signals
from dglrun.contract import exitcodes
from dglrun.errors import DataError

HIDDEN = ".dglrun-"
"""Beginning of the names of all that dglrun keeps in a target while it works."""
LOCK = f"{HIDDEN}lock"
WORK = f"{HIDDEN}partial"
_NEW, _JOURNAL = "new", "swap.json"
_ATTEMPTS = 100
_MARKS = ({"node_type", "edge_type"}, {"num_parts", "algo_name"}, {"part-0"})
"""Keys of a chunked graph's metadata.json, an assignment's partition_meta.json, a partition's JSON."""

Owned = Callable[[Path], Iterable[Path]]
"""Gives the files of a target that an earlier run wrote, relative to it."""

_held: set[tuple[Path, int]] = set()
"""Targets that a thread of this process has locked: a command locks before the work, its writer again."""


class OutputError(DataError):
    """The target cannot be written: another run is writing it, or it holds what is not ours."""

    exit_code = exitcodes.CANTCREAT


@contextlib.contextmanager
def locked(folder: Path, is_new: bool | None = None) -> Iterator[None]:
    """Hold the folder against other runs; made if absent, and then removed if nothing is in it at the end.

    Args:
        folder: The target.
        is_new: Whether this run has made it; None: see whether it is there.

    Raises:
        OutputError: another run holds it.
    """
    key = (folder.absolute(), threading.get_ident())
    if key in _held:
        yield
        return
    is_new = not folder.exists() if is_new is None else is_new
    handle = _acquire(folder)
    _held.add(key)
    try:
        yield
    finally:
        _held.discard(key)
        (folder / LOCK).unlink(missing_ok=True)  # before the lock is given up: see _is_current
        os.close(handle)
        if is_new:
            with contextlib.suppress(OSError):
                folder.rmdir()


@contextlib.contextmanager
def reserved(folder: Path) -> Iterator[None]:
    """Hold the folder, seen to be one that can be written: to be asked for before long work.

    Raises:
        OutputError: another run holds it, or it has files and none of them is output of dglrun.
    """
    with locked(folder):
        refuse_foreign_files(folder)
        yield


@contextlib.contextmanager
def replacing(
    folder: Path, owned: Owned, last: Sequence[str], *, among_others: bool = False
) -> Iterator[Path]:
    """Give an empty folder to fill; at a good end its files replace the earlier run's, else they go.

    Args:
        folder: The target; made if absent.
        owned: The earlier run's files, asked for under the lock.
        last: Names of the metadata, without which no reader takes the folder: removed first, moved last.
        among_others: Whether a folder in which all is somebody else's is taken, too.

    Raises:
        OutputError: another run is writing, or the target holds files that are not ours.
    """
    with locked(folder):
        recover(folder)
        if not among_others:
            refuse_foreign_files(folder)
        old = set(owned(folder))
        refuse_overwriting(folder, map(Path, last), old)
        new = draft_of(folder)
        new.mkdir(parents=True)
        try:
            yield new
            with ending_signals.put_off():  # old and new files are mixed within it
                _prepare_swap(folder, old, last)
                _swap(folder)
        finally:
            # After a failure between the two halves of a swap the next run completes it.
            if not (folder / WORK / _JOURNAL).exists():
                shutil.rmtree(folder / WORK, ignore_errors=True)


def draft_of(folder: Path) -> Path:
    """The folder that `replacing` gives, for other ranks than the one that has asked for it."""
    return folder / WORK / _NEW


def recover(folder: Path) -> None:
    """Complete the swap of a run that was killed in it; drop what one that was killed earlier left."""
    if (folder / WORK / _JOURNAL).exists():
        with ending_signals.put_off():
            _swap(folder)
    shutil.rmtree(folder / WORK, ignore_errors=True)


@contextlib.contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """Give a draft to write in the place of a file; at a good end it gets the name, else it goes.

    A link stays a link, and what is no plain file, such as /dev/stdout, is written as it is.

    Raises:
        OutputError: another run is writing the file.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        yield path
        return
    draft = path.with_name(f"{HIDDEN}{path.name}")
    handle = _acquire_file(draft)
    try:
        os.truncate(draft, 0)
        yield draft
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)  # only then: after the rename the name may be the next run's
        raise
    finally:
        os.close(handle)


# --- the lock


def _acquire(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    return _acquire_file(folder / LOCK)


def _acquire_file(path: Path) -> int:
    """Lock a file, made if absent; returns its descriptor, whose end, also by SIGKILL, ends the lock.

    flock needs a file open for writing: NFS (v4, and v3 with its lock daemon) turns it into a lock of the
    file's bytes, which a folder's descriptor cannot carry.
    """
    for _ in range(_ATTEMPTS):
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except FileNotFoundError as error:
            if path.name != LOCK:
                raise FileNotFoundError(error.errno, error.strerror, str(_target(path))) from None
            path.parent.mkdir(parents=True, exist_ok=True)  # it went with the run before
            continue
        if _lock(handle, path) and _is_current(handle, path):
            # Whoever may write into the folder must be able to take the lock that a killed run has left.
            with contextlib.suppress(OSError):
                os.fchmod(handle, path.parent.stat().st_mode & 0o666)
            return handle
        os.close(handle)
    raise OutputError(f"{path}: the lock could not be taken")


def _lock(handle: int, path: Path) -> bool:
    """Lock without waiting; the kernel lets go when the process ends, however it ends."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            os.close(handle)
            raise OutputError(
                f"{_target(path)}: another run of dglrun is writing there; wait for its end or name another"
            ) from None
        # Some network file systems have no locks; refusing to work there would help nobody.
        print(f"dglrun: note: {_target(path)}: cannot be locked: {error.strerror}", file=sys.stderr)
    return True


def _target(path: Path) -> Path:
    return path.parent if path.name == LOCK else path.with_name(path.name.removeprefix(HIDDEN))


def _is_current(handle: int, path: Path) -> bool:
    """Whether the name still is the locked file's: its last holder unlinks or renames it before unlocking."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


# --- what is there


def refuse_foreign_files(folder: Path) -> None:
    """Refuse a folder in which all is somebody else's; hidden files and mkfs's lost+found do not count.

    Raises:
        OutputError: names one of the files.
    """
    found = [p for p in sorted(folder.iterdir()) if not p.name.startswith(".") and p.name != "lost+found"]
    if found and not (_is_output(folder) or (folder / WORK / _JOURNAL).exists()):
        raise OutputError(
            f"{folder}: expected an empty folder, or output of dglrun to replace, found {found[0].name!r}; "
            "name another folder"
        )


def _is_output(folder: Path) -> bool:
    stems = [path.name.removesuffix("_stats.txt") for path in folder.glob("*_stats.txt")]
    texts = any((folder / f"{stem}{end}").exists() for stem in stems for end in ("_edges.txt", "_efiles.txt"))
    return texts or any(keys <= read_object(path).keys() for path in folder.glob("*.json") for keys in _MARKS)


def read_object(path: Path) -> dict[str, object]:
    """A JSON object; an empty one where the file is missing or something else."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def refuse_overwriting(folder: Path, names: Iterable[Path], old: set[Path]) -> None:
    """Refuse to write over what is there and is not of an earlier run.

    Raises:
        OutputError: names the file.
    """
    for name in names:
        foreign = next((p for p in name.parents if (folder / p).exists() and not (folder / p).is_dir()), None)
        if foreign is None and os.path.lexists(folder / name) and name not in old:
            foreign = name
        if foreign is not None:
            raise OutputError(
                f"{folder / foreign}: exists and is not of an earlier run of this command; "
                "move it away or name another folder"
            )


def refuse_other_file_systems(folder: Path, inside: Iterable[Path]) -> None:
    """Refuse folders in the target that are links or mounts to elsewhere: no file can be renamed into them.

    Raises:
        OutputError: names the folder.
    """
    here = folder.stat().st_dev
    for name in sorted(inside):
        if (folder / name).exists() and (folder / name).stat().st_dev != here:
            raise OutputError(
                f"{folder / name}: expected a folder on the file system of {folder}, found one on another"
            )


# --- the swap: each step may be done again


def _prepare_swap(folder: Path, old: set[Path], last: Sequence[str]) -> None:
    new = draft_of(folder)
    names = {path.relative_to(new) for path in new.rglob("*") if not path.is_dir()}
    refuse_overwriting(folder, sorted(names), old)
    refuse_other_file_systems(folder, {parent for name in names for parent in name.parents})
    gone = sorted(
        old - names, key=lambda name: (len(name.parts), name)
    )  # what describes others is at the top
    journal = {"remove": [str(name) for name in gone], "last": list(last)}
    draft = folder / WORK / f"{_JOURNAL}.draft"
    draft.write_text(json.dumps(journal))
    draft.replace(folder / WORK / _JOURNAL)


def _swap(folder: Path) -> None:
    new, journal = draft_of(folder), json.loads((folder / WORK / _JOURNAL).read_bytes())
    for name in journal["last"]:
        if (new / name).exists():
            (folder / name).unlink(missing_ok=True)
    for name in journal["remove"]:
        (folder / name).unlink(missing_ok=True)
        _remove_empty(folder, Path(name).parent)
    files = [path.relative_to(new) for path in sorted(new.rglob("*")) if not path.is_dir()]
    for name in sorted(files, key=lambda each: str(each) in journal["last"]):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (new / name).replace(folder / name)
    (folder / WORK / _JOURNAL).unlink()


def _remove_empty(folder: Path, name: Path) -> None:
    while name != Path():
        with contextlib.suppress(OSError):
            (folder / name).rmdir()
        name = name.parent
