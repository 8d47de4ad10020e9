"""Partition the Debian package graph: `dglrun --partition-entry-point`, with the flags of 2021.

Writes `<workspace>/<rel_data_path>/<graph_name>.json` and a folder for each part, as
`dgl.distributed.partition_graph` does.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import dgl

import debian_data
import sage


def main(arguments: argparse.Namespace) -> None:
    """Load, partition, write."""
    start = time.monotonic()
    graph = debian_data.load(arguments.dataset_url, arguments.variant)
    print(f"loaded {graph.num_nodes()} nodes, {graph.num_edges()} edges in {time.monotonic() - start:.1f} s")
    if arguments.num_parts > graph.num_nodes():
        raise SystemExit(f"--num_parts: {arguments.num_parts} parts of {graph.num_nodes()} nodes")
    out = Path(arguments.workspace, arguments.rel_data_path)
    start = time.monotonic()
    extra = {"use_graphbolt": True} if arguments.use_graphbolt else {}
    dgl.distributed.partition_graph(
        graph,
        arguments.graph_name,
        arguments.num_parts,
        str(out),
        part_method="metis",
        balance_ntypes=_train_mask(graph) if arguments.balance_train else None,
        balance_edges=arguments.balance_edges,
        **extra,
    )
    print(f"{arguments.num_parts} parts in {out} after {time.monotonic() - start:.1f} s")


def _train_mask(graph: Any) -> Any:
    """What METIS spreads evenly, in the form that partition_graph wants: by type where there are several."""
    ntype = sage.target(graph)
    mask = graph.nodes[ntype].data["train_mask"]
    return mask if len(graph.ntypes) == 1 else {ntype: mask}


def command_line() -> argparse.ArgumentParser:
    """The flags that dglrun gives a partition script, and one of our own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graph_name", default="debian")
    parser.add_argument("--workspace", default="/dgl_workspace")
    parser.add_argument("--rel_data_path", default="dataset", help="folder below the workspace")
    parser.add_argument("--num_parts", type=int, required=True)
    parser.add_argument("--dataset_url", help="dataset folder, or a package index by path or address")
    parser.add_argument("--balance_train", action="store_true", help="as many training nodes in each part")
    parser.add_argument("--balance_edges", action="store_true", help="as many edges in each part")
    parser.add_argument("--variant", choices=debian_data.VARIANTS, default=debian_data.VARIANTS[0])
    parser.add_argument("--use_graphbolt", action="store_true", help="DGL 2: GraphBolt's format too")
    return parser


if __name__ == "__main__":
    main(command_line().parse_args())
