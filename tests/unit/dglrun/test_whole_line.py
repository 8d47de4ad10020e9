"""From tables to what DGL loads: every back end, 1 to 8 ranks, all is there once under the user's IDs.

`pytest --hypothesis-profile=long` on this file draws a hundred graphs for each back end.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from dglrun.commands import chunk, convert, dgl_api, ids, partition, partition_rank, verify
from dglrun.dispatch.pipeline import dispatch
from dglrun.dispatch.source import Options
from dglrun.formats import assignment
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.partitioning.distributed import rank_main
from tests.support.commands import run_command, run_program
from tests.support.dgl_loader import DglLoader, dgl_loader
from tests.support.few_examples import by_chance
from tests.support.needs import (
    NEEDS_DUCKDB,
    NEEDS_KAMINPAR,
    NEEDS_METIS,
    NEEDS_MPI,
    NEEDS_PARMETIS,
    NEEDS_ZOLTAN,
)
from tests.support.thread_ranks import on_ranks
from tests.support.user_tables import Row, UserGraph, UserTable, user_graphs
from tests.unit.dglrun.partitioning.builders import a_pm_dglpart
from tests.unit.dglrun.partitioning.builders import partition as partition_by_mpi
from tests.unit.dglrun.verify.test_distributed import problems

pytestmark = [NEEDS_DUCKDB, pytest.mark.dgl]

FEW = settings(
    max_examples=max(2, settings().max_examples // 50),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # a try takes seconds: no search for a smaller one
)
"""Two graphs for each back end in the gate, by another profile more."""
FEWER = settings(FEW, max_examples=max(1, FEW.max_examples // 4))
"""For what starts processes."""


@dataclass(frozen=True)
class Forms:
    """What a line is free to choose: files and format of the edges, formats and sums of the parts."""

    files: int
    edges: str
    parts: tuple[str, ...]
    sums: bool


@dataclass(frozen=True)
class Line:
    """A graph on its way: `in` is the chunked graph, `in/parts` the assignment, `out` the partition."""

    folder: Path
    parts: int
    ranks: int
    forms: Forms

    @property
    def places(self) -> tuple[str, ...]:
        """Where a partitioner reads and writes, as flags."""
        return ("--in-dir", str(self.folder / "in"), "--out-dir", str(self.folder / "in/parts"))

    def partition(self, *flags: str) -> None:
        """`dglrun partition` in this process."""
        assert run_command(partition, "partition", *self.places, "--num-parts", str(self.parts), *flags) == 0

    def dispatch(self) -> None:
        """On as many ranks, which are threads."""
        wanted = Options(
            in_dir=self.folder / "in",
            partitions_dir=self.folder / "in/parts",
            out_dir=self.folder / "out",
            save_orig_nids=True,
            save_orig_eids=True,
            formats=self.forms.parts,
            source_sums=self.forms.sums,
        )
        on_ranks(self.ranks, lambda ranks: dispatch(wanted, ranks, lambda _: None))


def by_command(backend: str) -> Callable[[Line], None]:
    """A back end of one process."""
    return lambda line: line.partition("--backend", backend)


def by_ranks(backend: str, *more: str) -> Callable[[Line], None]:
    """What each worker of DistParMETIS runs, on ranks that are threads."""

    def assign(line: Line) -> None:
        chosen = ("--metadata-filename", "metadata.json", "--backend", backend, "--seed", "7")
        weights = ("--num-parts", str(line.parts), "--balance", "types,edges", "--imbalance", "1.05")
        args = partition_rank._parser().read([*line.places, *chosen, *weights, *more])
        on_ranks(line.ranks, lambda ranks: rank_main.run(ranks, args))  # type: ignore[arg-type]

    return assign


def by_mpi(backend: str) -> Callable[[Line], None]:
    """A library that talks to MPI itself."""
    return lambda line: partitioned_by_mpi(line, backend)


def by_pm_dglpart(arguments: int) -> Callable[[Line], None]:
    """A stand-in for one of the two programs of this name."""
    return lambda line: partitioned_by_mpi(line, "pm_dglpart", str(a_pm_dglpart(line.folder, arguments)))


def partitioned_by_mpi(line: Line, backend: str, path: str = "") -> None:
    """`dglrun partition` as a process of its own; `path` comes first on PATH."""
    flags = ("--mode", "ParMETIS", "--backend", backend, "--num-parts", str(line.parts))
    places, ranks = (line.folder / "in", line.folder / "in/parts"), ("--ranks", str(line.ranks))
    ended = partition_by_mpi(*places, *flags, *ranks, path=path)
    assert ended.returncode == 0, ended.stderr


def by_the_user(line: Line) -> None:
    """Files that somebody else has written."""
    line.partition("--backend", "user", "--assignment", brought(line))


def by_the_user_on_ranks(line: Line) -> None:
    """The same, each rank its share of every file."""
    by_ranks("user", "--assignment", brought(line))(line)


def brought(line: Line) -> str:
    """The folder of an assignment of the user's own, in any order of parts."""
    graph = ChunkedGraph.load(line.folder / "in")
    mine = {t: (np.arange(n) * 5 % line.parts).astype(np.uint16) for t, n in nodes_of(graph)}
    assignment.write(line.folder / "mine", graph, mine, assignment.AssignmentMeta(line.parts, "mine"))
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
    assert run_command(convert, "convert", "from-part-file", *line.places, *chosen) == 0


