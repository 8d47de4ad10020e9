"""A chunked graph of a user's tables: read each table once, join the IDs, write graph and mappings."""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dglrun.arrays import Array
from dglrun.errors import DataError
from dglrun.formats import output_folder
from dglrun.formats.chunked import names, parquetfile, read, write
from dglrun.formats.chunked.metadata import ChunkedGraph, Dialect
from dglrun.formats.chunked.stored_rows import StoredRows
from dglrun.formats.chunked.table import PARQUET, FileSpec
from dglrun.formats.tables import rows_pass
from dglrun.formats.tables.config import SPLITS, TableConfig, TablesConfig, reverse_of
from dglrun.formats.tables.ids import Joins
from dglrun.formats.tables.rows_pass import Column, Passed
from dglrun.formats.tables.sources import TableFiles, find, parquet_writer

PREFIX = f"{output_folder.HIDDEN}tables-"
"""Of the working folder's name: hidden, so that what a killed run leaves is no user's file."""
MAPPING, CATEGORIES = "mapping", "categories"
_BLOCK_ROWS = 1 << 16
Stage = Callable[[str], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Layout:
    """How the chunked graph is written; see `write.graph`.

    Attributes:
        edges: Format of the edge files.
        features: Format of the feature files.
        files: For each table.
        dialect: Counts in metadata.json.
    """

    edges: str = PARQUET
    features: str = "numpy"
    files: int = 1
    dialect: Dialect = Dialect.BOTH


@dataclass(frozen=True)
class Tables:
    """The tables of a config with their files, seen to have the columns that are asked for.

    Attributes:
        config: What is wanted.
        nodes: Files by node type; a type without files is not in it.
        edges: Files by edge type.
    """

    config: TablesConfig
    nodes: Mapping[str, TableFiles]
    edges: Mapping[str, TableFiles]

    @staticmethod
    def find(config: TablesConfig) -> "Tables":
        """Look for the files, and at their columns.

        Raises:
            DataError: a name that DGL cannot load, a file or a column that is not there.
        """
        if problem := _names_problem(config):
            raise DataError(problem)
        nodes = {t: find(each) for t, each in config.nodes.items() if each.files}
        edges = {t: find(each) for t, each in config.edges.items()}
        for ntype, source in nodes.items():
            table = config.nodes[ntype]
            source.require([str(table.id), *rows_pass.wanted_by(table)])
        for etype, source in edges.items():
            relation = config.edges[etype]
            source.require([relation.src, relation.dst, *rows_pass.wanted_by(relation)])
        return Tables(config, nodes, edges)


def _names_problem(config: TablesConfig) -> str | None:
    etypes = (*config.edges, *map(reverse_of, config.reversed))
    node_data = {t: _features(each) for t, each in config.nodes.items()}
    edge_data = {t: _features(each) for t, each in config.edges.items()}
    edge_data |= {reverse_of(t): list(config.edges[t].features) for t in config.reversed}
    return names.problem(config.name, tuple(config.nodes), etypes, node_data, edge_data)


def _features(table: TableConfig) -> list[str]:
    masks = [f"{split}_mask" for split in SPLITS] if table.masks is not None else []
    return [*table.features, *masks]


def build(tables: Tables, out_dir: Path, layout: Layout, stage: Stage) -> ChunkedGraph:
    """Write the chunked graph, with `mapping/<node type>.parquet` (columns `id` and `node`) and categories.

    Args:
        tables: From `Tables.find`.
        out_dir: The folder; another run's output in it is replaced when the new one is whole.
        layout: Formats.
        stage: Shows that a stage of this name runs.

    Raises:
        DataError: a value is not what it must be, or the output cannot be written; nothing is left then.
        BackendMissingError: DuckDB is not installed.
        BackendFailedError: DuckDB failed.
    """
    with _work_folder(out_dir) as work:
        with closing(Joins(work, tables.config.memory_mib)) as joins:
            run = _Run(tables, work, joins, stage)
            run.read_nodes()
            run.read_edges()
            pa.default_memory_pool().release_unused()  # DuckDB has memory of its own
            run.add_unlisted()
            run.join()
        with stage("writing"):
            return run.write(out_dir, layout)


@contextmanager
def _work_folder(out_dir: Path) -> Iterator[Path]:
    with output_folder.reserved(out_dir):
        output_folder.recover(out_dir)
        for left in out_dir.glob(f"{PREFIX}*"):  # of a killed run: this one holds the folder
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=PREFIX, dir=out_dir) as work:
            yield Path(work).absolute()


