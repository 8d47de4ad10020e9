"""Several ranks compare random heterographs with their sources: right ones hold, any change is found."""

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dglrun.errors import DataError
from dglrun.formats.dgl.arrays import StoredArray
from dglrun.formats.dgl.edge_blocks import edge_blocks
from dglrun.formats.dgl.folder import load_folder
from dglrun.formats.dgl.graphs import read_graph
from dglrun.formats.dgl.tensors import read_tensors
from dglrun.mpi import checksum, source_sums
from dglrun.mpi.checksum import Hashes
from dglrun.mpi.collectives import Ranks, SingleRank, run_on_all_ranks
from dglrun.mpi.exchange import ask_owners
from dglrun.mpi.shuffle import Owners
from dglrun.verify.keys import OriginalIds, read_assignment
from dglrun.verify.part import PartChecks
from dglrun.verify.source import KnownSums, PartEdgeSums, SourceChecks, load_source
from tests.support.heterographs import WITH_NODES, Toy, a_toy
from tests.support.thread_ranks import on_ranks
from tests.unit.dglrun.verify.test_verify import a_partition, poke

SIZES = st.integers(1, 4)
FORMATS = st.sampled_from(["coo", "csc", "coo,csr,csc"])
PROPERTY = settings(max_examples=40)


def total(sums: list[dict[str, Hashes]]) -> dict[str, Hashes]:
    """The sums of several parts."""
    return {name: np.sum([each[name] for each in sums], axis=0, dtype=np.uint64) for name in sums[0]}


def problems(json_path: Path, size: int, *, is_assigned: bool = True) -> list[str]:
    """What `size` ranks find, all the same; by the sums of dispatch where it has left them.

    Args:
        json_path: The partition, beside its source `in`.
        size: How many ranks.
        is_assigned: Whether `in/parts` has the assignment; else the parts are not held against one.
    """

    def check(ranks: Ranks) -> list[str]:
        source = json_path.parents[1] / "in"
        try:
            folder = load_folder(json_path)
            mine = Owners(folder.parts, ranks.size).owned(ranks.rank)
            parts = run_on_all_ranks(ranks, lambda: [PartChecks(folder, part) for part in mine])
            found = run_on_all_ranks(ranks, lambda: [text for each in parts for text in each.row_problems()])
            if local := [text for texts in ranks.gather(found) for text in texts]:
                return local
            graph = load_source(source, folder, ranks)
            assigned = read_assignment(source / "parts", graph, folder, ranks) if is_assigned else None
            keys = OriginalIds(folder, graph, ranks)
            sums = source_sums.read(ranks, json_path.parent, graph, source / "metadata.json")
            own = [PartEdgeSums(folder, part, keys) for part in mine]
            added = bool(own) and all(each.can_be_added for each in own)
            adds = [each.add if added else None for each in own]
            found = run_on_all_ranks(
                ranks,
                lambda: [
                    text for each, add in zip(parts, adds, strict=True) for text in each.edge_problems(add)
                ],
            )
            if local := [text for texts in ranks.gather(found) for text in texts]:
                return local
            known = KnownSums(sums, total([each.by_table() for each in own]) if added else {})
            return list(SourceChecks(folder, graph, keys, assigned, ranks, known).problems())
        except DataError as error:
            return [str(error)]

    said = on_ranks(size, check)
    assert all(found == said[0] for found in said)
    return said[0]


def arrays(json_path: Path) -> list[StoredArray]:
    """All arrays that the parts hold, those of the graphs and those of the features and IDs."""
    found = [stored for folder in sorted(json_path.parent.glob("part*")) for stored in _arrays(folder)]
    return [stored for stored in found if stored.spec.nbytes]


def edges(json_path: Path) -> list[list[tuple[int, int, int]]]:
    """Ends and numbers of the edges, of each part and format."""
    graphs = [read_graph(path) for path in sorted(json_path.parent.glob("part*/graph.dgl"))]
    return [
        sorted(
            edge
            for block in edge_blocks(graph, layout)
            for edge in zip(block.src.tolist(), block.dst.tolist(), block.edges.tolist(), strict=True)
        )
        for graph in graphs
        for layout in graph.formats
    ]


def _arrays(folder: Path) -> Iterator[StoredArray]:
    graph = read_graph(folder / "graph.dgl")
    yield from (*graph.node_fields.values(), *graph.edge_fields.values())
    for form in graph.formats.values():
        yield from form.values()
    for name in ("node_feat.dgl", "edge_feat.dgl", "orig_nids.dgl", "orig_eids.dgl"):
        yield from read_tensors(folder / name).values()


