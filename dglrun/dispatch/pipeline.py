"""Dispatch from end to end, as one rank sees it."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dglrun.arrays import Array, Ints, share
from dglrun.dispatch import checkpoint, features, graphbolt, node_map, part_config
from dglrun.dispatch.edges import EdgeReader, Edges, Index
from dglrun.dispatch.shuffle import Owners, block_rows
from dglrun.dispatch.write_partition import PartGraph
from dglrun.errors import DataError
from dglrun.formats import assignment_shares
from dglrun.formats.assignment import META, AssignmentMeta, load_meta
from dglrun.formats.chunked import read
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.chunked.table import FileSpec
from dglrun.formats.dgl.arrays import ArrayFile, ArraySpec
from dglrun.formats.dgl.partition_book import Ranges
from dglrun.formats.dgl.tensors import tensor_file
from dglrun.mpi.collectives import Ranks, run_on_all_ranks

_GRAPH, _NODE, _EDGE, _NIDS, _BOLT = "graph", "node", "edge", "orig_nids", "graphbolt"


@dataclass(frozen=True)
class Options:
    """What the command line says.

    Attributes:
        in_dir: Folder of the chunked graph.
        partitions_dir: Folder of the assignment.
        out_dir: Folder of the result.
        metadata_filename: Name of metadata.json in `in_dir`.
        ip_config: DGL's file of machines, one a line; the number of parts must be a multiple of them.
        save_orig_nids: Whether orig_nids.dgl stays.
        save_orig_eids: Whether orig_eids.dgl stays.
        formats: Some of coo, csr, csc.
        use_graphbolt: Whether GraphBolt's form is written too (needs dgl 2.1).
        table_bytes: Node tables up to this size are kept whole on every rank.
    """

    in_dir: Path
    partitions_dir: Path
    out_dir: Path
    metadata_filename: str = "metadata.json"
    ip_config: Path | None = None
    save_orig_nids: bool = False
    save_orig_eids: bool = False
    formats: tuple[str, ...] = ("coo",)
    use_graphbolt: bool = False
    table_bytes: int = node_map.WHOLE_TABLE_BYTES


@dataclass(frozen=True)
class Source:
    """The checked input.

    Attributes:
        graph: The chunked graph.
        meta: What the assignment's partition_meta.json says.
        index: Rows of every file of every table.
        infos: dtype and row shape of each feature, by `node` or `edge`, type and name.
    """

    graph: ChunkedGraph
    meta: AssignmentMeta
    index: Index
    infos: Mapping[tuple[str, str, str], read.FeatureInfo]


def dispatch(options: Options, ranks: Ranks, say: Callable[[str], None]) -> None:
    """Make the partition folder; collective.

    Nothing is written before all input but the features' values has been read and found good; the
    result appears whole at the end.

    Args:
        options: What to do.
        ranks: The processes.
        say: Takes a line of progress for people.

    Raises:
        DataError: the input is bad; the same error on every rank.
    """
    started = time.monotonic()
    source = load_source(options, ranks)
    say(f"{source.graph.name}: {source.meta.num_parts} parts on {ranks.size} ranks")
    Dispatch(options, source, ranks, say).run()
    say(f"done in {time.monotonic() - started:.1f} s")


def load_source(options: Options, ranks: Ranks) -> Source:
    """Read the metadata and count the rows of all files, each file by one rank; collective.

    Raises:
        DataError: see `dispatch`.
    """
    graph = run_on_all_ranks(ranks, lambda: ChunkedGraph.load(options.in_dir, options.metadata_filename))
    run_on_all_ranks(ranks, lambda: _refuse_overwriting(options, graph))
    meta = run_on_all_ranks(ranks, lambda: load_meta(options.partitions_dir))
    run_on_all_ranks(ranks, lambda: part_config.check_machines(options.ip_config, meta.num_parts))
    tables = graph.tables()
    files = [(spec, path) for spec, _ in tables.values() for path in spec.paths]
    own = run_on_all_ranks(
        ranks, lambda: [read.index_file(path, spec) for spec, path in files[ranks.rank :: ranks.size]]
    )
    shared = ranks.gather(own)
    indexed = [shared[at % ranks.size][at // ranks.size] for at in range(len(files))]
    index: dict[FileSpec, list[Any]] = {spec: [] for spec, _ in tables.values()}
    for (spec, _), found in zip(files, indexed, strict=True):
        if len(index[spec]) < len(spec.paths):
            index[spec].append(found)
    run_on_all_ranks(ranks, lambda: part_config.check_rows(tables, index))
    return Source(graph, meta, index, run_on_all_ranks(ranks, lambda: _feature_infos(graph)))


def _refuse_overwriting(options: Options, graph: ChunkedGraph) -> None:
    """The parts' description must not take the place of the graph's own."""
    source = (options.in_dir / options.metadata_filename).resolve()
    for name in part_config.filenames(graph.name):
        if (options.out_dir / name).resolve() == source:
            raise DataError(
                f"--out-dir {options.out_dir}: {name} there is the input's metadata; name another"
            )


def _feature_infos(graph: ChunkedGraph) -> dict[tuple[str, str, str], read.FeatureInfo]:
    return {
        (kind, owner, name): read.feature_info(spec)
        for kind, data in ((_NODE, graph.node_data), (_EDGE, graph.edge_data))
        for owner, found in data.items()
        for name, spec in found.items()
    }


class Dispatch:
    """One dispatch on one rank: stages in order, finished ones skipped."""

    def __init__(self, options: Options, source: Source, ranks: Ranks, say: Callable[[str], None]) -> None:
        self.options = options
        self.graph = source.graph
        self.source = source
        self.ranks = ranks
        self.say = say
        self.owners = Owners(source.meta.num_parts, ranks.size)
        self.owned = self.owners.owned(ranks.rank)
        self.edge_parts: dict[int, Array] = {}
        self.edge_reader: EdgeReader | None = None

    def run(self) -> None:
        """Do what is not finished, then publish; collective."""
        self.nodes = node_map.read_nodes(
            self.graph, self.options.partitions_dir, self.owners.parts, self.ranks
        )
        self.say("assignment read")
        self.work = checkpoint.load_checkpoint(self.options.out_dir, self.ranks.rank, self._fingerprint())
        common = self._finished_everywhere()
        edges = None if _GRAPH in common else self._read_edges()
        self._begin(common)
        self.sent = self._write_graphs(edges) if edges else self._sent_before()
        del edges
        self._write_orig_nids()
        self._write_features(_NODE, "node_feat.dgl", self.graph.node_data)
        self._write_features(_EDGE, "edge_feat.dgl", self.graph.edge_data)
        self._write_graphbolt()
        self._publish()

    def _fingerprint(self) -> str:
        options = self.options
        files = [options.in_dir / options.metadata_filename, options.partitions_dir / META]
        files += [
            assignment_shares.assignment_file(options.partitions_dir, name) for name in self.graph.ntypes
        ]
        files += [path for spec, _ in self.graph.tables().values() for path in spec.paths]
        wanted = [self.ranks.size, options.save_orig_nids, options.save_orig_eids, options.formats]
        wanted.append(options.use_graphbolt)
        return run_on_all_ranks(
            self.ranks, lambda: checkpoint.fingerprint({"format": 1, "options": wanted}, files)
        )

    def _finished_everywhere(self) -> list[str]:
        everywhere = self.ranks.gather(list(self.work.finished))
        return [stage for stage in everywhere[0] if all(stage in found for found in everywhere)]

    def _begin(self, finished: list[str]) -> None:
        """The first moment at which anything is written."""
        if finished:
            self.say(f"resumed: finished before: {', '.join(finished)}")
        self.options.out_dir.mkdir(parents=True, exist_ok=True)
        if self.ranks.rank == 0:
            checkpoint.remove_stale_ranks(self.options.out_dir, self.ranks.size)
        self.work.begin(finished)
        for part in self.owned:
            self.work.part(part).mkdir(exist_ok=True)

    def _reader(self) -> EdgeReader:
        """Made once, when first needed; collective."""
        if self.edge_reader is None:
            self.edge_reader = self._make_reader()
        return self.edge_reader

    def _make_reader(self) -> EdgeReader:
        finder = node_map.make_node_map(self.nodes, self.ranks, self.options.table_bytes)
        return EdgeReader(self.graph, self.source.index, self.nodes.ranges, finder, self.ranks, self.owners)

    def _featured(self) -> list[int]:
        """Edge types with features."""
        return [at for at, etype in enumerate(self.graph.etypes) if self.graph.edge_data.get(etype)]

    def _read_edges(self) -> Edges:
        edges = self._reader().read(self.options.save_orig_eids, self._featured())
        self.edge_parts = edges.parts
        self.say(f"{edges.ranges.total} edges read")
        return edges

    def _write_graphs(self, edges: Edges) -> Ints:
        ranges = edges.ranges
        for part in self.owned:
            found = PartGraph(part, self.nodes.ranges, ranges, edges.chunks[part])
            found.write(self.work.part(part), self.options.formats, self.options.use_graphbolt)
            if self.options.save_orig_eids:
                found.write_orig_eids(self.work.part(part) / "orig_eids.dgl", self.graph.etypes)
            del edges.chunks[part]
        self.work.finish(_GRAPH, edges.sent[self.ranks.rank].tolist())
        self.say("graphs written")
        return edges.sent

    def _sent_before(self) -> Ints:
        own = np.array(self.work.finished[_GRAPH], np.int64).reshape(self.owners.parts, -1)
        return np.stack(self.ranks.gather(own))

    def _write_orig_nids(self) -> None:
        if not self.options.save_orig_nids or _NIDS in self.work.finished:
            return
        counts = self.nodes.ranges.counts
        specs = {
            part: [ArraySpec(name, np.dtype("<i8"), (int(counts[part, at]),)) for at, name in self._ntypes()]
            for part in self.owned
        }
        with self._files("orig_nids.dgl", specs, frozenset()) as files:
            for at, name in self._ntypes():
                held = self.nodes.shares[at]
                rows = block_rows(8, self.ranks.size)
                stream = features.RowStream(
                    name, held.parts, self.nodes.sent[:, :, at], np.empty(0, np.int64)
                )
                stream.run(features.ids(held.start, held.stop, rows), files.by_part, self.ranks, self.owners)
        self.work.finish(_NIDS)

    def _ntypes(self) -> list[tuple[int, str]]:
        return list(enumerate(self.graph.ntypes))

    def _write_features(self, kind: str, filename: str, data: Mapping[str, Mapping[str, FileSpec]]) -> None:
        tables = [(owner, name, spec) for owner, found in data.items() for name, spec in found.items()]
        done = frozenset(
            f"{owner}/{name}" for owner, name, _ in tables if _stage(kind, owner, name) in self.work.finished
        )
        specs = {
            part: [self._spec(kind, part, owner, name) for owner, name, _ in tables] for part in self.owned
        }
        with self._files(filename, specs, done) as files:
            for owner, name, spec in tables:
                if f"{owner}/{name}" not in done:
                    self._stream(kind, owner, name, spec, files)
                    self.work.finish(_stage(kind, owner, name))
                    self.say(f"{kind} data {owner}/{name} written")

    def _spec(self, kind: str, part: int, owner: str, name: str) -> ArraySpec:
        info = self.source.infos[kind, owner, name]
        if kind == _NODE:
            rows = self.nodes.ranges.counts[part, self.graph.ntypes.index(owner)]
        else:
            rows = self.sent[:, part, self.graph.etypes.index(owner)].sum()
        return ArraySpec(f"{owner}/{name}", info.dtype, (int(rows), *info.tail))

    def _stream(self, kind: str, owner: str, name: str, spec: FileSpec, files: "_Files") -> None:
        info = self.source.infos[kind, owner, name]
        width = info.dtype.itemsize * int(np.prod(info.tail, dtype=np.int64))
        start, stop, parts, sent = self._rows(kind, owner)
        blocks = read.feature_blocks(
            spec, start, stop, block_rows(width, self.ranks.size), files=self.source.index[spec]
        )
        empty = np.empty((0, *info.tail), info.dtype)
        stream = features.RowStream(f"{owner}/{name}", parts, sent, empty)
        stream.run(blocks, files.by_part, self.ranks, self.owners)

    def _rows(self, kind: str, owner: str) -> tuple[int, int, Array, Ints]:
        """This rank's rows of a type, their parts, and who sends how many to each part."""
        if kind == _NODE:
            at = self.graph.ntypes.index(owner)
            held = self.nodes.shares[at]
            return held.start, held.stop, held.parts, self.nodes.sent[:, :, at]
        at = self.graph.etypes.index(owner)
        if at not in self.edge_parts:
            self.edge_parts[at] = self._reader().parts_of(at)
        start, stop = share(self.graph.num_edges[at], self.ranks.rank, self.ranks.size)
        return start, stop, self.edge_parts[at], self.sent[:, :, at]

    def _files(self, filename: str, specs: Mapping[int, list[ArraySpec]], done: frozenset[str]) -> "_Files":
        return _Files(
            {part: tensor_file(self.work.part(part) / filename, specs[part], done) for part in self.owned}
        )

    def _write_graphbolt(self) -> None:
        if not self.options.use_graphbolt or _BOLT in self.work.finished:
            return
        edges = Ranges(self.sent.sum(axis=0))
        for part in self.owned:
            graphbolt.write(self.work.part(part), edges, part, self.graph.ntypes, self.graph.etypes)
        self.work.finish(_BOLT)
        self.say("GraphBolt graphs written")

    def _publish(self) -> None:
        """All parts appear, then the JSON; a JSON in the folder always belongs to whole parts."""
        self.ranks.gather("all parts are whole")
        names = part_config.filenames(self.graph.name)
        for path in part_config.descriptions(self.options.out_dir):
            path.unlink(missing_ok=True)
        for name in names:
            (self.options.out_dir / name).unlink(missing_ok=True)
        self.ranks.gather("no JSON is left")
        self.work.publish(self.options.out_dir, self.owned)
        self.ranks.gather("all parts are in place")
        described = part_config.partition_json(
            self.graph, self.nodes.ranges, Ranges(self.sent.sum(axis=0)), self.source.meta
        )
        if self.options.use_graphbolt:
            described = part_config.with_graphbolt(described)
        for name in names:
            part_config.write_json(self.options.out_dir / name, described, self.ranks.rank)
        self.work.remove()


class _Files:
    """One open file for each owned part."""

    def __init__(self, by_part: Mapping[int, ArrayFile]) -> None:
        self.by_part = by_part
        self._stack = ExitStack()

    def __enter__(self) -> "_Files":
        for file in self.by_part.values():
            self._stack.enter_context(file)
        return self

    def __exit__(self, *failure: Any) -> None:
        self._stack.__exit__(*failure)


def _stage(kind: str, owner: str, name: str) -> str:
    return f"{kind}:{owner}/{name}"
