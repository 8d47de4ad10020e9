"""`dglrun convert`: ParMETIS text to and from chunked graphs and assignments."""

import argparse
import sys
from pathlib import Path

from dglrun.contract import exitcodes
from dglrun.errors import DataError
from dglrun.formats import assignment
from dglrun.formats.chunked import check
from dglrun.formats.chunked.metadata import FILENAME, ChunkedGraph
from dglrun.formats.parmetis import from_parmetis, pm_dglpart_output, to_parmetis
from dglrun.partitioning import partition_quality


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `convert` and its four directions."""
    parser = subparsers.add_parser("convert", help="ParMETIS text to and from", description=__doc__)
    ways = parser.add_subparsers(dest="way", required=True, metavar="WAY")
    to = _way(ways, "to-parmetis", "chunked graph -> <stem>_nodes.txt, _edges.txt, _stats.txt")
    _add_graph(to)
    to.add_argument("--stem", help="beginning of the file names (the graph's name)")
    to.add_argument("--lists", type=int, default=0, metavar="FILES", help="two-list form with so many files")
    to.add_argument("--by-degree", action="store_true", help="weigh nodes by 1 + in-degree")
    back = _way(ways, "from-parmetis", "<stem>_nodes.txt, _edges.txt, or the two lists -> chunked graph")
    back.add_argument("--in-dir", type=Path, required=True, help="folder of the text files")
    back.add_argument("--stem", required=True, help="beginning of the file names")
    back.add_argument("--ntypes", required=True, help="names of the node types by type ID, joined by commas")
    back.add_argument("--etypes", required=True, help="names src:rel:dst of the edge types, joined by commas")
    back.add_argument("--files", type=int, default=1, help="files for each edge type")
    parts = _way(ways, "from-pieces", "p<part>-<stem>_nodes.txt -> assignment")
    _add_graph(parts)
    parts.add_argument("--stem", required=True, help="beginning of the file names")
    parts.add_argument("--pieces-dir", type=Path, required=True, help="folder of the p<part>-... files")
    parts.add_argument("--num-parts", type=int, required=True, help="number of parts")
    parts.add_argument("--weights", type=int, help="columns of weights (one for each type that has nodes)")
    part = _way(ways, "from-part-file", "<stem>_part.<P>, lines '<homogeneous ID> <part>' -> assignment")
    _add_graph(part)
    part.add_argument("--part-file", type=Path, required=True, help="the file")
    part.add_argument("--num-parts", type=int, required=True, help="number of parts")


def _way(
    ways: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, summary: str
) -> argparse.ArgumentParser:
    parser = ways.add_parser(name, help=summary, description=summary)
    parser.add_argument("--out-dir", type=Path, required=True, help="folder of the result")
    return parser


def _add_graph(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--in-dir", type=Path, required=True, help="folder of the chunked graph")
    parser.add_argument("--metadata-filename", default=FILENAME, help="its name in --in-dir")


def run(args: argparse.Namespace) -> int:
    """Convert; returns the exit code: 65 for bad input, 73 for an output folder that cannot be written."""
    try:
        print(f"dglrun convert: {_WAYS[args.way](args)}")
    except (DataError, ValueError) as error:
        print(f"dglrun convert: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, DataError) else exitcodes.DATA
    return exitcodes.OK


def _to_text(args: argparse.Namespace) -> str:
    graph = _graph(args)
    check.check_counts(graph)
    stem = args.stem or graph.name
    if args.lists:
        done = to_parmetis.to_lists(graph, args.out_dir, stem, args.lists, args.by_degree)
    else:
        done = to_parmetis.to_text(graph, args.out_dir, stem, args.by_degree)
    removed = f"{done.self_loops} self-loops and {done.duplicates} duplicate edges left out"
    return f"{args.out_dir}/{stem}_*.txt: {done.nodes} nodes, {done.edges} edges, {removed}"


def _from_text(args: argparse.Namespace) -> str:
    ntypes, etypes = args.ntypes.split(","), args.etypes.split(",")
    graph = from_parmetis.from_text(args.in_dir, args.stem, args.out_dir, ntypes, etypes, args.files)
    return f"{args.out_dir}: {sum(graph.num_nodes)} nodes, {sum(graph.num_edges)} edges"


def _from_pieces(args: argparse.Namespace) -> str:
    graph = _graph(args)
    parts = pm_dglpart_output.from_pieces(graph, args.pieces_dir, args.stem, args.num_parts, args.weights)
    return _assignment(args, graph, parts, "pm_dglpart")


def _from_part_file(args: argparse.Namespace) -> str:
    graph = _graph(args)
    parts = pm_dglpart_output.from_part_file(graph, args.part_file, args.num_parts)
    return _assignment(args, graph, parts, "pm_dglpart")


def _assignment(
    args: argparse.Namespace, graph: ChunkedGraph, parts: dict[str, assignment.Parts], method: str
) -> str:
    details = partition_quality.of_assignment(graph, parts, args.num_parts).details(graph.ntypes)
    assignment.write(args.out_dir, graph, parts, assignment.AssignmentMeta(args.num_parts, method, details))
    cut = details["edge_cut_ratio"]
    return f"{args.out_dir}: {sum(graph.num_nodes)} nodes in {args.num_parts} parts, cut {cut}"


def _graph(args: argparse.Namespace) -> ChunkedGraph:
    return ChunkedGraph.load(args.in_dir, args.metadata_filename)


_WAYS = {
    "to-parmetis": _to_text,
    "from-parmetis": _from_text,
    "from-pieces": _from_pieces,
    "from-part-file": _from_part_file,
}