BACKENDS = {
    "random": pytest.param(by_command("random")),
    "metis": pytest.param(by_command("metis"), marks=NEEDS_METIS),
    "kaminpar": pytest.param(by_command("kaminpar"), marks=NEEDS_KAMINPAR),
    "user": pytest.param(by_the_user),
    "parmetis-text": pytest.param(by_text),
}
ON_RANKS = {
    "random-on-ranks": pytest.param(by_ranks("random")),
    "user-on-ranks": pytest.param(by_the_user_on_ranks),
    "streaming": pytest.param(by_ranks("streaming")),
}
BY_MPI = {
    "zoltan": pytest.param(by_mpi("zoltan"), marks=NEEDS_ZOLTAN),
    "parmetis": pytest.param(by_mpi("parmetis"), marks=NEEDS_PARMETIS),
    "pm_dglpart of pieces": by_pm_dglpart(3),
    "pm_dglpart of lists": by_pm_dglpart(5),
}
"""The last two are stand-ins with the files of either program of that name."""


def nodes_of(graph: ChunkedGraph) -> Iterator[tuple[str, int]]:
    """Node types and their numbers of nodes."""
    return zip(graph.ntypes, graph.num_nodes, strict=True)


@pytest.fixture(scope="module")
def loader() -> Iterator[DglLoader]:
    """DGL takes seconds to start."""
    with dgl_loader() as found:
        yield found


FORMS = st.builds(
    Forms,
    st.integers(1, 3),
    st.sampled_from(("csv", "numpy", "parquet")),
    st.sampled_from((("coo",), ("csc",), ("coo", "csr", "csc"))),
    st.booleans(),
)
GRAPHS = given(graph=by_chance(user_graphs()), parts=st.integers(1, 8), ranks=st.integers(1, 8), forms=FORMS)