@PROPERTY
@given(toy=WITH_NODES, size=SIZES, formats=FORMATS, sums=st.booleans())
def test_right_partitions_hold(toy: Toy, size: int, formats: str, sums: bool) -> None:
    """For any number of ranks, fewer or more than parts."""
    with tempfile.TemporaryDirectory() as folder:
        assert problems(a_partition(Path(folder), toy, formats=formats, sums=sums), size) == []


@pytest.mark.parametrize("size", [1, 2])
def test_a_thousand_parts_hold_and_ask_for_their_halo_nodes_in_one_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Not in one for each part, in which all parts are looked through: that grew by the square."""
    asked = []

    def counted(ranks: Ranks, *questions: Any) -> Any:
        asked.append(len(questions[1]))
        return ask_owners(ranks, *questions)

    monkeypatch.setattr("dglrun.verify.keys.ask_owners", counted)
    bare = Toy({"n": 3000}, {"n:r:n": np.arange(6000).reshape(-1, 2) * 7 % 3000}, {}, 1000)
    toy = replace(bare, assignment={"n": np.arange(3000) % 1000})

    assert problems(a_partition(tmp_path, toy), size) == []

    assert len(asked) == size
    assert sum(asked) > 1000


@pytest.mark.parametrize("name", ["orig_nids.dgl", "orig_eids.dgl"])
@pytest.mark.parametrize("size", [1, 2])
def test_an_original_id_that_is_wrong_beyond_32_bits_is_found(tmp_path: Path, name: str, size: int) -> None:
    """Tables of IDs have 32 bits where the graph's fit; what the file says is compared whole."""
    json_path = a_partition(tmp_path, a_toy(parts=2))
    stored = next(each for each in read_tensors(tmp_path / "out/part0" / name).values() if len(each))
    content = bytearray(stored.path.read_bytes())
    content[stored.offset + 4] ^= 1
    stored.path.write_bytes(content)

    assert problems(json_path, size)


@PROPERTY
@given(toy=WITH_NODES, size=SIZES, formats=FORMATS, sums=st.booleans(), data=st.data())
def test_any_flipped_bit_is_found(toy: Toy, size: int, formats: str, sums: bool, data: st.DataObject) -> None:
    """In any value of any array of any part: IDs, types, marks, ends, features, original IDs."""
    with tempfile.TemporaryDirectory() as folder:
        json_path = a_partition(Path(folder), toy, formats=formats, sums=sums)
        stored = data.draw(st.sampled_from(arrays(json_path)))
        at = stored.offset + data.draw(st.integers(0, stored.spec.nbytes - 1))
        content = bytearray(stored.path.read_bytes())
        content[at] ^= 1 << data.draw(st.integers(0, 7))
        stored.path.write_bytes(content)

        assert problems(json_path, size), stored


@PROPERTY
@given(toy=WITH_NODES, size=SIZES, formats=FORMATS, doubles=st.booleans(), sums=st.booleans(), data=st.data())
def test_any_exchanged_or_doubled_row_is_found(
    toy: Toy, size: int, formats: str, doubles: bool, sums: bool, data: st.DataObject
) -> None:
    """Two rows of an array change places, or one takes the place of another."""
    with tempfile.TemporaryDirectory() as folder:
        json_path = a_partition(Path(folder), toy, formats=formats, sums=sums)
        stored = data.draw(st.sampled_from(arrays(json_path)))
        rows = stored.rows(0, len(stored))
        one, two = (data.draw(st.integers(0, len(rows) - 1)) for _ in range(2))
        assume(rows[one].tobytes() != rows[two].tobytes())
        before = edges(json_path)
        poke(stored, two, rows[one])
        if not doubles:
            poke(stored, one, rows[two])
        # The numbers of two edges with the same ends may stand in any order.
        assume(not stored.spec.name.endswith("/eids") or edges(json_path) != before)

        assert problems(json_path, size), stored


