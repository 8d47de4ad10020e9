"""The files of a graph's tables, counted by the ranks side by side: each file by one rank."""

from collections.abc import Mapping

from dglrun.formats.chunked import check, read
from dglrun.formats.chunked.row_index import Index, RowIndex
from dglrun.formats.chunked.table import FileSpec
from dglrun.mpi.collectives import Ranks, run_on_all_ranks


def index_tables(ranks: Ranks, tables: Mapping[str, tuple[FileSpec, int]]) -> Index:
    """Index all files and compare their rows with the metadata; collective.

    Args:
        ranks: The processes.
        tables: By a name for people: the table, and the rows that it must have.

    Raises:
        AgreedError: a file cannot be read, or a table has another number of rows.
    """
    specs = dict.fromkeys(spec for spec, _ in tables.values())  # two features may be one file
    files = [(spec, path) for spec in specs for path in spec.paths]
    mine = files[ranks.rank :: ranks.size]
    own = run_on_all_ranks(ranks, lambda: [read.index_file(path, spec) for spec, path in mine])
    shared = ranks.gather(own)
    index: dict[FileSpec, list[RowIndex]] = {spec: [] for spec in specs}
    for at, (spec, _) in enumerate(files):
        index[spec].append(shared[at % ranks.size][at // ranks.size])
    run_on_all_ranks(ranks, lambda: _check(tables, index))
    return index


def _check(tables: Mapping[str, tuple[FileSpec, int]], index: Index) -> None:
    for name, (spec, wanted) in tables.items():
        check.check_rows(name, wanted, index[spec])
