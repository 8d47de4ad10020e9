"""Dispatch from end to end, as one rank sees it."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from dglrun.arrays import Array, Ints, share
from dglrun.dispatch import (
    earlier_parts,
    features,
    graphbolt,
    halo_edges,
    lost_parts,
    node_map,
    write_part_config,
)
from dglrun.dispatch.checkpoint import Checkpoint, fingerprint, load_checkpoint, remove_stale_ranks
from dglrun.dispatch.edges import EdgeReader, Edges
from dglrun.dispatch.halo_edges import HaloEdges
from dglrun.dispatch.node_map import Nodes
from dglrun.dispatch.source import EDGE, NODE, Options, Source, load_source
from dglrun.dispatch.write_partition import PartGraph
from dglrun.formats import open_files, output_folder
from dglrun.formats.assignment import META
from dglrun.formats.assignment_shares import assignment_file
from dglrun.formats.chunked import read
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.chunked.table import FileSpec
from dglrun.formats.dgl.arrays import ArrayFile, ArraySpec
from dglrun.formats.dgl.partition_book import Ranges
from dglrun.formats.dgl.tensors import tensor_file
from dglrun.mpi import read_from_storage, shared_folder, source_sums
from dglrun.mpi.collectives import Ranks, run_on_all_ranks
from dglrun.mpi.exchange import block_rows
from dglrun.mpi.shared_folder import Members
from dglrun.mpi.shuffle import Owners
from dglrun.mpi.source_sums import ReadSums, Table

_GRAPH, _NIDS, _BOLT = "graph", "orig_nids", "graphbolt"


def dispatch(options: Options, ranks: Ranks, say: Callable[[str], None]) -> None:
    """Make the partition folder; collective.

    Nothing is written before all input but the features' values has been read and found good; the
    result appears whole at the end.

    Args:
        options: What to do.
        ranks: The processes.
        say: Takes a line of progress for people.

    Raises:
        DataError: the input is bad, or the folder cannot be written; the same error on every rank.
    """
    if options.lost_parts:
        counting = lost_parts.CountingRanks(ranks)
        lost_parts.bring_assignment(options.partitions_dir, options.lost_parts, counting)
        if lost := lost_parts.missing(options.out_dir, options.lost_parts, counting):
            _dispatch(replace(options, lost_parts=lost), counting, say)
        else:
            say(f"no part is lost: other workers see {options.out_dir}, too")
        say(counting.line())
    else:
        _dispatch(options, ranks, say)


def _dispatch(options: Options, ranks: Ranks, say: Callable[[str], None]) -> None:
    started = time.monotonic()
    source = load_source(options, ranks)
    if options.lost_parts:
        lost_parts.require_same_source(options.out_dir, source.identity, options.lost_parts, ranks)
    say(f"{source.graph.name}: {source.meta.num_parts} parts on {ranks.size} ranks")
    nodes = node_map.read_nodes(source.graph, options.partitions_dir, source.meta.num_parts, ranks)
    say("assignment read")
    stamp = _fingerprint(options, source.graph, ranks)
    with shared_folder.locked(ranks, options.out_dir) as members:
        saved = load_checkpoint(options.out_dir, ranks.rank, stamp)
        Dispatch(options, source, nodes, saved, ranks, members, say).run()
    if told := read_from_storage.line(ranks):
        say(told)
    say(f"done in {time.monotonic() - started:.1f} s")


def _fingerprint(options: Options, graph: ChunkedGraph, ranks: Ranks) -> str:
    """Stands for the input and the options on which the files of a stage depend; collective."""
    files = [options.in_dir / options.metadata_filename, options.partitions_dir / META]
    files += [assignment_file(options.partitions_dir, ntype) for ntype in graph.ntypes]
    files += [path for spec, _ in graph.tables().values() for path in spec.paths]
    wanted = [ranks.size, options.save_orig_nids, options.save_orig_eids, options.formats]
    wanted += [options.use_graphbolt, options.lost_parts, options.source_sums]
    wanted += ["like partition_graph"] if options.like_partition_graph else []
    return run_on_all_ranks(ranks, lambda: fingerprint({"format": 3, "options": wanted}, files))


class Dispatch:
    """One dispatch on one rank: stages in order, finished ones skipped.

    Args:
        options: What to do.
        source: The checked input.
        nodes: The assignment as this rank knows it.
        saved: What an earlier run on the same input has finished.
        ranks: The processes.
        members: Those that write the same folder.
        say: Takes a line of progress for people.

    Attributes:
        sent: Edges that each rank read, by part and type, int64, shape (ranks, parts, types); known once the
            graphs are written.
    """

    def __init__(
        self,
        options: Options,
        source: Source,
        nodes: Nodes,
        saved: Checkpoint,
        ranks: Ranks,
        members: Members,
        say: Callable[[str], None],
    ) -> None:
        self.options = options
        self.graph = source.graph
        self.source = source
        self.nodes = nodes
        self.checkpoint = saved
        self.ranks = ranks
        self.members = members
        self.say = say
        self.owners = Owners(source.meta.num_parts, ranks.size, options.lost_parts)
        self.owned = self.owners.made(ranks.rank)
        self.edge_parts: dict[int, Array] = {}
        self.edge_reader: EdgeReader | None = None
        self.sums = ReadSums(options.source_sums)
        self.sent = np.zeros((ranks.size, source.meta.num_parts, len(source.graph.etypes)), np.int64)

    def run(self) -> None:
        """Do what is not finished, then publish; collective."""
        self._once(self._refuse_overwriting)
        common = self._finished_everywhere()
        edges = None if _GRAPH in common else self._read_edges()
        self._begin(common)
        self.sent = self._write_graphs(edges) if edges else self._sent_before()
        del edges
        self._write_orig_nids()
        self._write_features(NODE, "node_feat.dgl", self.graph.node_data)
        self._write_features(EDGE, "edge_feat.dgl", self.graph.edge_data)
        self._write_graphbolt()
        self._publish()

    def _finished_everywhere(self) -> list[str]:
        everywhere = self.ranks.gather(list(self.checkpoint.finished))
        return [stage for stage in everywhere[0] if all(stage in found for found in everywhere)]

    def _begin(self, finished: list[str]) -> None:
        """The first moment at which anything is written."""
        if finished:
            self.say(f"resumed: finished before: {', '.join(finished)}")
        self._once(lambda: remove_stale_ranks(self.options.out_dir, self.members.ranks))
        self.checkpoint.begin(finished)
        for part in self.owned:
            self.checkpoint.part(part).mkdir(exist_ok=True)

    def _reader(self) -> EdgeReader:
        """Made once, when first needed; collective."""
        if self.edge_reader is None:
            self.edge_reader = self._make_reader()
        return self.edge_reader

    def _make_reader(self) -> EdgeReader:
        finder = node_map.make_node_map(self.nodes, self.ranks, self.options.table_bytes)
        return EdgeReader(
            self.graph, self.source.index, self.nodes.ranges, finder, self.ranks, self.owners, self.sums
        )

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
        leaving = self._leaving(edges)
        for part in self.owned:
            found = PartGraph(part, self.nodes.ranges, ranges, edges.chunks[part], leaving.pop(part, None))
            found.write(self.checkpoint.part(part), self.options.formats, self.options.use_graphbolt)
            if self.options.save_orig_eids:
                found.write_orig_eids(self.checkpoint.part(part) / "orig_eids.dgl", self.graph.etypes)
            del edges.chunks[part]
        facts = {"sent": edges.sent[self.ranks.rank].tolist(), "sums": self.sums.facts("edges ")}
        self.checkpoint.finish(_GRAPH, facts)
        self.say("graphs written")
        return edges.sent

    def _leaving(self, edges: Edges) -> dict[int, HaloEdges]:
        """Halo edges by part; none where DGL's dispatch would store none."""
        if not self.options.like_partition_graph:
            return {}
        return dict(enumerate(halo_edges.leaving(edges.chunks, self.nodes.ranges, edges.ranges)))

    def _sent_before(self) -> Ints:
        facts = self.checkpoint.finished[_GRAPH]
        self.sums.take(facts["sums"])
        own = np.array(facts["sent"], np.int64).reshape(self.owners.parts, -1)
        return np.stack(self.ranks.gather(own))

    def _write_orig_nids(self) -> None:
        if not self.options.save_orig_nids or _NIDS in self.checkpoint.finished:
            return
        counts = self.nodes.ranges.counts
        specs = {
            part: [ArraySpec(name, np.dtype("<i8"), (int(counts[part, at]),)) for at, name in self._ntypes()]
            for part in self.owned
        }
        with self._files("orig_nids.dgl", specs, frozenset()) as files:
            for at, name in self._ntypes():
                held = self.nodes.shares[at]
                rows = block_rows(8)
                stream = features.RowStream(
                    name, held.parts, self.nodes.sent[:, :, at], np.empty(0, np.int64)
                )
                stream.run(features.ids(held.start, held.stop, rows), files.by_part, self.ranks, self.owners)
        self.checkpoint.finish(_NIDS)

    def _ntypes(self) -> list[tuple[int, str]]:
        return list(enumerate(self.graph.ntypes))

    def _write_features(self, kind: str, filename: str, data: Mapping[str, Mapping[str, FileSpec]]) -> None:
        tables = [(owner, name, spec) for owner, found in data.items() for name, spec in found.items()]
        done = frozenset(
            f"{owner}/{name}"
            for owner, name, _ in tables
            if _stage(kind, owner, name) in self.checkpoint.finished
        )
        specs = {
            part: [self._spec(kind, part, owner, name) for owner, name, _ in tables] for part in self.owned
        }
        with self._files(filename, specs, done) as files:
            for owner, name, spec in tables:
                stage = _stage(kind, owner, name)
                if f"{owner}/{name}" in done:
                    self.sums.take(self.checkpoint.finished[stage])
                    continue
                self._stream(kind, owner, name, spec, files)
                self.checkpoint.finish(stage, self.sums.facts(str(Table(kind, owner, name))))
                self.say(f"{kind} data {owner}/{name} written")

    def _spec(self, kind: str, part: int, owner: str, name: str) -> ArraySpec:
        info = self.source.infos[kind, owner, name]
        if kind == NODE:
            rows = self.nodes.ranges.counts[part, self.graph.ntypes.index(owner)]
        else:
            rows = self.sent[:, part, self.graph.etypes.index(owner)].sum()
        return ArraySpec(f"{owner}/{name}", info.dtype, (int(rows), *info.tail))

    def _stream(self, kind: str, owner: str, name: str, spec: FileSpec, files: "_Files") -> None:
        info = self.source.infos[kind, owner, name]
        width = info.dtype.itemsize * int(np.prod(info.tail, dtype=np.int64))
        start, stop, parts, sent = self._rows(kind, owner)
        rows = block_rows(width)
        blocks = read.feature_blocks(spec, start, stop, rows, files=self.source.index[spec])
        blocks = self.sums.of_rows(Table(kind, owner, name), start, self._total(kind, owner), blocks)
        empty = np.empty((0, *info.tail), info.dtype)
        stream = features.RowStream(f"{owner}/{name}", parts, sent, empty)
        stream.run(blocks, files.by_part, self.ranks, self.owners)

    def _total(self, kind: str, owner: str) -> int:
        return self.graph.node_count(owner) if kind == NODE else self.graph.edge_count(owner)

    def _rows(self, kind: str, owner: str) -> tuple[int, int, Array, Ints]:
        """This rank's rows of a type, their parts, and who sends how many to each part."""
        if kind == NODE:
            at = self.graph.ntypes.index(owner)
            held = self.nodes.shares[at]
            return held.start, held.stop, held.parts, self.nodes.sent[:, :, at]
        at = self.graph.etypes.index(owner)
        if at not in self.edge_parts:
            self.edge_parts[at] = self._reader().parts_of(at)
        start, stop = share(self.graph.num_edges[at], self.ranks.rank, self.ranks.size)
        return start, stop, self.edge_parts[at], self.sent[:, :, at]

    def _files(self, filename: str, specs: Mapping[int, list[ArraySpec]], done: frozenset[str]) -> "_Files":
        few = len(self.owned) <= open_files.limit() // 2
        return _Files(
            {
                part: tensor_file(self.checkpoint.part(part) / filename, specs[part], done, stays_open=few)
                for part in self.owned
            }
        )

    def _write_graphbolt(self) -> None:
        if not self.options.use_graphbolt or _BOLT in self.checkpoint.finished:
            return
        edges = Ranges(self.sent.sum(axis=0))
        for part in self.owned:
            graphbolt.write(self.checkpoint.part(part), edges, part, self.graph.ntypes, self.graph.etypes)
        self.checkpoint.finish(_BOLT)
        self.say("GraphBolt graphs written")

    def _publish(self) -> None:
        """All parts appear, then the JSON; a JSON in the folder always belongs to whole parts."""
        self.ranks.gather("all parts are whole")
        lost = self.options.lost_parts
        is_kept = bool(lost) and lost_parts.is_kept(self.members, lost, self.ranks)
        self._once(self._require_same if is_kept else self._remove_earlier)
        self.checkpoint.publish(self.options.out_dir, self.owned)
        self.ranks.gather("all parts are in place")
        self._leave_sums()
        self._once(self._describe)
        self.checkpoint.remove()

    def _leave_sums(self) -> None:
        """Beside the parts, before the JSON that makes them a partition; collective."""
        if lost := self.options.lost_parts:
            lost_parts.bring_sums(self.options.out_dir, self.members, lost, self.ranks)
            return
        if not self.options.source_sums and all(
            self.ranks.gather(len(self.members.ranks) == self.ranks.size)
        ):
            return  # one folder: no part of it is lost alone
        inputs = self.ranks.gather(self.source.identity)
        sums = source_sums.add(self.ranks, self.sums.by_table)
        self._once(lambda: source_sums.write(self.options.out_dir, inputs, sums))

    def _once(self, work: Callable[[], None]) -> None:
        """Let the first of the ranks that share a folder do it, then all go on; collective."""
        is_first = self.ranks.rank == self.members.first
        run_on_all_ranks(self.ranks, lambda: work() if is_first else None)

    def _refuse_overwriting(self) -> None:
        names = write_part_config.filenames(self.graph.name)
        out_dir, parts = self.options.out_dir, self.owners.parts
        output_folder.recover(out_dir)  # of a killed run of DGL's own partitioning, which writes otherwise
        earlier_parts.refuse_overwriting(out_dir, self.graph.name, names, parts)

    def _remove_earlier(self) -> None:
        earlier_parts.put_aside(self.options.out_dir, self.graph.name)
        earlier_parts.remove(self.options.out_dir, self.graph.name, self.owners.parts)

    def _require_same(self) -> None:
        lost_parts.require_same(self.options.out_dir, self.graph.name, self._description())

    def _describe(self) -> None:
        for name in write_part_config.filenames(self.graph.name):
            write_part_config.write_json(self.options.out_dir / name, self._description())
        earlier_parts.forget(self.options.out_dir)

    def _description(self) -> dict[str, Any]:
        described = write_part_config.partition_json(
            self.graph, self.nodes.ranges, Ranges(self.sent.sum(axis=0)), self.source.meta
        )
        return write_part_config.with_graphbolt(described) if self.options.use_graphbolt else described


class _Files:
    """One file for each owned part."""

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