@dataclass
class _Run:
    """One build, stage after stage."""

    tables: Tables
    work: Path
    joins: Joins
    stage: Stage
    nodes: dict[str, Passed] = field(default_factory=dict)
    edges: dict[str, Passed] = field(default_factory=dict)
    added: dict[str, int] = field(default_factory=dict)
    mappings: dict[str, Path] = field(default_factory=dict)
    ends: dict[str, Path] = field(default_factory=dict)

    @property
    def config(self) -> TablesConfig:
        return self.tables.config

    def read_nodes(self) -> None:
        for at, (ntype, source) in enumerate(self.tables.nodes.items()):
            table = self.config.nodes[ntype]
            with self.stage(f"reading {ntype}"):
                column = Column(str(table.id), table.ids, "id")
                stem = self.work / f"nodes-{at}"
                passed = self.nodes[ntype] = rows_pass.run(ntype, source, table, [column], stem)
                self._refuse_duplicates(passed)

    def _refuse_duplicates(self, passed: Passed) -> None:
        if twice := self.joins.duplicate(passed.ids):
            first, second = map(passed.place, twice)
            name = _value(passed.ids, "id", twice[0])
            raise DataError(f"{second}: node {name!r} of {passed.what} is there already: {first}")

    def read_edges(self) -> None:
        for at, (etype, source) in enumerate(self.tables.edges.items()):
            table, (src, _, dst) = self.config.edges[etype], etype.split(":")
            with self.stage(f"reading {etype}"):
                columns = [
                    Column(table.src, self.config.nodes[src].ids, "src"),
                    Column(table.dst, self.config.nodes[dst].ids, "dst"),
                ]
                stem = self.work / f"edges-{at}"
                self.edges[etype] = rows_pass.run(etype, source, table, columns, stem)

    def add_unlisted(self) -> None:
        """Make the mapping of each node type: the rows of its table, then nodes that edges alone name."""
        for at, (ntype, nodes) in enumerate(self.config.nodes.items()):
            with self.stage(f"mapping {ntype}"):
                listed, unlisted = self.nodes.get(ntype), self.work / f"unlisted-{at}"
                ends = self._ends_of(ntype)
                if ends and (listed is None or nodes.unlisted == "add"):
                    self.joins.unlisted(ends, None if listed is None else listed.ids, unlisted)
                self.mappings[ntype] = self.work / f"mapping-{at}"
                sources = [each for each in (listed and listed.ids, unlisted) if each and each.exists()]
                self.added[ntype] = _write_mapping(self.mappings[ntype], sources, nodes.ids)
                self.added[ntype] -= listed.rows if listed else 0

    def _ends_of(self, ntype: str) -> list[tuple[Path, str]]:
        """The columns of edges that name nodes of a type."""
        found = []
        for etype, passed in self.edges.items():
            src, _, dst = etype.split(":")
            found += [(passed.ids, name) for name, end in (("src", src), ("dst", dst)) if end == ntype]
        return found

    def join(self) -> None:
        for at, (etype, passed) in enumerate(self.edges.items()):
            src, _, dst = etype.split(":")
            with self.stage(f"joining {etype}"):
                self.ends[etype] = self.work / f"ends-{at}"
                self.joins.numbers(passed.ids, self.mappings[src], self.mappings[dst], self.ends[etype])
                self._refuse_unlisted(etype, passed)

    def _refuse_unlisted(self, etype: str, passed: Passed) -> None:
        found = self.joins.first_without_node(passed.ids, self.ends[etype])
        if found is None:
            return
        row, end, name = found
        src, _, dst = etype.split(":")
        ntype = src if end == "src" else dst
        column = getattr(self.config.edges[etype], end)
        files = ", ".join(self.config.nodes[ntype].files)
        raise DataError(
            f"{passed.place(row)}: column {column!r}: expected a node of {ntype} ({files}), got {name!r}; "
            f"`unlisted: add` of {ntype} adds such nodes"
        )

    def write(self, out_dir: Path, layout: Layout) -> ChunkedGraph:
        counts = {ntype: pq.ParquetFile(path).metadata.num_rows for ntype, path in self.mappings.items()}
        edges = {etype: self._edge_rows(etype, is_reverse=False) for etype in self.edges}
        edges |= {
            reverse_of(etype): self._edge_rows(etype, is_reverse=True) for etype in self.config.reversed
        }
        node_data = {t: self._data(at, t, each) for at, (t, each) in enumerate(self.nodes.items())}
        edge_data = {
            t: self._data(len(counts) + at, t, each) for at, (t, each) in enumerate(self.edges.items())
        }
        edge_data |= {reverse_of(t): self._without_masks(t, edge_data[t]) for t in self.config.reversed}
        return write.graph(
            out_dir, self.config.name, counts, _arrays(edges),
            {t: _arrays(each) for t, each in node_data.items() if each},
            {t: _arrays(each) for t, each in edge_data.items() if each},
            layout=layout.edges, feature_layout=layout.features, files=layout.files, dialect=layout.dialect,
            beside=self._write_beside,
        )  # fmt: skip

    def _data(self, number: int, kind: str, passed: Passed) -> dict[str, StoredRows]:
        return passed.features(self.added.get(kind, 0), [self.config.seed, number])

    def _without_masks(self, etype: str, data: Mapping[str, StoredRows]) -> dict[str, StoredRows]:
        return {name: rows for name, rows in data.items() if name in self.config.edges[etype].features}

    def _edge_rows(self, etype: str, *, is_reverse: bool) -> StoredRows:
        spec = FileSpec(PARQUET, (self.ends[etype],))

        def rows(start: int, stop: int) -> Array:
            blocks = [np.stack(pair, axis=1) for pair in read.edge_blocks(spec, start, stop)]
            found = np.concatenate(blocks) if blocks else np.zeros((0, 2), np.int64)
            return found[:, ::-1] if is_reverse else found

        return StoredRows(rows, 0, self.edges[etype].rows, (2,), np.dtype(np.int64))

    def _write_beside(self, draft: Path) -> None:
        """The mappings of IDs and the names of categories, and the file that names them."""
        (draft / MAPPING).mkdir()
        mappings = {ntype: f"{MAPPING}/{ntype}.parquet" for ntype in self.mappings}
        for ntype, name in mappings.items():
            self.mappings[ntype].replace(draft / name)
        categories: dict[str, dict[str, str]] = {}
        for at, passed in enumerate((*self.nodes.values(), *self.edges.values())):
            for feature, words in passed.categories().items():
                name = f"{CATEGORIES}/{at}-{feature}.parquet"
                _write_categories(draft / name, words)
                categories.setdefault(passed.what, {})[feature] = name
        files = [*mappings.values(), *(name for each in categories.values() for name in each.values())]
        described = {MAPPING: mappings, CATEGORIES: categories, "files": files}
        (draft / write.BESIDE).write_text(json.dumps(described, indent=1) + "\n")


