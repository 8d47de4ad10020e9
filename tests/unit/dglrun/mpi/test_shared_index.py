"""The rows of a graph's files, counted by several ranks."""

from pathlib import Path

import numpy as np
import pytest

from dglrun.errors import DataError
from dglrun.formats import store
from dglrun.formats.chunked import csvfile, input_file, kept_bytes, read
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.chunked.row_index import Index
from dglrun.formats.chunked.table import CSV, FileSpec
from dglrun.formats.store import bytes_read
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


Rows = list[tuple[int, int]]
Tables = dict[FileSpec, Rows]


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tables:
    """Tables of edges in csv behind one of Arrow's file systems, in many steps; one file is empty."""
    monkeypatch.setattr(csvfile, "STEP", 64)
    monkeypatch.setattr(kept_bytes, "_LEFT", 0)  # however full this machine's disk is
    place, random, made = store.place(f"mock:///{tmp_path.name}"), np.random.default_rng(3), Tables()
    for table, counts in enumerate(((300, 0, 1), (40,), (7, 500))):
        paths = tuple(place / f"{table}-{at}.csv" for at in range(len(counts)))
        spec = FileSpec(CSV, paths)
        made[spec] = []
        for path, count in zip(paths, counts, strict=True):
            rows = random.integers(0, 10 ** random.integers(1, 9, (count, 2))).tolist()
            path.write_bytes("\n".join(f"{src} {dst}" for src, dst in rows).encode())
            made[spec] += [(src, dst) for src, dst in rows]
    return made


def named(tables: Tables) -> dict[str, tuple[FileSpec, int]]:
    """The tables with the rows that they must have."""
    return {str(at): (spec, len(rows)) for at, (spec, rows) in enumerate(tables.items())}


def size_of(spec: FileSpec) -> int:
    """Bytes of a table's files."""
    stats = [path.stat() for path in spec.paths if isinstance(path, store.Place)]
    return sum(stat.size for stat in stats if stat)


def edges(spec: FileSpec, index: Index, start: int, stop: int) -> Rows:
    """The rows from one to another."""
    blocks = read.edge_blocks(spec, start, stop, 30, files=index[spec])
    return [pair for src, dst in blocks for pair in zip(src.tolist(), dst.tolist(), strict=True)]


@pytest.mark.parametrize("is_one_share", [True, False])
@pytest.mark.parametrize("size", [1, 2, 5, 40])
def test_csv_on_object_storage_is_counted_by_shares_of_its_bytes(
    tables: Tables, size: int, is_one_share: bool
) -> None:
    """All ranks know where each row is; the bytes come once, though they are counted and read."""
    before = bytes_read()

    found = on_ranks(size, lambda ranks: index_tables(ranks, named(tables), is_one_share))

    for index in found:
        for spec, rows in tables.items():
            assert edges(spec, index, 0, len(rows)) == rows
            assert edges(spec, index, len(rows) // 3, len(rows) - 1) == rows[len(rows) // 3 : -1]
    assert bytes_read() - before == sum(map(size_of, tables))


def test_what_finds_no_room_is_read_again(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without room for the bytes on this machine's disk they come twice, and are the same."""
    monkeypatch.setattr(kept_bytes, "_ROOM", 1 << 60)
    before = bytes_read()

    (index, _) = on_ranks(2, lambda ranks: index_tables(ranks, named(tables)))

    for spec, rows in tables.items():
        assert edges(spec, index, 0, len(rows)) == rows
    assert bytes_read() - before >= 2 * sum(map(size_of, tables))


def test_bytes_of_a_rank_that_has_others_are_those_of_the_object(tables: Tables) -> None:
    """What is kept of the middle of a file is read with what is not, at once and in blocks."""
    path = next(iter(tables)).paths[0]
    whole = path.read_bytes()
    csvfile.count_steps(path, 2, 5)
    csvfile.count_steps(path, 7, 8)

    with input_file.open_binary(path) as file:
        assert file.read() == whole
        for start, size in ((0, 100), (100, 200), (64 * 4 + 1, 1000), (64 * 7, 64), (len(whole) - 3, 9)):
            file.seek(start)
            assert file.read(size) == whole[start : start + size]
    with input_file.open_binary(path, 16) as file:
        assert file.readlines() == whole.splitlines(keepends=True)