@PROPERTY
@given(toy=WITH_NODES, size=SIZES, sums=st.booleans(), data=st.data())
def test_any_other_source_is_found(toy: Toy, size: int, sums: bool, data: st.DataObject) -> None:
    """A node in another part, an edge with another end, a feature of another value."""
    with tempfile.TemporaryDirectory() as folder:
        json_path = a_partition(Path(folder), toy, sums=sums)
        assignment, edges, features = (
            {name: rows.copy() for name, rows in table.items()}
            for table in (
                toy.assignment,
                toy.edges,
                {name: held["feat"] for name, held in toy.node_data.items()},
            )
        )
        tables = [(rows, toy.parts) for rows in assignment.values()]
        for name, rows in edges.items():
            src, _, dst = name.split(":")
            tables += [(rows[:, 0], toy.nodes[src]), (rows[:, 1], toy.nodes[dst])]
        tables += [(rows[:, 0], 2) for rows in features.values()]
        rows, limit = data.draw(st.sampled_from([table for table in tables if len(table[0])]))
        at, value = data.draw(st.integers(0, len(rows) - 1)), data.draw(st.integers(0, limit - 1))
        assume(rows[at] != value)
        rows[at] = value
        node_data = {name: {**toy.node_data[name], "feat": rows} for name, rows in features.items()}
        other = Toy(toy.nodes, edges, assignment, toy.parts, node_data, toy.edge_data)
        other.write(json_path.parents[1] / "in", chunks=2)

        assert problems(json_path, size)


@settings(max_examples=300, deadline=None)
@given(
    width=st.integers(1, 40),
    dtype=st.sampled_from([np.uint8, np.float16, np.float32, np.int64]),
    data=st.data(),
)
def test_a_row_with_any_two_changed_bits_has_another_hash(
    width: int, dtype: type[np.generic], data: st.DataObject
) -> None:
    """Also the highest bits of two words, which a plain sum of 64-bit products would cancel."""
    row = np.zeros((1, width), dtype)
    changed = row.copy()
    bits = data.draw(st.lists(st.integers(0, row.nbytes * 8 - 1), min_size=1, max_size=2, unique=True))
    for bit in bits:
        changed.view(np.uint8)[0, bit // 8] ^= 1 << bit % 8
    key = np.zeros(1, np.int64)

    assert checksum.hash_rows(key, row)[0] != checksum.hash_rows(key, changed)[0]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_negated_row_has_another_hash(dtype: type[np.generic]) -> None:
    """Every highest bit is another; widths from 1 to 64."""
    for width in range(1, 65):
        rows = np.random.default_rng(width).random((5, width)).astype(dtype)
        keys = np.arange(5)

        assert (checksum.hash_rows(keys, rows) != checksum.hash_rows(keys, -rows)).all()


def test_a_difference_is_found_among_keys_beyond_32_bits() -> None:
    """The ranges narrow down to the key, on each rank the rows in another order."""
    keys = 1 << 40
    some = np.random.default_rng(0).permutation(np.arange(0, keys, keys // 5000))
    odd = int(some[1234])

    def check(ranks: Ranks) -> str:
        mine, theirs = some[ranks.rank :: 3], np.sort(some)[ranks.rank :: 3]
        hashes = checksum.hash_columns(theirs)
        hashes[theirs == odd] += np.uint64(1)
        first = [(mine, checksum.hash_columns(mine))]
        return str(checksum.compare(ranks, lambda: first, lambda: [(theirs, hashes)], keys))

    assert on_ranks(3, check) == [f"different: {odd}"] * 3


def test_rows_in_the_place_of_others_are_named() -> None:
    """What lacks and what is there too often; that more differs elsewhere is said."""
    keys = np.arange(100_000)
    got = keys.copy()
    got[[7, 70_000]] = 8
    tables = [[(each, checksum.hash_columns(each))] for each in (keys, got)]

    found = checksum.compare(SingleRank(), lambda: tables[0], lambda: tables[1], len(keys))

    assert str(found) == "missing: 7; too many: 8; others differ too"


@pytest.mark.parametrize("odd", [0, 70_000])
def test_a_table_that_differs_in_the_first_reading_only_is_not_equal(odd: int) -> None:
    """A file that changes meanwhile, or a disk that errs: the range is named, nothing is called sound."""
    keys = np.arange(100_000)
    readings = iter([np.where(keys == odd, 8, keys), keys])

    found = checksum.compare(
        SingleRank(),
        lambda: [(keys, checksum.hash_columns(keys))],
        lambda: [(keys, checksum.hash_columns(next(readings)))],
        len(keys),
    )

    assert found is not None
    assert found.unsteady is not None
    assert odd in found.unsteady
    assert "read otherwise the second time" in str(found)