def _write_categories(path: Path, words: list[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    numbers = pa.array(range(len(words)), pa.int64())
    pq.write_table(pa.table([pa.array(words, pa.string()), numbers], names=["category", "number"]), path)


def _arrays(rows: Mapping[str, StoredRows]) -> dict[str, Array]:
    """What the writer takes for arrays: it slices them, and makes arrays of the slices."""
    return cast(dict[str, Array], dict(rows))


def _write_mapping(path: Path, sources: list[Path], ids: str) -> int:
    """Number the IDs of files, one after another; returns how many there are."""
    kind = pa.int64() if ids == "integer" else pa.string()
    schema, row = pa.schema([("id", kind), ("node", pa.int64())]), 0
    with parquet_writer(path, schema) as writer:
        for source in sources:
            for batch in parquetfile.open_file(source).iter_batches(
                _BLOCK_ROWS, columns=["id"], use_threads=False
            ):
                numbers = pa.array(np.arange(row, row + len(batch)))
                writer.write_batch(
                    pa.RecordBatch.from_arrays([batch.column(0).cast(kind), numbers], schema=schema)
                )
                row += len(batch)
    return row


def _value(path: Path, column: str, row: int) -> Any:
    """One value of a file of IDs."""
    (batch,) = parquetfile.columns(path, row, row + 1, 1)
    return batch[pq.ParquetFile(path).schema_arrow.names.index(column)][0].as_py()
