"""`dglrun partitions`: list, show, verify and remove the partitions that jobs have kept."""

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

from dglrun.commands import elapsed
from dglrun.contract import exitcodes
from dglrun.errors import DataError
from dglrun.formats.kept import kept_partition
from dglrun.formats.kept.fingerprint import is_fingerprint
from dglrun.formats.kept.kept_partition import KeptPartition
from dglrun.formats.kept.partition_store import SPARED_SECONDS, Content, PartitionStore

PATIENCE = 60.0
"""Seconds for which a store that does not answer is tried again."""
_EXAMPLES = {
    "list": "/data/partitions",
    "show": "/data/partitions 3f2a0c7be1d94f0f",
    "verify": "s3://graphs/partitions",
    "remove": "/data/partitions 3f2a0c7be1d94f0f",
}
_LEAST = 8
"""Digits by which a fingerprint may be named."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The ways of `partitions`, and their flags."""
    ways = parser.add_subparsers(dest="way", required=True, metavar="WAY", title="ways")
    listed = _way(ways, "list", "one line for each partition that is kept")
    listed.add_argument("--json", action="store_true", help="print JSON")
    shown = _way(ways, "show", "what a partition was made of, and its files")
    _add_fingerprint(shown)
    shown.add_argument("--json", action="store_true", help="print its manifest")
    verify = _way(ways, "verify", "read all files and compare their sums")
    verify.add_argument(
        "fingerprint", nargs="?", metavar="FINGERPRINT", help="of one partition (default: all)"
    )
    remove = _way(ways, "remove", "remove what is kept under a fingerprint")
    _add_fingerprint(remove)
    remove.add_argument(
        "--leftovers",
        action="store_true",
        help="remove only what writers have left that did not end, older than a day",
    )


def run(args: argparse.Namespace) -> int:
    """Do it; returns the exit code: 0, or 65 where a partition is not what its manifest says.

    Raises:
        DataError: the store cannot be read or written, or has no such partition.
    """
    store = PartitionStore(args.uri, PATIENCE)
    with elapsed.showing(f"dglrun partitions: reading {store}"):
        contents = store.contents()
    if args.way == "list":
        return _list(contents, args.json)
    if args.way == "verify":
        chosen = contents if args.fingerprint is None else [_chosen(store, contents, args.fingerprint)]
        return _verify(store, chosen)
    content = _chosen(store, contents, args.fingerprint)
    return _show(content, args.json) if args.way == "show" else _remove(store, content, args.leftovers)


def _way(
    ways: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, summary: str
) -> argparse.ArgumentParser:
    """A way, which all take the place; its example is in _EXAMPLES."""
    example = f"example:\n  dglrun partitions {name} {_EXAMPLES[name]}"
    parser = ways.add_parser(name, help=summary, description=f"{summary.capitalize()}.", epilog=example)
    parser.add_argument("uri", metavar="URI", help="what jobs were given as --partitions")
    return parser


def _add_fingerprint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "fingerprint", metavar="FINGERPRINT", help=f"which one; its first {_LEAST} digits are enough"
    )


def _chosen(store: PartitionStore, contents: list[Content], word: str) -> Content:
    """What a fingerprint, or its beginning, names.

    Raises:
        DataError: nothing, or several.
    """
    found = [each for each in contents if each.fingerprint.startswith(word)]
    if len(found) == 1 and len(word) >= _LEAST:
        return found[0]
    got = "a shorter one" if len(word) < _LEAST else f"{len(found)} that begin with it"
    what = (
        "fingerprint" if is_fingerprint(word) else f"beginning of a fingerprint of at least {_LEAST} digits"
    )
    raise DataError(f"{store}: expected the {what} of one partition, got {word!r}: {got}")


# --- list, show


def _list(contents: list[Content], is_json: bool) -> int:
    if is_json:
        print(json.dumps([_summary(each) for each in contents], indent=1))
        return exitcodes.OK
    head = ("FINGERPRINT", "GRAPH", "PARTS", "SIZE", "MADE", "JOB", "NOTE")
    _print_table([head, *(_row(each) for each in contents)])
    return exitcodes.OK


