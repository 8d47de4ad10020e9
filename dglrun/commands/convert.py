"""`dglrun convert`: ParMETIS text to and from chunked graphs and assignments."""

import argparse
from pathlib import Path

from dglrun.commands import elapsed, flags
from dglrun.commands.arguments import whole
from dglrun.contract import exitcodes
from dglrun.errors import DataError
from dglrun.formats import assignment, writable
from dglrun.formats.chunked import check
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.parmetis import from_parmetis, pm_dglpart_output, to_parmetis
from dglrun.partitioning import partition_quality

_EXAMPLES = {
    "to-parmetis": "--in-dir chunks --out-dir text",
    "from-parmetis": "--in-dir text --stem g --ntypes a,b --etypes a:r:b,b:s:a --out-dir chunks",
    "from-pieces": "--in-dir chunks --pieces-dir pieces --stem g --num-parts 2 --out-dir assignment",
    "from-part-file": "--in-dir chunks --part-file g_part.2 --num-parts 2 --out-dir assignment",
}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The four directions of `convert`, and their flags."""
    ways = parser.add_subparsers(dest="way", required=True, metavar="WAY", title="ways")
    _add_to_text(ways)
    _add_from_text(ways)
    _add_from_assignments(ways)


def _add_to_text(ways: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    to = _way(ways, "to-parmetis", "chunked graph to <stem>_nodes.txt, _edges.txt, _stats.txt")
    flags.add_chunked_graph(to)
    to.add_argument("--stem", help="start of the file names (default: the graph's name)")
    to.add_argument(
        "--lists", type=whole(0), default=0, metavar="N", help="write two lists of N files (default: 0, off)"
    )
    to.add_argument("--by-degree", action="store_true", help="weigh nodes by 1 + in-degree")


def _add_from_text(ways: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    back = _way(ways, "from-parmetis", "<stem>_nodes.txt, _edges.txt or the two lists to a chunked graph")
    back.add_argument("--in-dir", type=Path, required=True, metavar="DIR", help="folder of the text files")
    back.add_argument("--stem", required=True, help="start of the file names")
    back.add_argument("--ntypes", required=True, help="node types in order of their IDs, joined by commas")
    back.add_argument(
        "--etypes", required=True, help="edge types S:R:D in order of their IDs, joined by commas"
    )
    back.add_argument(
        "--files", type=whole(1), default=1, metavar="N", help="files for each edge type (default: 1)"
    )


def _add_from_assignments(ways: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parts = _way(ways, "from-pieces", "p<part>-<stem>_nodes.txt to an assignment")
    flags.add_chunked_graph(parts)
    parts.add_argument("--stem", required=True, help="start of the file names")
    parts.add_argument(
        "--pieces-dir", type=Path, required=True, metavar="DIR", help="folder of the p<part>-... files"
    )
    _add_parts(parts)
    parts.add_argument(
        "--weights",
        type=whole(0),
        metavar="N",
        help="columns of weights (default: the types that have nodes)",
    )
    part = _way(ways, "from-part-file", "<stem>_part.<P>, lines '<homogeneous ID> <part>', to an assignment")
    flags.add_chunked_graph(part)
    part.add_argument("--part-file", type=Path, required=True, metavar="FILE", help="the file")
    _add_parts(part)


def _way(
    ways: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, summary: str
) -> argparse.ArgumentParser:
    """A direction with the flags that all have; its example is in _EXAMPLES."""
    example = f"example:\n  dglrun convert {name} {_EXAMPLES[name]}"
    parser = ways.add_parser(name, help=summary, description=f"Convert {summary}.", epilog=example)
    flags.add_out_dir(parser, "the result")
    return parser


def _add_parts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--num-parts", type=whole(1, assignment.MAX_PARTS), required=True, metavar="N", help="number of parts"
    )


def run(args: argparse.Namespace) -> int:
    """Convert; returns the exit code.

    Raises:
        DataError: bad input, or an output that cannot be written.
    """
    writable.require_folder(args.out_dir)
    try:
        with elapsed.showing(f"dglrun convert: {args.way}"):
            done = _WAYS[args.way](args)
    except ValueError as error:
        raise error if isinstance(error, DataError) else DataError(str(error)) from error
    print(f"dglrun convert: {done}")
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
