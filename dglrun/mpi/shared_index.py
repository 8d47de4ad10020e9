"""The files of a graph's tables, counted by the ranks side by side.

Each file is counted by one rank. csv on object storage has to be read for that: there each rank counts the
lines of its share of the bytes, which are about those of its rows, and keeps them for the reading.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from dglrun.arrays import share
from dglrun.formats.chunked import check, csvfile, input_file, read
from dglrun.formats.chunked.input_file import File
from dglrun.formats.chunked.row_index import Index, RowIndex
from dglrun.formats.chunked.table import CSV, FileSpec
from dglrun.formats.store import Place
from dglrun.mpi.collectives import Ranks, run_on_all_ranks


def index_tables(
    ranks: Ranks, tables: Mapping[str, tuple[FileSpec, int]], is_one_share: bool = False
) -> Index:
    """Index all files and compare their rows with the metadata; collective.

    Args:
        ranks: The processes.
        tables: By a name for people: the table, and the rows that it must have.
        is_one_share: Whether a rank reads its share of all tables as if they were one, not of each of them.

    Raises:
        AgreedError: a file cannot be read, or a table has another number of rows.
    """
    specs = tuple(dict.fromkeys(spec for spec, _ in tables.values()))  # two features may be one file
    cut = tuple(spec for spec in specs if _is_cut(spec))
    index = dict(_by_file(ranks, [spec for spec in specs if spec not in cut]))
    for group in [cut] if is_one_share else [(spec,) for spec in cut]:
        index |= _by_bytes(ranks, group)
    run_on_all_ranks(ranks, lambda: _check(tables, index))
    return index


def _is_cut(spec: FileSpec) -> bool:
    return spec.format == CSV and any(isinstance(path, Place) for path in spec.paths)


def _by_file(ranks: Ranks, specs: Sequence[FileSpec]) -> Index:
    """Each file by one rank."""
    files = [(spec, path) for spec in specs for path in spec.paths]
    mine = files[ranks.rank :: ranks.size]
    own = run_on_all_ranks(ranks, lambda: [read.index_file(path, spec) for spec, path in mine])
    shared = ranks.gather(own)
    index: dict[FileSpec, list[RowIndex]] = {spec: [] for spec in specs}
    for at, (spec, _) in enumerate(files):
        index[spec].append(shared[at % ranks.size][at // ranks.size])
    return index


def _by_bytes(ranks: Ranks, specs: Sequence[FileSpec]) -> Index:
    """Each rank its share of the bytes of all files, in whole steps."""
    files = [path for spec in specs for path in spec.paths]
    own = run_on_all_ranks(ranks, lambda: _count(files, ranks.rank, ranks.size))
    found = [
        csvfile.joined(path, [each[at] for each in shared])
        for shared in [ranks.gather(own)]
        for at, path in enumerate(files)
    ]
    ends = np.cumsum([len(spec.paths) for spec in specs]).tolist()
    return {spec: found[end - len(spec.paths) : end] for spec, end in zip(specs, ends, strict=True)}


def _count(files: Sequence[File], rank: int, size: int) -> list[csvfile.Counted]:
    """What the rank's share holds of each file, be it nothing."""
    sizes = [input_file.stat(path).size for path in files]
    start, stop = share(sum(sizes), rank, size)
    found, first = [], 0
    for path, length in zip(files, sizes, strict=True):
        found.append(csvfile.count_steps(path, _step(start - first, length), _step(stop - first, length)))
        first += length
    return found


def _step(at: int, size: int) -> int:
    """The step whose beginning is next to a byte of a file, or to that of another file beside it."""
    return -(-size // csvfile.STEP) if at >= size else (max(at, 0) + csvfile.STEP // 2) // csvfile.STEP


def _check(tables: Mapping[str, tuple[FileSpec, int]], index: Index) -> None:
    for name, (spec, wanted) in tables.items():
        check.check_rows(name, wanted, index[spec])
