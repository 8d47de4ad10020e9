"""Dispatch against a slow, obvious reference, over random heterographs."""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dglrun.dispatch import halo
from dglrun.dispatch.pipeline import dispatch
from dglrun.dispatch.source import Options
from dglrun.formats.dgl.arrays import StoredArray
from dglrun.formats.dgl.folder import load_folder
from dglrun.formats.dgl.graphs import read_graph
from dglrun.formats.dgl.tensors import read_tensors
from dglrun.mpi import exchange
from dglrun.mpi.collectives import SingleRank
from dglrun.verify.keys import OriginalIds, read_assignment
from dglrun.verify.part import PartChecks
from dglrun.verify.source import SourceChecks, load_source
from tests.support.heterographs import NaivePart, Toy, a_toy, naive, toys
from tests.support.thread_ranks import ThreadRanks, on_ranks


def dispatched(toy: Toy, folder: Path, size: int, fmt: str = "csv", chunks: int = 3, **options: Any) -> Path:
    source, out = toy.write(folder / "in", chunks, fmt), folder / "out"
    wanted = Options(source, source / "parts", out, save_orig_nids=True, save_orig_eids=True, **options)
    on_ranks(size, lambda ranks: dispatch(wanted, ranks, lambda _: None))
    return out


def values(stored: StoredArray) -> list[Any]:
    return stored.rows(0, len(stored)).tolist()  # type: ignore[no-any-return]


def assert_part(folder: Path, toy: Toy, part: NaivePart) -> None:
    graph = read_graph(folder / "graph.dgl")
    assert values(graph.node_fields["_ID"]) == part.node_ids
    assert values(graph.node_fields["_TYPE"]) == part.node_types
    assert values(graph.node_fields["inner_node"]) == [at < part.inner for at in range(graph.num_nodes)]
    assert values(graph.edge_fields["_ID"]) == part.edge_ids
    assert values(graph.edge_fields["_TYPE"]) == part.edge_types
    assert values(graph.edge_fields["inner_edge"]) == [1] * len(part.edges)
    coo = graph.formats["coo"]
    assert list(zip(values(coo["src"]), values(coo["dst"]), strict=True)) == part.edges
    assert {n: values(a) for n, a in read_tensors(folder / "orig_nids.dgl").items()} == part.orig_nids
    assert {n: values(a) for n, a in read_tensors(folder / "orig_eids.dgl").items()} == part.orig_eids
    assert_features(folder / "node_feat.dgl", toy.node_data, part.orig_nids)
    assert_features(folder / "edge_feat.dgl", toy.edge_data, part.orig_eids)


def assert_features(path: Path, data: dict[str, dict[str, Any]], ids: dict[str, list[int]]) -> None:
    found = read_tensors(path)
    wanted = {
        f"{owner}/{name}": rows[ids[owner]] for owner, own in data.items() for name, rows in own.items()
    }
    assert set(found) == set(wanted)
    for name, rows in wanted.items():
        np.testing.assert_array_equal(found[name].rows(0, len(found[name])), rows)


def problems(out: Path) -> list[str]:
    """What `dglrun verify` finds in the parts, alone and against the graph beside them."""
    source, alone, folder = out.with_name("in"), SingleRank(), load_folder(out / "toy.json")
    found = [text for part in range(folder.parts) for text in PartChecks(folder, part).problems()]
    graph = load_source(source, folder, alone)
    keys = OriginalIds(folder, graph, alone)
    assigned = read_assignment(source / "parts", graph, folder, alone)
    return found + list(SourceChecks(folder, graph, keys, assigned, alone).problems())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(toy=toys(), size=st.integers(1, 4), chunks=st.integers(1, 5), sharded=st.booleans())
def test_every_part_is_what_the_reference_says(toy: Toy, size: int, chunks: int, sharded: bool) -> None:
    """Any heterograph, any number of ranks and files, node table whole or in shards."""
    with tempfile.TemporaryDirectory() as folder:
        out = dispatched(toy, Path(folder), size, chunks=chunks, table_bytes=0 if sharded else 1 << 30)

        for number, part in enumerate(naive(toy)):
            assert_part(out / f"part{number}", toy, part)


@pytest.mark.parametrize("fmt", ["csv", "parquet", "numpy"])
@pytest.mark.parametrize("size", [1, 3])
def test_small_blocks_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fmt: str, size: int
) -> None:
    """Rounds of a few rows and windows of a few nodes give the same parts."""
    monkeypatch.setattr(exchange, "BLOCK_BYTES", 200)
    monkeypatch.setattr(exchange, "ROUND_BYTES", 100)
    monkeypatch.setattr("dglrun.formats.chunked.read.BLOCK_ROWS", 7)
    monkeypatch.setattr(halo, "WINDOW", 5)
    monkeypatch.setattr(halo.localise, "__defaults__", (5,))
    toy = a_toy(seed=4, parts=5)

    out = dispatched(toy, tmp_path, size, fmt)

    for number, part in enumerate(naive(toy)):
        assert_part(out / f"part{number}", toy, part)


