"""Does a chunked graph agree with its files? Asked before anything is written."""

from collections.abc import Sequence

from dglrun.errors import DataError
from dglrun.formats.chunked import read
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.chunked.row_index import RowIndex


def check_counts(graph: ChunkedGraph) -> None:
    """Compare the counts of the metadata with the rows of the files.

    Reads headers and footers; csv files are read through once (their index is kept for later).

    Raises:
        DataError: a table has another number of rows than its type has nodes or edges.
    """
    for name, (spec, wanted) in graph.tables().items():
        check_rows(name, wanted, read.index(spec))


def check_rows(name: str, wanted: int, files: Sequence[RowIndex]) -> None:
    """Compare the rows of a table's files with what the metadata says.

    Raises:
        DataError: they differ; names the files with their rows.
    """
    if (got := sum(file.rows for file in files)) != wanted:
        shown = ", ".join(f"{file.path} {file.rows}" for file in files)
        raise DataError(f"{name}: the metadata says {wanted} rows, the files have {got} ({shown})")


def check_parts(graph: ChunkedGraph, num_parts: int) -> None:
    """Compare the number of parts that is asked for with the nodes.

    Raises:
        DataError: there are more parts than nodes, so that some could only be empty.
    """
    if num_parts > (nodes := sum(graph.num_nodes)):
        raise DataError(f"--num-parts: expected at most {nodes}, the nodes of {graph.name}, got {num_parts}")


def check_features(graph: ChunkedGraph) -> None:
    """Compare dtype and shape over the files of each feature, by their headers.

    Raises:
        DataError: they differ, or DGL cannot hold them.
    """
    for features in (*graph.node_data.values(), *graph.edge_data.values()):
        for spec in features.values():
            read.feature_info(spec)


def check_ids(graph: ChunkedGraph, block_rows: int = read.BLOCK_ROWS) -> None:
    """Read all edges and check that their ends exist.

    Raises:
        DataError: a bad row or an ID out of range; names file and line.
    """
    for at, etype in enumerate(graph.etypes):
        src, dst = graph.ends(etype)
        limits = graph.num_nodes[src], graph.num_nodes[dst]
        for _ in read.edge_blocks(graph.edges[etype], 0, graph.num_edges[at], block_rows, limits=limits):
            pass
