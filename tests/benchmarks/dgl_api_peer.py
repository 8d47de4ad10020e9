"""`python -m tests.benchmarks.dgl_api_peer SOURCE OUT PARTS METHOD`: load a chunked graph, partition it."""

import sys
from pathlib import Path

import dgl

from dglrun.commands import dgl_partition_graph
from dglrun.formats.chunked.metadata import ChunkedGraph

if __name__ == "__main__":
    source, out, parts, method = sys.argv[1:]
    graph = dgl_partition_graph.load(ChunkedGraph.load(Path(source)))
    dgl.distributed.partition_graph(graph, "g", int(parts), out, part_method=method)
