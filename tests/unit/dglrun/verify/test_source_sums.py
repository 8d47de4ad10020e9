"""Sums that dispatch takes while it reads: what it does wrong afterwards is found without the source."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dglrun.arrays import Array
from dglrun.dispatch import features
from dglrun.dispatch.pipeline import dispatch
from dglrun.dispatch.source import Options
from dglrun.formats.chunked import read
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.dgl.folder import load_folder
from dglrun.mpi import shuffle, source_sums
from dglrun.mpi.collectives import SingleRank
from dglrun.verify.keys import OriginalIds, read_assignment
from dglrun.verify.source import KnownSums, SourceChecks, load_source
from tests.support.heterographs import a_toy
from tests.support.thread_ranks import on_ranks

METADATA = "metadata.json"


def dispatched(folder: Path, size: int = 2, sums: bool = True) -> Path:
    """A toy whose dispatch leaves its sums; returns its source."""
    source = a_toy(parts=3).write(folder / "in", chunks=2)
    places = source, source / "parts", folder / "out"
    wanted = Options(*places, save_orig_nids=True, save_orig_eids=True, source_sums=sums)
    on_ranks(size, lambda ranks: dispatch(wanted, ranks, lambda _: None))
    return source


def problems(source: Path) -> list[str]:
    """What a check of the parts by the sums finds; the sums must be believed."""
    alone, folder = SingleRank(), load_folder(source.with_name("out") / "toy.json")
    graph = load_source(source, folder, alone)
    sums = source_sums.read(alone, folder.path.parent, graph, source / METADATA)
    assert sums
    keys, assigned = (
        OriginalIds(folder, graph, alone),
        read_assignment(source / "parts", graph, folder, alone),
    )
    return list(SourceChecks(folder, graph, keys, assigned, alone, KnownSums(sums)).problems())


def unread(*args: Any, **named: Any) -> Any:
    raise AssertionError("the source is read")


@pytest.mark.parametrize("size", [1, 3])
def test_right_parts_hold_without_a_look_at_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Whatever the number of ranks that dispatched: no table is counted or read."""
    source = dispatched(tmp_path, size)
    for name in ("edge_blocks", "feature_blocks"):
        monkeypatch.setattr(read, name, unread)
    monkeypatch.setattr("dglrun.verify.source.index_tables", unread)

    assert problems(source) == []


def in_another_place(prepare: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(column: Array, rows: Array, parts: int) -> Any:
        found = prepare(column, rows, parts)
        return found if found.ndim == 1 else found[::-1].copy()

    return wrong


def the_first_twice(prepare: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(column: Array, rows: Array, parts: int) -> Any:
        found = prepare(column, rows, parts).copy()
        found[1:2] = found[:1]
        return found

    return wrong


@pytest.mark.parametrize("defect", [in_another_place, the_first_twice])
def test_a_defect_of_the_shuffle_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defect: Callable[..., Any]
) -> None:
    """The sums are taken before it: rows that take others' places, or come twice, are named."""
    with monkeypatch.context() as patch:
        patch.setattr(shuffle, "_ordered", defect(shuffle._ordered))
        source = dispatched(tmp_path)

    assert any("different: " in text or "missing: " in text for text in problems(source))


def test_a_row_in_the_wrong_place_of_a_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dispatch keeps the order of rows by their places; one place off is another node's row."""
    run = features.RowStream.run

    def shifted(self: features.RowStream, blocks: Any, *more: Any) -> None:
        by = 1 if self.name == "n0/feat" else 0
        run(self, (np.roll(block, by, axis=0) for block in blocks), *more)

    with monkeypatch.context() as patch:
        patch.setattr(features.RowStream, "run", shifted)
        source = dispatched(tmp_path)

    assert any("n0/feat: different: " in text for text in problems(source))


def touch(source: Path) -> None:
    path = source / "n0-feat-0.npy"
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


def write_as_before(source: Path) -> None:
    path = source.with_name("out") / source_sums.FILENAME
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 1}))


CHANGES: dict[str, Callable[[Path], Any]] = {
    "the sums are of the hashes of an earlier version": write_as_before,
    "a file has another time": touch,
    "the metadata has another time": lambda d: os.utime(d / METADATA, ns=(0, 1)),
    "the sums are gone": lambda d: (d.with_name("out") / source_sums.FILENAME).unlink(),
    "the sums are cut short": lambda d: os.truncate(d.with_name("out") / source_sums.FILENAME, 40),
}


@pytest.mark.parametrize("change", CHANGES)
def test_sums_of_another_input_are_not_believed(tmp_path: Path, change: str) -> None:
    """By any rank: then all read the source."""
    source = dispatched(tmp_path)
    CHANGES[change](source)
    graph = ChunkedGraph.load(source, METADATA)

    found = on_ranks(
        2, lambda ranks: source_sums.read(ranks, source.with_name("out"), graph, source / METADATA)
    )

    assert found == [{}, {}]


def test_ranks_with_sums_of_different_runs_read_the_source(tmp_path: Path) -> None:
    """As when a worker's folder is of an earlier run."""
    source = dispatched(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    graph = ChunkedGraph.load(source, METADATA)
    folders = [source.with_name("out"), other]

    found = on_ranks(2, lambda ranks: source_sums.read(ranks, folders[ranks.rank], graph, source / METADATA))

    assert found == [{}, {}]


def test_a_dispatch_that_leaves_no_sums_leaves_none_of_an_earlier_one(tmp_path: Path) -> None:
    """What stands beside the parts is of the run that wrote them."""
    dispatched(tmp_path)
    dispatched(tmp_path, sums=False)

    assert not (tmp_path / "out" / source_sums.FILENAME).exists()
