"""From tables to what DGL loads: every back end, 1 to 8 ranks, all is there once under the user's IDs.

`pytest --hypothesis-profile=long` on this file draws a hundred graphs for each back end.
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from dglrun.commands import chunk, convert, ids, partition, partition_rank
from dglrun.dispatch.pipeline import dispatch
from dglrun.dispatch.source import Options
from dglrun.formats import assignment
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.partitioning.distributed import rank_main
from tests.support.commands import run_command
from tests.support.dgl_loader import DglLoader, dgl_loader
from tests.support.dglrun_pods import ROOT
from tests.support.needs import (
    NEEDS_DUCKDB,
    NEEDS_KAMINPAR,
    NEEDS_METIS,
    NEEDS_MPI,
    NEEDS_PARMETIS,
    NEEDS_ZOLTAN,
)
from tests.support.thread_ranks import on_ranks
from tests.support.user_tables import Row, UserGraph, user_graphs
from tests.unit.dglrun.partitioning.builders import partition as partition_by_mpi
from tests.unit.dglrun.verify.test_distributed import problems

pytestmark = [NEEDS_DUCKDB, pytest.mark.dgl]

FEW = settings(
    max_examples=max(2, settings().max_examples // 50),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # a try takes seconds: no search for a smaller one
)
"""Two graphs for each back end in the gate, by another profile more."""


@dataclass(frozen=True)
class Line:
    """A graph on its way: `in` is the chunked graph, `in/parts` the assignment, `out` the partition."""

    folder: Path
    parts: int
    ranks: int

    def partition(self, *flags: str) -> None:
        """`dglrun partition` in this process."""
        places = ("--in-dir", str(self.folder / "in"), "--out-dir", str(self.folder / "in/parts"))
        assert run_command(partition, "partition", *places, "--num-parts", str(self.parts), *flags) == 0


def by_command(backend: str) -> Callable[[Line], None]:
    """A back end of one process."""
    return lambda line: line.partition("--backend", backend)


def by_ranks(backend: str, *more: str) -> Callable[[Line], None]:
    """What each worker of DistParMETIS runs, on ranks that are threads."""

    def assign(line: Line) -> None:
        argv = ("--in-dir", str(line.folder / "in"), "--out-dir", str(line.folder / "in/parts"))
        chosen = ("--metadata-filename", "metadata.json", "--backend", backend, "--seed", "7")
        weights = ("--num-parts", str(line.parts), "--balance", "types,edges", "--imbalance", "1.05")
        args = partition_rank._parser().read([*argv, *chosen, *weights, *more])
        on_ranks(line.ranks, lambda ranks: rank_main.run(ranks, args))  # type: ignore[arg-type]

    return assign


def by_mpi(backend: str) -> Callable[[Line], None]:
    """A library that talks to MPI itself."""

    def assign(line: Line) -> None:
        flags = ("--mode", "ParMETIS", "--backend", backend, "--num-parts", str(line.parts))
        ranks = str(min(line.ranks, 3))
        ended = partition_by_mpi(line.folder / "in", line.folder / "in/parts", *flags, "--ranks", ranks)
        assert ended.returncode == 0, ended.stderr

    return assign


def by_the_user(line: Line) -> None:
    """Files that somebody else has written, in any order of parts."""
    line.partition("--backend", "user", "--assignment", brought(line))


def by_the_user_on_ranks(line: Line) -> None:
    """The same in mode DistParMETIS: each worker reads its share of them."""
    by_ranks("user", "--assignment", brought(line))(line)


def brought(line: Line) -> str:
    """The folder of such files."""
    graph = ChunkedGraph.load(line.folder / "in")
    parts = {t: (np.arange(n) * 5 % line.parts).astype(np.uint16) for t, n in nodes_of(graph)}
    assignment.write(line.folder / "mine", graph, parts, assignment.AssignmentMeta(line.parts, "mine"))
    return str(line.folder / "mine")


def by_text(line: Line) -> None:
    """Text of ParMETIS's format out and in again, and an assignment as its program writes one."""
    source, text, again = (line.folder / name for name in ("in", "text", "again"))
    graph = ChunkedGraph.load(source)
    where = ("--in-dir", str(source), "--out-dir", str(text))
    assert run_command(convert, "convert", "to-parmetis", *where) == 0
    types = ("--ntypes", ",".join(graph.ntypes), "--etypes", ",".join(graph.etypes))
    back = ("--in-dir", str(text), "--stem", graph.name, "--out-dir", str(again), *types)
    assert run_command(convert, "convert", "from-parmetis", *back) == 0
    assert ChunkedGraph.load(again).num_nodes == graph.num_nodes
    of_all = [f"{node} {node * 3 % line.parts}\n" for node in range(sum(graph.num_nodes))]
    (line.folder / "part").write_text("".join(reversed(of_all)))
    chosen = ("--part-file", str(line.folder / "part"), "--num-parts", str(line.parts))
    where = ("--in-dir", str(source), "--out-dir", str(source / "parts"))
    assert run_command(convert, "convert", "from-part-file", *where, *chosen) == 0


