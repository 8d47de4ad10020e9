"""The options of a dispatch, and its input: read and checked before anything is written."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dglrun.dispatch import node_map, write_part_config
from dglrun.errors import DataError
from dglrun.formats.assignment import AssignmentMeta, load_meta
from dglrun.formats.chunked import read
from dglrun.formats.chunked.dgl_order import in_dgls_order
from dglrun.formats.chunked.input_file import File
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.chunked.row_index import Index
from dglrun.mpi import source_sums
from dglrun.mpi.collectives import Ranks, run_on_all_ranks
from dglrun.mpi.shared_index import index_tables

NODE, EDGE = "node", "edge"


@dataclass(frozen=True)
class Options:
    """What the command line says.

    Attributes:
        in_dir: Folder of the chunked graph, or its place on object storage.
        partitions_dir: Folder of the assignment.
        out_dir: Folder of the result.
        metadata_filename: Name of metadata.json in `in_dir`.
        ip_config: DGL's file of machines, one a line; the number of parts must be a multiple of them.
        save_orig_nids: Whether orig_nids.dgl stays.
        save_orig_eids: Whether orig_eids.dgl stays.
        formats: Some of coo, csr, csc.
        use_graphbolt: Whether GraphBolt's form is written too (needs dgl 2.1).
        table_bytes: Node tables up to this size are kept whole on every rank.
        lost_parts: Only these are made, where the others of the same dispatch are; empty: all are.
        source_sums: Whether to leave the sums of what was read, for a verification.
        like_partition_graph: Whether to write what `dgl.distributed.partition_graph` writes: halo edges, too,
            its fields, and types in its order. By one rank, and with coo alone.
    """

    in_dir: File
    partitions_dir: Path
    out_dir: Path
    metadata_filename: str = "metadata.json"
    ip_config: Path | None = None
    save_orig_nids: bool = False
    save_orig_eids: bool = False
    formats: tuple[str, ...] = ("coo",)
    use_graphbolt: bool = False
    table_bytes: int = node_map.WHOLE_TABLE_BYTES
    lost_parts: tuple[int, ...] = ()
    source_sums: bool = False
    like_partition_graph: bool = False


@dataclass(frozen=True)
class Source:
    """The checked input.

    Attributes:
        graph: The chunked graph.
        meta: What the assignment's partition_meta.json says.
        index: Rows of every file of every table.
        infos: dtype and row shape of each feature, by `node` or `edge`, type and name.
        identity: Stands for the files, as they were before they were read.
    """

    graph: ChunkedGraph
    meta: AssignmentMeta
    index: Index
    infos: Mapping[tuple[str, str, str], read.FeatureInfo]
    identity: str


def load_source(options: Options, ranks: Ranks) -> Source:
    """Read the metadata and count the rows of all files, each file by one rank; collective.

    Raises:
        DataError: see `dispatch`.
    """
    graph = run_on_all_ranks(ranks, lambda: ChunkedGraph.load(options.in_dir, options.metadata_filename))
    graph = in_dgls_order(graph) if options.like_partition_graph else graph
    run_on_all_ranks(ranks, lambda: _refuse_overwriting(options, graph))
    meta = run_on_all_ranks(ranks, lambda: load_meta(options.partitions_dir))
    run_on_all_ranks(ranks, lambda: check_machines(options.ip_config, meta.num_parts))
    metadata = options.in_dir / options.metadata_filename
    identity = run_on_all_ranks(ranks, lambda: source_sums.identity(graph, metadata))
    index = index_tables(ranks, graph.tables())
    infos = run_on_all_ranks(ranks, lambda: _feature_infos(graph))
    return Source(graph, meta, index, infos, identity)


def _refuse_overwriting(options: Options, graph: ChunkedGraph) -> None:
    """The parts' description must not take the place of the graph's own."""
    if not isinstance(options.in_dir, Path):
        return
    source = (options.in_dir / options.metadata_filename).resolve()
    for name in write_part_config.filenames(graph.name):
        if (options.out_dir / name).resolve() == source:
            raise DataError(
                f"--out-dir {options.out_dir}: {name} there is the input's metadata; name another"
            )


def _feature_infos(graph: ChunkedGraph) -> dict[tuple[str, str, str], read.FeatureInfo]:
    return {
        (kind, owner, name): read.feature_info(spec)
        for kind, data in ((NODE, graph.node_data), (EDGE, graph.edge_data))
        for owner, found in data.items()
        for name, spec in found.items()
    }


def check_machines(ip_config: Path | None, parts: int) -> None:
    """Compare the number of parts with the machines, as DGL's dispatch does; blank lines do not count.

    Raises:
        DataError: the file is missing or empty, or the parts are no multiple of its machines.
    """
    if ip_config is None:
        return
    try:
        machines = sum(1 for line in ip_config.read_text().splitlines() if line.strip())
    except OSError as error:
        raise DataError(f"{ip_config}: cannot be read: {error.strerror}") from None
    if not machines or parts % machines:
        raise DataError(
            f"{ip_config}: expected a number of machines that divides {parts} parts, got {machines}"
        )
