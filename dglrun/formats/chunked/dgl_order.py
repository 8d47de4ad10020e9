"""The order in which a DGLGraph of a chunked graph numbers its types, which is not that of the metadata."""

from dataclasses import replace

from dglrun.formats.chunked.metadata import ChunkedGraph


def in_dgls_order(graph: ChunkedGraph) -> ChunkedGraph:
    """The graph with its types in the order in which a DGLGraph numbers them: by name, as tuples."""
    ntypes = sorted(range(len(graph.ntypes)), key=lambda at: graph.ntypes[at])
    etypes = sorted(range(len(graph.etypes)), key=lambda at: tuple(graph.etypes[at].split(":")))
    return replace(
        graph,
        ntypes=tuple(graph.ntypes[at] for at in ntypes),
        num_nodes=tuple(graph.num_nodes[at] for at in ntypes),
        etypes=tuple(graph.etypes[at] for at in etypes),
        num_edges=tuple(graph.num_edges[at] for at in etypes),
        nodes_per_chunk=(),
        edges_per_chunk=(),
    )