BACKENDS = {
    "random": pytest.param(by_command("random")),
    "metis": pytest.param(by_command("metis"), marks=NEEDS_METIS),
    "kaminpar": pytest.param(by_command("kaminpar"), marks=NEEDS_KAMINPAR),
    "user": pytest.param(by_the_user),
    "parmetis-text": pytest.param(by_text),
    "random-on-ranks": pytest.param(by_ranks("random")),
    "user-on-ranks": pytest.param(by_the_user_on_ranks),
    "streaming": pytest.param(by_ranks("streaming")),
}
ON_RANKS = {name: BACKENDS[name] for name in ("random-on-ranks", "user-on-ranks", "streaming")}


def nodes_of(graph: ChunkedGraph) -> Iterator[tuple[str, int]]:
    """Node types and their numbers of nodes."""
    return zip(graph.ntypes, graph.num_nodes, strict=True)


@pytest.fixture(scope="module")
def loader() -> Iterator[DglLoader]:
    """DGL takes seconds to start."""
    with dgl_loader() as found:
        yield found


GRAPHS = given(graph=user_graphs(), parts=st.integers(1, 8), ranks=st.integers(1, 8), data=st.data())


@pytest.mark.parametrize("assign", BACKENDS.values(), ids=BACKENDS)
@FEW
@GRAPHS
def test_every_row_of_the_tables_is_loaded_by_dgl_once_under_its_id(
    loader: DglLoader,
    assign: Callable[[Line], None],
    graph: UserGraph,
    parts: int,
    ranks: int,
    data: st.DataObject,
) -> None:
    """Nodes, edges, reverse edges, features, masks; whatever the formats, the ranks and the parts."""
    check(loader, assign, graph, (parts, ranks), data)