def test_a_part_with_twenty_times_the_edges_is_written_in_bounded_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ranks send nearly everything to the same one, which never gets more than a round may have."""
    monkeypatch.setattr(exchange, "BLOCK_BYTES", 400)
    monkeypatch.setattr(exchange, "ROUND_BYTES", 500)
    came: list[tuple[int, int]] = []
    send = ThreadRanks.exchange

    def noted(self: ThreadRanks, column: Any, to: Sequence[int], of: Sequence[int]) -> Any:
        found = send(self, column, to, of)
        came.append((found.nbytes, exchange.row_bytes(column)))
        return found

    monkeypatch.setattr(ThreadRanks, "exchange", noted)
    toy = a_toy(seed=8, nodes=(40, 40), edges=(400, 400), parts=4)
    split = {name: np.where(np.arange(40) < 34, 1, np.arange(40) % 4) for name in toy.assignment}
    relations = {
        name: np.stack([ends[:, 0], np.where(np.arange(400) % 21, ends[:, 1] % 34, ends[:, 1])], axis=1)
        for name, ends in toy.edges.items()
    }
    toy = replace(toy, assignment=split, edges=relations)

    out = dispatched(toy, tmp_path, 4)

    parts = naive(toy)
    counts = sorted(len(part.edges) for part in parts)
    assert counts[-1] > 20 * counts[-2]
    assert all(size <= 500 + 4 * row for size, row in came)
    for number, part in enumerate(parts):
        assert_part(out / f"part{number}", toy, part)
    assert problems(out) == []


def test_one_rank_writes_thousands_of_parts(tmp_path: Path) -> None:
    """One or two nodes in each; their halo nodes and edges are checked against the graph."""
    toy = a_toy(seed=5, nodes=(4000,), edges=(8000,), parts=3000)
    toy = replace(toy, assignment={"n0": np.random.default_rng(5).permutation(4000) % 3000})

    out = dispatched(toy, tmp_path, 1)

    assert problems(out) == []
    described = json.loads((out / "toy.json").read_text())
    starts, ends = np.array(described["node_map"]["n0"]).T
    assert described["num_parts"] == 3000
    assert (ends - starts).tolist() == [2] * 1000 + [1] * 2000
    assert len(list(out.glob("part*/graph.dgl"))) == 3000


def test_the_json_names_ranges_without_gaps(tmp_path: Path) -> None:
    """A type with nothing in a part has start = end = the previous end."""
    toy = replace(
        a_toy(parts=2), assignment={"n0": np.zeros(30, int), "n1": np.ones(20, int), "n2": np.ones(7, int)}
    )

    out = dispatched(toy, tmp_path, 1)

    described = json.loads((out / "toy.json").read_text())
    assert described == json.loads((out / "metadata.json").read_text())
    assert described["node_map"] == {
        "n0": [[0, 30], [30, 30]],
        "n1": [[30, 30], [30, 50]],
        "n2": [[30, 30], [50, 57]],
    }
    assert (described["num_nodes"], described["num_edges"], described["num_parts"]) == (57, 130, 2)


@pytest.mark.parametrize("formats", [("csc",), ("csr",), ("coo", "csr", "csc")])
def test_compressed_formats_hold_the_same_edges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, formats: tuple[str, ...]
) -> None:
    """Csc and csr name each edge once, by its number, sorted by type inside a row."""
    monkeypatch.setattr("dglrun.dispatch.csc_csr.SLICE", 10)
    toy = a_toy(seed=2)

    out = dispatched(toy, tmp_path, 2, formats=formats)

    for number, part in enumerate(naive(toy)):
        graph = read_graph(out / f"part{number}" / "graph.dgl")
        assert tuple(graph.formats) == formats
        for name in set(formats) - {"coo"}:
            indptr, indices, eids = (values(graph.formats[name][c]) for c in ("indptr", "indices", "eids"))
            rows = np.repeat(np.arange(graph.num_nodes), np.diff(indptr))
            found = [(c, r) if name == "csc" else (r, c) for r, c in zip(rows, indices, strict=True)]
            assert [found[at] for at in np.argsort(eids)] == part.edges
            assert all(eids[at] < eids[at + 1] for at in range(len(eids) - 1) if rows[at] == rows[at + 1])


def test_the_output_is_the_same_for_any_number_of_ranks(tmp_path: Path) -> None:
    """Bytes do not depend on how many ranks made them."""
    toy = a_toy(seed=9, parts=4)
    folders = [dispatched(toy, tmp_path / str(size), size) for size in (1, 2, 3, 4)]

    contents = [
        {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}
        for out in folders
    ]

    assert contents[0] == contents[1] == contents[2] == contents[3]


def test_the_order_of_the_formats_does_not_matter(tmp_path: Path) -> None:
    """A file has its own order: csc under the name of csr would turn every edge round."""
    source = a_toy(1, parts=2).write(tmp_path / "in")
    written = []
    for at, formats in enumerate((("csc", "csr", "coo"), ("coo", "csr", "csc"))):
        wanted = Options(source, source / "parts", tmp_path / str(at), formats=formats)
        dispatch(wanted, SingleRank(), lambda _: None)
        written.append((tmp_path / str(at) / "part0/graph.dgl").read_bytes())

    assert written[0] == written[1]
