"""GraphBolt's form of a part, `fused_csc_sampling_graph.pt`, as dgl 2.1 to 2.4 load it beside graph.dgl.

The object comes from dgl itself (a TorchScript class), so torch and dgl are imported, here only. It
holds what dgl's own converter stores with every option on: edge IDs and inner masks too.
"""

from pathlib import Path
from typing import Any

import numpy as np

from dglrun.dispatch import csc_csr
from dglrun.dispatch.edges import EdgeRun
from dglrun.formats.dgl.arrays import ArraySpec, StoredArray
from dglrun.formats.dgl.graphs import read_graph
from dglrun.formats.dgl.partition_book import Ranges
from dglrun.formats.dgl.tensors import read_tensors, tensor_file

FILENAME = "fused_csc_sampling_graph.pt"
SCRATCH = ".csc"
JSON_KEY = "part_graph_graphbolt"
DTYPES = {"node_map_dtype": "int64", "edge_map_dtype": "int64"}
"""What dgl adds to the JSON: IDs stay int64 with GraphBolt."""
_OLDEST = (2, 1)


def lacking() -> str | None:
    """Say why the form cannot be written here; None: it can."""
    from importlib import metadata  # noqa: PLC0415 - 10 ms of each rank, and only where GraphBolt is asked for

    try:
        version = metadata.version("dgl")
    except metadata.PackageNotFoundError:
        return "--use-graphbolt needs dgl 2.1 or newer; this Python has no dgl"
    if tuple(int(number) for number in version.split("+", maxsplit=1)[0].split(".")[:2]) < _OLDEST:
        return f"--use-graphbolt needs dgl 2.1 or newer; this Python has dgl {version}"
    return None


def put_scratch(folder: Path, chunks: list[EdgeRun], nodes: int, first_node: int) -> None:
    """Keep a part's CSC beside its graph until `write`; sources in `chunks` are part-local."""
    sources = csc_csr.Side([chunk.src for chunk in chunks], 0)
    targets = csc_csr.Side([chunk.dst for chunk in chunks], first_node)
    lengths = {"csc/indptr": nodes + 1, "csc/indices": sources.edges, "csc/eids": sources.edges}
    specs = [ArraySpec(name, np.dtype("<i8"), (length,)) for name, length in lengths.items()]
    with tensor_file(folder / SCRATCH, specs) as file:
        csc_csr.put(file, "csc", targets, sources, nodes)


def write(folder: Path, edges: Ranges, part: int, ntypes: tuple[str, ...], etypes: tuple[str, ...]) -> None:
    """Write a part's file from its graph.dgl and scratch, and drop the scratch.

    Args:
        folder: The part's folder.
        edges: Ranges of all edges.
        part: Number of the part.
        ntypes: Node types.
        etypes: Edge types.
    """
    import torch  # noqa: PLC0415 - heavy, and only where GraphBolt is asked for
    from dgl import graphbolt  # noqa: PLC0415

    stored = read_graph(folder / "graph.dgl")
    csc = read_tensors(folder / SCRATCH)
    eids = _values(csc["csc/eids"])
    types = _smallest(len(etypes), np.repeat(np.arange(len(etypes)), edges.counts[part])[eids])
    several = len(ntypes) > 1 or len(etypes) > 1
    tensors = {name: torch.from_numpy(_narrow(_values(csc[f"csc/{name}"]))) for name in ("indptr", "indices")}
    made = graphbolt.fused_csc_sampling_graph(
        tensors["indptr"],
        tensors["indices"],
        node_type_offset=None,
        type_per_edge=torch.from_numpy(types) if several else None,
        node_type_to_id={name: at for at, name in enumerate(ntypes)} if several else None,
        edge_type_to_id={name: at for at, name in enumerate(etypes)} if several else None,
        node_attributes=_attributes(torch, stored.node_fields, ("_ID", "inner_node"), None),
        edge_attributes=_attributes(torch, stored.edge_fields, ("_ID", "inner_edge"), eids),
    )
    torch.save(made, folder / FILENAME)
    (folder / SCRATCH).unlink()


def _attributes(torch: Any, fields: dict[str, StoredArray], names: tuple[str, ...], order: Any) -> Any:
    found = {name: _values(fields[name]) for name in names}
    return {
        name: torch.from_numpy(values if order is None else values[order]) for name, values in found.items()
    }


def _values(stored: StoredArray) -> Any:
    return stored.rows(0, len(stored))


def _narrow(values: Any) -> Any:
    """int32 where the values fit, as dgl's converter stores them."""
    return values.astype(np.int32) if int(values.max(initial=0)) < np.iinfo(np.int32).max else values


def _smallest(types: int, values: Any) -> Any:
    """The smallest signed type for type IDs, as dgl's converter stores them."""
    return values.astype(np.int8 if types < np.iinfo(np.int8).max else np.int16)