def _row(content: Content) -> tuple[str, ...]:
    kept, note = content.kept, content.problem or _leftovers(content)
    if kept is None:
        return (content.fingerprint, "", "", "", "", "", note)
    graph, size = kept.input.options.get("graph", ""), f"{kept.size / 1e6:.1f} MB"
    return (content.fingerprint, graph, str(kept.parts), size, kept.made, kept.job, note)


def _leftovers(content: Content) -> str:
    files = sum(content.leftovers.values())
    return f"{files} files of writers that are writing or did not end" if files else ""


def _summary(content: Content) -> Mapping[str, Any]:
    kept = content.kept
    told = {"fingerprint": content.fingerprint, "leftovers": dict(content.leftovers)}
    if kept is None:
        return {**told, "problem": content.problem}
    of = {"graph": kept.input.options.get("graph"), "parts": kept.parts, "bytes": kept.size}
    return {**told, **of, "files": len(kept.files), "made": kept.made, "job": kept.job}


def _show(content: Content, is_json: bool) -> int:
    kept = _readable(content)
    if is_json:
        sys.stdout.write(kept_partition.encode(kept).decode())
        return exitcodes.OK
    facts = {"fingerprint": kept.fingerprint, "folder": kept.path, "made": kept.made, "job": kept.job}
    facts |= {"dglrun": kept.dglrun, "size": f"{len(kept.files)} files, {kept.size} bytes"}
    quality = {f"quality: {name}": str(value) for name, value in (kept.quality or {}).items()}
    if left := _leftovers(content):
        facts["leftovers"] = left
    _print_table(list({**facts, **kept.input.options, **kept.input.source, **quality}.items()))
    print()
    files = [(name, str(file.size), file.sha256) for name, file in kept.files.items()]
    _print_table([("FILE", "BYTES", "SHA-256"), *files])
    return exitcodes.OK


def _readable(content: Content) -> KeptPartition:
    if content.kept is None:
        raise DataError(f"{content.fingerprint}: {content.problem}")
    return content.kept


# --- verify, remove


def _verify(store: PartitionStore, contents: list[Content]) -> int:
    is_good = True
    if not contents:
        print(f"{store}: no partition is kept there", flush=True)
    for content in contents:
        problems = _wrong(store, content.kept) if content.kept else _unreadable(content)
        for problem in problems:
            print(f"{content.fingerprint}: FAILED: {problem}", flush=True)
        if not problems and content.kept:
            size = f"{len(content.kept.files)} files, {content.kept.size / 1e6:.1f} MB"
            print(f"{content.fingerprint}: OK: {size}, all sums compared", flush=True)
        if left := _leftovers(content):
            print(f"{content.fingerprint}: note: {left} (remove --leftovers)", flush=True)
        is_good = is_good and not problems
    return exitcodes.OK if is_good else exitcodes.DATA


def _unreadable(content: Content) -> list[str]:
    """Where there are writers' files alone, a job may be writing them: nothing is wrong with that."""
    return [] if content.leftovers else [content.problem]


def _wrong(store: PartitionStore, kept: KeptPartition) -> list[str]:
    with elapsed.showing(f"dglrun partitions: reading {kept.fingerprint}"):
        return store.wrong_sums(kept)


def _remove(store: PartitionStore, content: Content, only_leftovers: bool) -> int:
    folders = store.remove(content, only_leftovers)
    what = "leftovers of" if only_leftovers else "partition"
    print(f"removed: {what} {store}/{content.fingerprint} ({folders} folders)", flush=True)
    if only_leftovers and content.recent:
        spared = f"{len(content.recent)} folders stay: a job may be writing or reading them"
        hours = SPARED_SECONDS / 3600
        print(f"note: {spared}; leftovers are removed when they are {hours:g} h old", flush=True)
    return exitcodes.OK


def _print_table(rows: "list[tuple[str, ...]]") -> None:
    """Columns as wide as their longest entry, the last one as it is."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]) - 1)] if rows else []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        print("  ".join((*cells, row[-1])).rstrip())