@pytest.mark.parametrize("assign", ON_RANKS.values(), ids=ON_RANKS)
@settings(FEW, max_examples=max(1, FEW.max_examples // 4))
@given(graph=user_graphs(), data=st.data())
def test_every_row_comes_through_eight_ranks_that_are_processes(
    loader: DglLoader, assign: Callable[[Line], None], graph: UserGraph, data: st.DataObject
) -> None:
    """`dglrun dispatch --ranks 8`, after an assignment and before a check on as many."""
    check(loader, assign, graph, (8, 8), data, by_processes)


@pytest.mark.mpi
@NEEDS_MPI
@pytest.mark.parametrize(
    "backend",
    [pytest.param("zoltan", marks=NEEDS_ZOLTAN), pytest.param("parmetis", marks=NEEDS_PARMETIS)],
)
@settings(FEW, max_examples=max(1, FEW.max_examples // 4))
@GRAPHS
def test_every_row_comes_through_a_back_end_that_talks_to_mpi_itself(
    loader: DglLoader, backend: str, graph: UserGraph, parts: int, ranks: int, data: st.DataObject
) -> None:
    """On ranks that mpirun starts, which takes seconds for each graph."""
    check(loader, by_mpi(backend), graph, (parts, ranks), data)


def check(
    loader: DglLoader,
    assign: Callable[[Line], None],
    graph: UserGraph,
    numbers: tuple[int, int],
    data: st.DataObject,
    dispatching: Callable[[Line, Options], None] | None = None,
) -> None:
    """Send a graph through the line; `numbers` are those of parts and ranks."""
    parts, ranks = numbers
    with TemporaryDirectory() as name:
        folder = Path(name)
        made = ("--out-dir", str(folder / "in"), "--files", str(data.draw(st.integers(1, 3))))
        layout = ("--edge-format", data.draw(st.sampled_from(("csv", "numpy", "parquet"))))
        assert run_command(chunk, "chunk", "--config", str(graph.write(folder)), *made, *layout) == 0
        nodes = sum(ChunkedGraph.load(folder / "in").num_nodes)
        line = Line(folder, min(parts, nodes), ranks)

        assign(line)
        (dispatching or by_threads)(line, options(line, data))

        assert problems(folder / "out/g.json", ranks) == []
        assert_same(graph.expected(), folder, loader.load(folder / "out/g.json"))


def options(line: Line, data: st.DataObject) -> Options:
    """In drawn formats, with or without the sums of what was read."""
    formats = data.draw(st.sampled_from((("coo",), ("csc",), ("coo", "csr", "csc"))))
    sums = data.draw(st.booleans())
    places = line.folder / "in", line.folder / "in/parts", line.folder / "out"
    return Options(*places, save_orig_nids=True, save_orig_eids=True, formats=formats, source_sums=sums)


def by_threads(line: Line, wanted: Options) -> None:
    """Dispatch on ranks that are threads."""
    on_ranks(line.ranks, lambda ranks: dispatch(wanted, ranks, lambda _: None))


def by_processes(line: Line, wanted: Options) -> None:
    """Dispatch by the command, which forks its ranks."""
    where = {
        "--in-dir": wanted.in_dir,
        "--partitions-dir": wanted.partitions_dir,
        "--out-dir": wanted.out_dir,
    }
    chosen = ("--graph-formats", ",".join(wanted.formats), *(["--source-sums"] if wanted.source_sums else []))
    words = (sys.executable, "-m", "dglrun", "dispatch", "--ranks", str(line.ranks), *chosen)
    saved = ("--save-orig-nids", "--save-orig-eids")
    flags = [str(word) for pair in where.items() for word in pair]
    ended = subprocess.run((*words, *saved, *flags), cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def assert_same(expected: Row, folder: Path, parts: list[Row]) -> None:
    """Compare what DGL has loaded with what plain Python makes of the tables, under the user's IDs."""
    keys = {ntype: mapping(folder, ntype) for ntype in expected["ids"]}
    originals = {t: joined(parts, "nids", t) for t in expected["ids"]}
    assert {t: sorted(each) for t, each in originals.items()} == {
        t: list(range(len(each))) for t, each in expected["ids"].items()
    }
    for ntype, features in expected["data"].items():
        for feature, rows in features.items():
            got = joined(parts, "nfeats", f"{ntype}/{feature}")
            pairs = [(keys[ntype][at], value) for at, value in zip(originals[ntype], got, strict=True)]
            assert dict(pairs) == dict(zip(expected["ids"][ntype], rows, strict=True))
            if feature == "kind":
                assert under_their_ids(folder, ntype, got) == dict(pairs)
    names = {ntype: [keys[ntype][at] for at in each] for ntype, each in originals.items()}
    assert Counter(edges_loaded(folder, parts, names)) == Counter(edges_expected(expected))


def joined(parts: list[Row], kind: str, name: str) -> list[Any]:
    """A tensor of all parts, in their order."""
    return [row for part in parts for row in part[kind][name]]


def mapping(folder: Path, ntype: str) -> list[Any]:
    """The user's ID of each node of the chunked graph."""
    found: list[Any] = pq.read_table(folder / f"in/mapping/{ntype}.parquet")["id"].to_pylist()
    return found


def under_their_ids(folder: Path, ntype: str, values: list[int]) -> dict[Any, int]:
    """`dglrun ids` on values in the order of the partition."""
    np.save(folder / "values.npy", np.array(values))
    named = ("--mapping", str(folder / f"in/mapping/{ntype}.parquet"), "--values", str(folder / "values.npy"))
    out = ("--out", str(folder / "values.parquet"), "--partition", str(folder / "out/g.json"))
    assert run_command(ids, "ids", *named, *out, "--ntype", ntype) == 0
    found = pq.read_table(folder / "values.parquet").to_pydict()
    return dict(zip(found["id"], found["value"], strict=True))


def edges_loaded(folder: Path, parts: list[Row], names: dict[str, list[Any]]) -> Iterator[tuple[Any, ...]]:
    """Relation, user's IDs of both ends, feature and original number of each edge that a part owns."""
    described = json.loads((folder / "out/g.json").read_text())
    ntypes, etypes = list(described["ntypes"]), list(described["etypes"])
    for part in parts:
        seen: Counter[str] = Counter()
        columns = zip(*(zip(*part[name], strict=True) for name in ("edge", "src", "dst")), strict=True)
        for (kind, _), (src_type, src), (dst_type, dst) in columns:
            etype = etypes[kind]
            ends = ntypes[src_type], ntypes[dst_type]
            assert ends == (etype.split(":")[0], etype.split(":")[2])
            at, seen[etype] = seen[etype], seen[etype] + 1
            weight, number = part["efeats"][f"{etype}/w"][at], part["eids"][etype][at]
            yield etype, names[ends[0]][src], names[ends[1]][dst], weight, number


def edges_expected(expected: Row) -> Iterator[tuple[Any, ...]]:
    """The same by plain Python: the number is that of the row in the user's table."""
    for etype, pairs in expected["edges"].items():
        src_type, _, dst_type = etype.split(":")
        of_src, of_dst = expected["ids"][src_type], expected["ids"][dst_type]
        for number, ((src, dst), weight) in enumerate(zip(pairs, expected["w"][etype], strict=True)):
            yield etype, of_src[src], of_dst[dst], weight, number