def of_eight() -> UserGraph:
    """A graph of which eight parts can have some of each type each, and eight ranks a share of each file."""
    people = [
        {"key": f"who {at}", "x": at / 4, "y": None if at % 3 else -1.0, "c": "ab"[at % 2], "split": "train"}
        for at in range(40)
    ]
    likes = [{"s": f"who {at % 40}", "d": (at * 7 + at // 40) % 24 - 9, "w": at} for at in range(160)]
    near = [{"s": at % 24 - 9, "d": (at * 5 + at // 24) % 24 - 9, "w": -at} for at in range(120)]
    edges = {"t0:likes:t1": UserTable(likes, "parquet", 3), "t1:near:t1": UserTable(near, "csv", 2)}
    nodes = {"t0": UserTable(people, "csv", 2)}
    return UserGraph({"t0": "string", "t1": "integer"}, nodes, edges, {"t0:likes:t1"})


FORMS_OF_EIGHT = Forms(3, "numpy", ("coo", "csc"), sums=True)
ON_EIGHT = example(graph=of_eight(), parts=8, ranks=8, forms=FORMS_OF_EIGHT)


@pytest.mark.parametrize("assign", BACKENDS.values(), ids=BACKENDS)
@FEW
@GRAPHS
def test_every_row_of_the_tables_is_loaded_by_dgl_once_under_its_id(
    loader: DglLoader, assign: Callable[[Line], None], graph: UserGraph, parts: int, ranks: int, forms: Forms
) -> None:
    """Nodes, edges, reverse edges, features, masks; whatever the formats, the ranks and the parts."""
    with line_of(graph, parts, ranks, forms) as line:
        check(loader, assign, line, graph)


@pytest.mark.parametrize("assign", ON_RANKS.values(), ids=ON_RANKS)
@FEW
@GRAPHS
@ON_EIGHT
def test_every_row_comes_through_a_back_end_on_ranks(
    loader: DglLoader, assign: Callable[[Line], None], graph: UserGraph, parts: int, ranks: int, forms: Forms
) -> None:
    """Mode DistParMETIS: of any number, and of eight."""
    with line_of(graph, parts, ranks, forms) as line:
        check(loader, assign, line, graph)


@pytest.mark.mpi
@NEEDS_MPI
@pytest.mark.parametrize("assign", BY_MPI.values(), ids=BY_MPI)
@FEWER
@given(graph=by_chance(user_graphs()), parts=st.integers(1, 8), ranks=st.integers(1, 3), forms=FORMS)
@ON_EIGHT
def test_every_row_comes_through_a_back_end_that_talks_to_mpi_itself(
    loader: DglLoader, assign: Callable[[Line], None], graph: UserGraph, parts: int, ranks: int, forms: Forms
) -> None:
    """On ranks that mpirun starts, which takes seconds for each graph; pm_dglpart is one of them."""
    with line_of(graph, parts, ranks, forms) as line:
        check(loader, assign, line, graph)


# DGL leaves /proc/self/status open.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@FEW
@GRAPHS
def test_every_row_comes_through_dgls_random_partition(
    loader: DglLoader, graph: UserGraph, parts: int, ranks: int, forms: Forms
) -> None:
    """Mode DGL-API, where one program assigns and writes."""
    with line_of(graph, parts, ranks, forms) as line:
        assert dgl_api.main([*of_dgl_api(line), "--method", "random"]) == 0

        assert_source_kept(loader, line, graph)


@FEWER
@given(parts=st.integers(1, 8), ranks=st.integers(1, 8), forms=by_chance(FORMS))
@example(parts=8, ranks=8, forms=FORMS_OF_EIGHT)
def test_every_row_comes_through_dgls_metis(loader: DglLoader, parts: int, ranks: int, forms: Forms) -> None:
    """The default of mode DGL-API.

    On a graph without parallel edges: METIS, as DGL calls it (so does `dgl.metis_partition_assignment`),
    writes behind its memory for some graphs of a few nodes that have them. So it has a process of its own.
    """
    with line_of(of_eight(), parts, ranks, forms) as line:
        run_python("-m", "dglrun.commands.dgl_api", *of_dgl_api(line), "--method", "metis")

        assert_source_kept(loader, line, of_eight())


def check(loader: DglLoader, assign: Callable[[Line], None], line: Line, graph: UserGraph) -> None:
    """Send a line's graph through the back end and dispatch, and hold what comes out against its tables."""
    assign(line)
    line.dispatch()

    assert problems(line.folder / "out/g.json", line.ranks) == []
    assert_same(graph.expected(), line.folder, loader.load(line.folder / "out/g.json"))


def of_dgl_api(line: Line) -> tuple[str, ...]:
    """What the program of mode DGL-API is told of a line."""
    places = ("--in-dir", str(line.folder / "in"), "--out-dir", str(line.folder / "out"))
    return (*places, "--num-parts", str(line.parts))


def assert_source_kept(loader: DglLoader, line: Line, graph: UserGraph) -> None:
    """Hold the parts against their source, as no assignment of them is left."""
    part_config = line.folder / "out/g.json"
    assert run_command(verify, "verify", str(part_config), "--in-dir", str(line.folder / "in")) == 0
    assert problems(part_config, line.ranks, is_assigned=False) == []
    assert_same(graph.expected(), line.folder, loader.load(part_config))


VERIFY = """
import sys
from dglrun.mpi import mpirun
program = (sys.executable, "-m", "mpi4py", "-m", "dglrun.commands.validate_parts", *sys.argv[2:])
sys.exit(mpirun.run(mpirun.argv(mpirun.Job(program, int(sys.argv[1]))), 120))
"""


@pytest.mark.mpi
@NEEDS_MPI
def test_every_row_comes_through_real_processes_on_eight_ranks(loader: DglLoader) -> None:
    """Dispatch forks its ranks, mpirun starts those that verify, by the sums of dispatch or not."""
    graph = of_eight()
    with line_of(graph, 8, 8, FORMS_OF_EIGHT) as line:
        by_command("random")(line)
        out, numbers = line.folder / "out", line.folder / "numbers.json"
        read = ("--in-dir", str(line.folder / "in"), "--partitions-dir", str(line.folder / "in/parts"))
        kept = ("--save-orig-nids", "--save-orig-eids", "--source-sums", "--graph-formats", "coo,csc")

        done = run_python("-m", "dglrun", "dispatch", *read, "--out-dir", str(out), "--ranks", "8", *kept)

        assert "graphs written" in done
        written = ("--json", str(numbers), "--limit", str(1 << 30))
        for how, against in (("auto", "what dispatch read of the source"), ("always", "the source")):
            verified = run_python("-c", VERIFY, "8", str(out / "g.json"), *read, *written, "--verify", how)
            assert f"8 parts: verified against {against}" in verified
            found = json.loads(numbers.read_text())
            assert (found["numParts"], found["verified"]) == (8, True)
            numbers.unlink()
        assert_same(graph.expected(), line.folder, loader.load(out / "g.json"))


def run_python(*argv: str) -> str:
    """What a process says that ends well."""
    done = run_program((sys.executable, *argv), seconds=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def line_of(graph: UserGraph, parts: int, ranks: int, forms: Forms) -> Iterator[Line]:
    """A line of which the chunked graph is there; of no more parts than it has nodes."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        made = ("--out-dir", str(folder / "in"), "--files", str(forms.files), "--edge-format", forms.edges)
        assert run_command(chunk, "chunk", "--config", str(graph.write(folder)), *made) == 0
        nodes = sum(ChunkedGraph.load(folder / "in").num_nodes)
        yield Line(folder, min(parts, nodes), ranks, forms)


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
