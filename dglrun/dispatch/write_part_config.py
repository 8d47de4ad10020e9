"""The partition's JSON as a dispatch writes it: whole, and under the names that DGL and jobs look for."""

import json
from pathlib import Path
from typing import Any

from dglrun.dispatch import graphbolt
from dglrun.formats.assignment import AssignmentMeta
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.dgl import part_config
from dglrun.formats.dgl.partition_book import Ranges
from dglrun.formats.output_folder import replacing_file

DISPATCH_NAME = "metadata.json"
"""The name that DGL's own dispatch gives to the JSON."""


def filenames(graph_name: str) -> tuple[str, ...]:
    """The names of the JSON: `<graph>.json` as in jobs, and DGL's dispatch name beside it."""
    return tuple(dict.fromkeys((f"{graph_name}.json", DISPATCH_NAME)))


def partition_json(graph: ChunkedGraph, nodes: Ranges, edges: Ranges, meta: AssignmentMeta) -> dict[str, Any]:
    """The JSON that `dgl.distributed.load_partition` reads (user guide 7.4).

    `part_method` is the true method; `part_backend`, which DGL does not read, is what carried it out.
    """
    backend = meta.details.get("backend", meta.details.get("library"))
    described = {
        "graph_name": graph.name,
        "num_nodes": nodes.total,
        "num_edges": edges.total,
        "part_method": meta.method,
        "num_parts": nodes.parts,
        "halo_hops": 1,
        "node_map": nodes.json(graph.ntypes),
        "edge_map": edges.json(graph.etypes),
        "ntypes": {name: at for at, name in enumerate(graph.ntypes)},
        "etypes": {name: at for at, name in enumerate(graph.etypes)},
    } | {f"part-{part}": _part_files(part) for part in range(nodes.parts)}
    return described | ({"part_backend": backend} if backend else {})


def with_graphbolt(described: dict[str, Any]) -> dict[str, Any]:
    """The JSON as dgl's own converter leaves it: GraphBolt's files beside the graphs."""
    parts = {
        key: value | {graphbolt.JSON_KEY: str(Path(value["part_graph"]).with_name(graphbolt.FILENAME))}
        for key, value in described.items()
        if key.startswith("part-")
    }
    return described | parts | graphbolt.DTYPES


def _part_files(part: int) -> dict[str, str]:
    return {
        "node_feats": f"part{part}/node_feat.dgl",
        "edge_feats": f"part{part}/edge_feat.dgl",
        "part_graph": f"part{part}/graph.dgl",
    }


def write_json(path: Path, described: dict[str, Any]) -> None:
    """Write the JSON whole or not at all."""
    with replacing_file(path) as draft:
        draft.write_text(json.dumps(described, indent=4) + "\n")


def descriptions(folder: Path) -> list[Path]:
    """The JSON files of a folder that describe parts; an earlier graph's would name parts of another."""
    visible = (path for path in sorted(folder.glob("*.json")) if not path.name.startswith("."))
    return [path for path in visible if part_config.describes_parts(path)]
