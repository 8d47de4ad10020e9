"""`python -m dglrun.commands.keep_partition`: look for a job's partition in a store, and keep a new one.

`find` computes the fingerprint, looks, and writes a reference (`formats.kept.reference`) that the steps after
it read; `keep` writes the partition that was made meanwhile, its manifest last, and completes the reference.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from dglrun.commands import elapsed, own_image, program
from dglrun.commands.arguments import Parser, above
from dglrun.contract import env, exitcodes
from dglrun.errors import DataError, RunError
from dglrun.formats.kept import input_files, reference
from dglrun.formats.kept.fingerprint import PartitionInput, differences
from dglrun.formats.kept.kept_partition import KeptFile, KeptPartition
from dglrun.formats.kept.partition_store import PartitionStore
from dglrun.formats.kept.reference import Reference
from dglrun.transfer.partition_files import PartitionFiles


def main(argv: list[str]) -> int:
    """Find or keep; 0, or the code of the error, of which one line is printed."""
    parser = Parser("dglrun.commands.keep_partition", description="Internal: find or keep a partition.")
    ways = parser.add_subparsers(dest="way", required=True)
    _add_find(ways.add_parser("find"))
    _add_keep(ways.add_parser("keep"))
    args = parser.read(argv)
    try:
        return find(args) if args.way == "find" else keep(args)
    except DataError as error:
        print(f"dglrun: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    except RunError as error:
        print(f"dglrun: {error}", file=sys.stderr, flush=True)
        return error.code


def find(args: argparse.Namespace) -> int:
    """Look for the partition, and write what was found.

    Raises:
        DataError: the input cannot be read, or the URI is that of another partition.
        RunError: the reference cannot be written.
    """
    with elapsed.showing("dglrun: looking for the partition"):
        wanted = _input(args)
        store = PartitionStore(args.partitions, args.deadline).for_input(wanted)
        kept, why = (None, "--repartition") if args.again else store.find(wanted)
    where = f"{store}/{wanted.fingerprint}"
    if kept:
        size = f"{len(kept.files)} files, {kept.size / 1e6:.1f} MB"
        print(f"found the partition {where}: {size}, made {kept.made} by {kept.job}", flush=True)
    else:
        print(f"partition {where}: {why}; it is made and kept", flush=True)
    reference.write(Reference(str(store), wanted, kept), args.reference)
    return exitcodes.OK


def keep(args: argparse.Namespace) -> int:
    """Write the partition into the store.

    Raises:
        DataError: its files or the store cannot be read or written.
        RunError: the reference cannot be written.
    """
    found = reference.read(args.reference)
    store, wanted = PartitionStore(found.place, args.deadline), found.input
    partition = PartitionFiles.find(args.config, int(wanted.options["parts"]))
    files = {item.name: item.path for item in partition.all_files()}
    require_unchanged(args, wanted)
    folder = store.new_folder()
    with elapsed.showing(f"dglrun: keeping the partition in {store}"):
        try:
            written = store.write_files(wanted, folder, files)
            kept = store.publish(record(wanted, folder, args, written), args.again)
        except BaseException:
            store.drop(wanted, folder)
            raise
    say_kept(store, kept, folder)
    reference.write(Reference(found.place, wanted, kept), args.reference)
    return exitcodes.OK


def require_unchanged(args: argparse.Namespace, wanted: PartitionInput) -> None:
    """Refuse to keep what was made while its input changed: later jobs would take it for that of either.

    Raises:
        DataError: it has changed since the look; says what.
    """
    now = PartitionInput(_source(args, wanted.source.get(input_files.IMAGE, "")), wanted.options)
    if now != wanted:
        what = "the input has changed while it was partitioned, so nothing is kept"
        raise DataError(f"{what}: {differences(wanted, now)}")


def record(
    wanted: PartitionInput, folder: str, args: argparse.Namespace, files: Mapping[str, KeptFile]
) -> KeptPartition:
    """What the manifest of a partition says that this job has made.

    Args:
        wanted: What it was made of.
        folder: Where its files are.
        args: Have `config`, the partition's JSON here, and `quality`, the numbers of `dglrun report`.
        files: As they were written.
    """
    return KeptPartition(
        wanted.fingerprint,
        folder,
        args.config.name,
        int(wanted.options["parts"]),
        files,
        wanted,
        datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        f"{os.environ.get(env.NAMESPACE) or 'default'}/{os.environ.get(env.JOB_NAME) or 'job'}",
        _version("dgl-operator"),
        _quality(args.quality),
    )


def say_kept(store: PartitionStore, kept: KeptPartition, folder: str) -> None:
    """One line of what has become of the partition that this job has made."""
    if kept.folder == folder:
        print(f"kept the partition as {store}/{kept.path}: {kept.size / 1e6:.1f} MB", flush=True)
    else:
        print(f"{kept.job} has kept the same partition meanwhile: {store}/{kept.path} is used", flush=True)


def add_kept(parser: argparse.ArgumentParser) -> None:
    """The flags of what keeps a partition."""
    _add_common(parser)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--quality", type=Path, required=True)
    parser.add_argument("--again", action="store_true")


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--deadline", type=above(0), required=True)
    _add_source(parser)


def _add_keep(parser: argparse.ArgumentParser) -> None:
    add_kept(parser)


def _add_find(parser: argparse.ArgumentParser) -> None:
    _add_common(parser)
    parser.add_argument("--partitions", required=True)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--option", action="append", default=[], type=_option)
    parser.add_argument("--version-of", action="append", default=[])


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--chunked-graph")
    parser.add_argument("--script")
    parser.add_argument("--image", default="")
    parser.add_argument("--assignment")


def _option(text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not name or not mark:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
    return name, value


def _source(args: argparse.Namespace, image: str) -> dict[str, str]:
    """What is partitioned, as it is now; a script in this image."""
    source: dict[str, str] = {}
    if args.script:
        source |= input_files.of_script(args.script, image)
    else:
        source |= input_files.of_chunked_graph(args.chunked_graph)
    if args.assignment:
        source |= input_files.of_assignment(args.assignment)
    return source


def _input(args: argparse.Namespace) -> PartitionInput:
    image = own_image.of_partitioner(args.image, os.environ) if args.script else ""
    return PartitionInput(_source(args, image), {**dict(args.option), **_versions(args.version_of)})


def _versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of packages that write the files, or assign the nodes."""
    return {f"version of {name}": _version(name) for name in packages}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def _quality(path: Path) -> dict[str, Any] | None:
    """What was measured; nothing if it could not be."""
    try:
        raw = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return raw if isinstance(raw, dict) else None


if __name__ == "__main__":
    sys.exit(program.internal(main))
