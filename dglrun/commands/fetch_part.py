"""`python -m dglrun.commands.fetch_part`: a worker takes its part from the store in which it is kept.

Started and followed as each receiver is (`dglrun.transfer.pull`): its order is a line on stdin, what it pulls
from the launcher is the reference to the kept partition, and before that appears in its folder the files of
the part are put beside it. Where the store is a folder that this worker sees, they are links, and nothing is
copied.
"""

import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

from dglrun.commands import program
from dglrun.commands.arguments import Parser, whole
from dglrun.contract import exitcodes
from dglrun.errors import DataError, RunError
from dglrun.formats.dgl import part_config
from dglrun.formats.kept import reference
from dglrun.formats.kept.kept_partition import KeptFile, KeptPartition
from dglrun.transfer.pull import __main__ as pull
from dglrun.transfer.pull.manifest import Manifest
from dglrun.transfer.pull.staging import require_room

if TYPE_CHECKING:
    from dglrun.formats.kept.partition_store import PartitionStore

AT_A_TIME = 4
"""Files that are fetched at the same time."""
TELL_SECONDS = 5.0
"""Between two accounts of how much is here."""

Say = Callable[[int, int], None]
"""Is told how many bytes are here, and of how many."""


def main(argv: list[str]) -> int:
    """Receive; returns the exit code."""
    parser = Parser("dglrun.commands.fetch_part", description="Internal: take a part from the store.")
    parser.add_argument("--part", type=whole(0), required=True)
    parser.add_argument("--deadline", type=float, required=True)
    parser.add_argument("--detach", action="store_true")
    args = parser.read(argv)

    def complete(staged: Path, manifest: Manifest, say: Say) -> None:
        (name,) = (file.name for file in manifest.files)
        complete_part(staged / name, args.part, args.deadline, say)

    return pull.main(["--detach"] if args.detach else [], complete)


def complete_part(path: Path, part: int, seconds: float, say: Say) -> None:
    """Put the files of a part beside the reference to its partition.

    Args:
        path: The reference.
        part: Which part.
        seconds: How long transient failures are tried again.
        say: Is told now and then.

    Raises:
        RunError: the store cannot be read, lacks a file, or has another one than was kept.
    """
    found = reference.read(path)
    if found.kept is None:
        raise RunError(f"{path.name}: expected a kept partition, found none", exitcodes.SOFTWARE)
    from dglrun.formats.kept.partition_store import PartitionStore  # noqa: PLC0415 - after the fork: it has threads

    try:
        store = PartitionStore(found.place, seconds)
        folder = store.local_folder(found.kept)
        if folder is None:
            _fetch(store, found.kept, path.parent, part, say)
        else:
            _link(folder, found.kept, path.parent, part)
            say(0, 0)
    except RunError:
        raise
    except DataError as error:
        raise RunError(str(error), error.exit_code) from error


def _files(config: Path, kept: KeptPartition, part: int) -> Mapping[str, KeptFile]:
    """The files of a part as the partition's JSON names them, and the JSON."""
    paths = [Path(name) for name in part_config.load(config, kept.parts).parts[part].values()]
    return kept.files_of({str(path if path.parent == Path() else path.parent) for path in paths})


# --- from a store


def _fetch(store: "PartitionStore", kept: KeptPartition, target: Path, part: int, say: Say) -> None:
    """Copy the files here; those that an earlier start has copied are whole, and stay."""
    from dglrun.formats.store.file_backend import PARTIAL  # noqa: PLC0415 - after the fork: Arrow has threads

    for draft in list(target.rglob(f".*{PARTIAL}*")):  # of an earlier start that was killed
        draft.unlink()
    config = target / kept.config
    store.fetch(kept, kept.config, config)
    wanted = _files(config, kept, part)
    size = sum(file.size for file in wanted.values())
    lacking = [name for name in wanted if not (target / name).is_file()]
    require_room(target, sum(wanted[name].size for name in lacking), len(lacking), target.parent)
    for name in lacking:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
    pool = ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="fetch")
    futures = [pool.submit(store.fetch, kept, name, target / name) for name in lacking]
    try:
        while not _are_done(futures):
            say(min(_here(target), size), size)
        say(size, size)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _are_done(futures: "list[Future[None]]") -> bool:
    """Wait for some seconds; raises what one of them has failed of."""
    done, rest = wait(futures, TELL_SECONDS)
    for future in done:
        future.result()
    return not rest


def _here(target: Path) -> int:
    """Bytes of all files, those that still grow among them: one file may take longer than the patience."""
    paths = [Path(folder, name) for folder, _, names in os.walk(target) for name in names]
    return sum(path.lstat().st_size for path in paths if path.exists())


# --- in place


def _link(folder: Path, kept: KeptPartition, target: Path, part: int) -> None:
    """Let the part's entries lead to where they are kept.

    Whether this worker sees the folder is found out by its random name, and not assumed.
    """
    if not folder.is_dir():
        what = "expected the folder that the partitioner has written or found, found none"
        raise RunError(
            f"{folder}: {what}: mount the volume of --partitions at the same path in each pod", exitcodes.IO
        )
    wanted = _files(folder / kept.config, kept, part)
    for name, file in wanted.items():
        _require_size(folder / name, file.size)
    for entry in dict.fromkeys(Path(name).parts[0] for name in wanted):
        link = target / entry
        link.unlink(missing_ok=True)  # of an earlier start
        link.symlink_to(folder / entry)


def _require_size(path: Path, size: int) -> None:
    try:
        found = path.stat().st_size
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror or error}", exitcodes.IO) from error
    if found != size:
        raise RunError(f"{path}: expected {size} bytes as it was kept, found {found}", exitcodes.IO)


if __name__ == "__main__":
    sys.exit(program.internal(main))
