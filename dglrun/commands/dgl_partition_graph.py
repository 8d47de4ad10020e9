"""DGL's own partition_graph on a chunked graph, original IDs kept: for GraphBolt's form, which it makes.

Beside each part are orig_nids.dgl and orig_eids.dgl, as a dispatch leaves them, so that
`dglrun verify --in-dir` can hold it against its source.
"""

import argparse
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import torch as th

from dglrun.arrays import BFLOAT16, Array, dtype_name
from dglrun.commands import elapsed
from dglrun.dispatch import write_part_config
from dglrun.errors import DataError
from dglrun.formats.chunked import read
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.chunked.table import FileSpec
from dglrun.formats.dgl import part_config
from dglrun.formats.dgl.folder import PartitionFolder, load_folder
from dglrun.partitioning.training_nodes import TRAIN_MASK, masked_types

GRAPHBOLT = dict.fromkeys(("use_graphbolt", "store_eids", "store_inner_node", "store_inner_edge"), True)
"""What DGL 2 is asked for: without edge IDs its own checks refuse what its converter writes."""


def write(args: argparse.Namespace, source: ChunkedGraph, draft: Path) -> None:
    """Load, partition, keep the mapping.

    Args:
        args: The flags of `dgl_api`.
        source: The graph.
        draft: Folder of the result.

    Raises:
        DataError: the chunked graph is bad, or cannot be cut into so many parts.
    """
    with elapsed.showing(f"dglrun: loading {args.in_dir}"):
        graph = load(source)
    balance = train_masks(masked_types(source), graph) if args.balance_train else None
    dgl.seed(args.seed)
    np.random.seed(args.seed)
    with elapsed.showing(f"dglrun: DGL's partition_graph, {args.method}"):
        mapping = _partition(args, draft, source, graph, balance)
    config = draft / f"{source.name}.json"
    _name_backend(config)
    for kind, found in zip("ne", mapping, strict=True):
        save_mapping(load_folder(config), kind, found)


def load(source: ChunkedGraph) -> Any:
    """Make a DGLGraph of a chunked graph; features keep their dtypes.

    Raises:
        DataError: a bad row, or a dtype that torch does not have.
    """
    ends = {tuple(etype.split(":")): _ends(source, etype) for etype in source.etypes}
    counts = dict(zip(source.ntypes, source.num_nodes, strict=True))
    graph = dgl.heterograph(ends, num_nodes_dict=counts)
    for ntype, features in source.node_data.items():
        for name, spec in features.items():
            graph.nodes[ntype].data[name] = _tensor(spec, source.node_count(ntype))
    for etype, features in source.edge_data.items():
        for name, spec in features.items():
            graph.edges[tuple(etype.split(":"))].data[name] = _tensor(spec, source.edge_count(etype))
    return graph


def train_masks(masked: list[str], graph: Any) -> Any:
    """The masks of training nodes in the form that `balance_ntypes` wants."""
    masks = {ntype: graph.nodes[ntype].data[TRAIN_MASK].long() for ntype in masked}
    return masks[masked[0]] if graph.is_homogeneous else masks


def save_mapping(folder: PartitionFolder, kind: str, mapping: Any) -> None:
    """Write orig_nids.dgl or orig_eids.dgl beside each part.

    Args:
        folder: The partition.
        kind: `n` or `e`.
        mapping: int64 by type, as `return_mapping` gives it: original type-wise ID of each new one; new
            ones count through the parts.
    """
    names, ranges = (folder.ntypes, folder.nodes) if kind == "n" else (folder.etypes, folder.edges)
    by_name = _by_name(mapping, names)
    ends = np.cumsum(ranges.counts, axis=0)
    for part in range(folder.parts):
        rows = {
            name: by_name[name][int(ends[part, at] - ranges.counts[part, at]) : int(ends[part, at])].clone()
            for at, name in enumerate(names)
        }
        path = folder.path.parent / f"part{part}" / f"orig_{kind}ids.dgl"
        dgl.data.utils.save_tensors(str(path), rows)


def _by_name(mapping: Any, names: Iterable[str]) -> Mapping[str, Any]:
    if not isinstance(mapping, dict):
        return dict.fromkeys(names, mapping)
    return {name if isinstance(name, str) else ":".join(name): rows for name, rows in mapping.items()}


def _partition(args: argparse.Namespace, out: Path, source: ChunkedGraph, graph: Any, balance: Any) -> Any:
    try:
        return dgl.distributed.partition_graph(
            graph,
            source.name,
            args.num_parts,
            str(out),
            part_method=args.method,
            balance_ntypes=balance,
            balance_edges=args.balance_edges,
            return_mapping=True,
            **GRAPHBOLT,
        )
    except (IndexError, dgl.DGLError) as error:
        if not _is_of_empty_part(error):
            raise
        reason = str(error).partition("\n")[0]
        raise DataError(
            f"{source.name}: DGL's partition_graph cannot write a part without nodes or edges of a type"
            f" ({reason}): expected fewer than {args.num_parts} parts, or to go without --use-graphbolt"
        ) from error


def _is_of_empty_part(error: Exception) -> bool:
    """DGL indexes into nothing where a type is missing, and casts a null pointer where all nodes are."""
    return isinstance(error, IndexError) or "HeteroSubgraph" in str(error)


def _ends(source: ChunkedGraph, etype: str) -> tuple[Any, Any]:
    src, dst = np.empty(source.edge_count(etype), np.int64), np.empty(source.edge_count(etype), np.int64)
    limits = tuple(source.num_nodes[at] for at in source.ends(etype))
    at = 0
    for sources, targets in read.edge_blocks(source.edges[etype], 0, len(src), limits=(limits[0], limits[1])):
        src[at : at + len(sources)], dst[at : at + len(sources)] = sources, targets
        at += len(sources)
    return th.from_numpy(src), th.from_numpy(dst)


def _tensor(spec: FileSpec, rows: int) -> Any:
    info = read.feature_info(spec)
    found: Array = np.empty((rows, *info.tail), info.dtype)
    at = 0
    for block in read.feature_blocks(spec, 0, rows):
        found[at : at + len(block)] = block
        at += len(block)
    if found.dtype == BFLOAT16:
        return th.from_numpy(found.view("<i2")).view(th.bfloat16)
    try:
        return th.from_numpy(found)
    except TypeError as error:
        raise DataError(f"{spec.paths[0]}: torch has no dtype for {dtype_name(info.dtype)}") from error


def _name_backend(config: Path) -> None:
    """Say in the JSON, which DGL reads past, who has assigned the nodes."""
    described = part_config.load(config).raw | {"part_backend": f"dgl {dgl.__version__}"}
    write_part_config.write_json(config, described)
