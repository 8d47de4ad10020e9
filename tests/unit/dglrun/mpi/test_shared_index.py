"""The rows of a graph's files, counted by several ranks."""

from pathlib import Path

import pytest

from dglrun.errors import DataError
from dglrun.formats.chunked import read
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.mpi.shared_index import index_tables
from tests.support.heterographs import a_toy
from tests.support.thread_ranks import on_ranks


@pytest.mark.parametrize("size", [1, 2, 5])
def test_every_rank_has_the_index_of_every_file(tmp_path: Path, size: int) -> None:
    """Though each file was counted by one of them."""
    graph = ChunkedGraph.load(a_toy().write(tmp_path, chunks=3))

    found = on_ranks(size, lambda ranks: index_tables(ranks, graph.tables()))

    expected = {spec: [file.rows for file in read.index(spec)] for spec, _ in graph.tables().values()}
    assert [{spec: [file.rows for file in files] for spec, files in each.items()} for each in found] == [
        expected
    ] * size


def test_a_wrong_number_of_rows_stops_all_ranks(tmp_path: Path) -> None:
    """Named by table and file."""
    graph = ChunkedGraph.load(a_toy().write(tmp_path, chunks=2))
    tables = {name: (spec, rows + 1) for name, (spec, rows) in graph.edge_tables().items()}

    with pytest.raises(DataError, match=r"edges of .*: the metadata says \d+ rows, the files have \d+ \("):
        on_ranks(2, lambda ranks: index_tables(ranks, tables))
