"""`python -m dglrun.commands.upload_output`: the launcher's output folder, to where `--output` says.

Each file appears whole. dglrun-output.json, with names, sizes and sums, goes first and comes last: where it
is, all files are. `--check` asks the place, before a training, for what an upload begins with, and tries to
write there.
"""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from dglrun.commands import program
from dglrun.commands.arguments import Parser
from dglrun.contract import exitcodes
from dglrun.errors import DataError
from dglrun.formats import store
from dglrun.formats.output_folder import HIDDEN
from dglrun.formats.store import Place, StoreError, Sum

MANIFEST = "dglrun-output.json"
TRIED = ".dglrun-may-write"
"""The object of `--check`; one name for all runs, so that at most one stays where removing is not allowed."""
AT_ONCE = 4
"""Files on their way at the same time."""


def main(argv: list[str]) -> int:
    """Upload; 0, or the code of what is wrong, with one line that says it."""
    parser = Parser("dglrun.commands.upload_output", description="Internal: upload the output of a job.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--folder", type=Path)
    what.add_argument("--check", action="store_true")
    parser.add_argument("--to", required=True)
    args = parser.read(argv)
    try:
        place = store.place(args.to)
        if args.check:
            _check(place)
        else:
            _upload(args.folder, place)
    except DataError as error:
        print(f"dglrun: --output: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    return exitcodes.OK


def _check(place: Place) -> None:
    """Ask for the manifest, which need not exist, and try to write; what is there stays."""
    manifest = store.retried((place / MANIFEST).stat)
    if place.is_remote:
        store.retried(lambda: (place / TRIED).write_bytes(b"1"))
        # An upload begins with the removal of an earlier one's manifest, and else removes nothing.
        with suppress(*(() if manifest is not None else (StoreError,))):
            store.retried((place / TRIED).remove_tree)
        return
    path = Path(place.key)
    there = next(each for each in (path, *path.parents) if each.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        raise StoreError(f"{place}: expected a folder that can be written, got {there}")


def _upload(folder: Path, place: Place) -> None:
    names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
    names = [name for name in names if HIDDEN not in name and name != MANIFEST]
    store.retried(
        (place / MANIFEST).remove_tree
    )  # of an earlier run: whoever reads it takes it for this one's
    if not names:
        print(f"no output to upload to {place}", flush=True)
        return
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda name: _one(folder / name, place / name), names))
    files = {name: {"size": one.size, "sha256": one.sha256} for name, one in zip(names, found, strict=True)}
    text = json.dumps({"files": files}, indent=1) + "\n"
    store.retried(lambda: (place / MANIFEST).write_bytes(text.encode()))
    size = sum(one.size for one in found)
    print(f"uploaded {len(names)} files, {size / 1e6:.1f} MB to {place}", flush=True)


def _one(path: Path, place: Place) -> Sum:
    return store.retried(lambda: place.upload(path))


if __name__ == "__main__":
    sys.exit(program.internal(main))
