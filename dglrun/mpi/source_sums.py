"""Sums of the rows of a source as a dispatch has read them, before it sends them anywhere: `source.sums`.

A verification of what that dispatch wrote compares the parts with them instead of reading the source anew.
They name the files that were read by size and time: of other files nobody believes them. By these names
alone, which each dispatch to several folders leaves, a lost part is made of the same files as the others.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dglrun.arrays import Array, Ints
from dglrun.errors import DataError
from dglrun.formats.chunked import input_file
from dglrun.formats.chunked.input_file import File
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.output_folder import read_object, replacing_file
from dglrun.mpi import checksum
from dglrun.mpi.checksum import Hashes, TableSums
from dglrun.mpi.collectives import Ranks, run_on_all_ranks

FILENAME = "source.sums"
_FORMAT = 2
"""Of the file and of the hashes (`checksum`): sums of other hashes say nothing."""


class Table(NamedTuple):
    """A table of the source.

    Attributes:
        kind: `edges`, or `node` or `edge` for a feature of nodes or edges.
        owner: The type.
        name: The feature, empty for edges.
    """

    kind: str
    owner: str
    name: str = ""

    def __str__(self) -> str:
        """Its name in the file."""
        return f"{self.kind} {self.owner}/{self.name}"


class ReadSums:
    """The sums of what this rank reads.

    Args:
        is_wanted: Whether to add up anything.

    Attributes:
        by_table: For each table: uint64, shape (2, checksum.RANGES).
    """

    def __init__(self, is_wanted: bool) -> None:
        self.by_table: dict[str, Hashes] = {}
        self._is_wanted = is_wanted

    def of_edges(
        self, table: Table, start: int, total: int, blocks: Iterator[tuple[Ints, Ints]]
    ) -> Iterator[tuple[Ints, Ints]]:
        """The blocks, added up on their way.

        Args:
            table: Whose rows they are.
            start: Number of the first row.
            total: Rows of the whole table.
            blocks: Sources and destinations, int64, shape (rows,) each.
        """
        sums = self._begin(table, total)
        for src, dst in blocks:
            if sums:
                keys = np.arange(start, start + len(src))
                sums.add(keys, checksum.hash_columns(keys, src, dst))
                start += len(src)
            yield src, dst

    def of_rows(self, table: Table, start: int, total: int, blocks: Iterator[Array]) -> Iterator[Array]:
        """The blocks of a feature, shape (rows, ...), added up on their way; see `of_edges`."""
        sums = self._begin(table, total)
        for block in blocks:
            if sums:
                keys = np.arange(start, start + len(block))
                sums.add(keys, checksum.hash_rows(keys, block))
                start += len(block)
            yield block

    def facts(self, kind: str) -> dict[str, list[list[int]]]:
        """The sums of the tables whose names begin in this way, for a file."""
        return {name: sums.tolist() for name, sums in self.by_table.items() if name.startswith(kind)}

    def take(self, facts: Mapping[str, list[list[int]]]) -> None:
        """Take up what an earlier run of this rank has read."""
        self.by_table |= {name: np.array(sums, np.uint64) for name, sums in facts.items()}

    def _begin(self, table: Table, total: int) -> TableSums | None:
        if not self._is_wanted:
            return None
        sums = TableSums(checksum.KeyRanges.of(0, total))
        self.by_table[str(table)] = sums.values
        return sums


def identity(graph: ChunkedGraph, metadata: File) -> str:
    """Stands for the files of a graph: their names, sizes and times.

    Raises:
        DataError: one is missing, or cannot be asked.
    """
    digest = hashlib.sha256()
    files = [("metadata", metadata)]
    files += [(name, path) for name, (spec, _) in graph.tables().items() for path in spec.paths]
    for name, path in files:
        stat = input_file.stat(path)
        digest.update(f"{name}\0{path.name}\0{stat.size}\0{stat.mtime_ns}\n".encode())
    return digest.hexdigest()


def add(ranks: Ranks, own: Mapping[str, Hashes]) -> dict[str, Hashes]:
    """The sums over all ranks; collective. Each rank has the same tables."""
    by_rank = ranks.gather(dict(own))
    return {name: np.sum([found[name] for found in by_rank], axis=0, dtype=np.uint64) for name in own}


def write(folder: Path, identities: list[str], sums: Mapping[str, Hashes]) -> None:
    """Write the file, whole or not at all.

    Args:
        folder: The partition's folder.
        identities: What `identity` gave on each rank before it read.
        sums: Of all ranks; empty if none were wanted.
    """
    said = {
        "format": _FORMAT,
        "ranges": checksum.RANGES,
        "inputs": sorted(set(identities)),
        "sums": {name: found.tolist() for name, found in sums.items()},
    }
    with replacing_file(folder / FILENAME) as draft:
        draft.write_text(json.dumps(said))


def inputs(folder: Path) -> frozenset[str]:
    """What `write` was given as identities; empty if nothing tells them."""
    found = read_object(folder / FILENAME)
    told = found.get("inputs")
    if found.get("format") != _FORMAT or not isinstance(told, list):
        return frozenset()
    return frozenset(each for each in told if isinstance(each, str))


def read(ranks: Ranks, folder: Path, graph: ChunkedGraph, metadata: File) -> dict[str, Hashes]:
    """The sums in a partition's folder; collective.

    Args:
        ranks: The processes, each with a folder of its own or all with one.
        folder: The partition's folder, as this rank sees it.
        graph: The source.
        metadata: Its metadata.json.

    Returns:
        By table; empty if some rank has none, has others, or has files that those who read did not have.

    Raises:
        AgreedError: a file of the source cannot be asked.
    """
    mine = run_on_all_ranks(ranks, lambda: identity(graph, metadata))
    own: dict[str, Any] = read_object(folder / FILENAME)
    is_of_these = mine in own.get("inputs", ()) and own.get("format") == _FORMAT
    stamp = hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()
    told = ranks.gather(stamp if is_of_these and own.get("ranges") == checksum.RANGES else None)
    if told[0] is None or any(each != told[0] for each in told):
        return {}
    try:
        return {name: np.array(sums, np.uint64) for name, sums in own["sums"].items()}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{folder / FILENAME}: {error}") from None
