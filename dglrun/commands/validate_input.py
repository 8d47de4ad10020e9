"""`python -m dglrun.commands.validate_input`: is the chunked graph there, whole, and the one meant?"""

import sys

from dglrun.commands import elapsed, flags, program
from dglrun.commands.arguments import Parser
from dglrun.contract import exitcodes
from dglrun.errors import DataError
from dglrun.formats.chunked import check
from dglrun.formats.chunked.input_file import File
from dglrun.formats.chunked.metadata import FILENAME, ChunkedGraph


def main(argv: list[str]) -> int:
    """Examine; 0, or the code of what is wrong, with one line that says it."""
    parser = Parser("dglrun.commands.validate_input", description="Internal: check a chunked graph.")
    parser.add_argument("--in-dir", type=flags.folder, required=True)
    parser.add_argument("--graph-name", required=True)
    args = parser.read(argv)
    try:
        graph = ChunkedGraph.load(args.in_dir, FILENAME)
        require_name(graph, args.in_dir / FILENAME, args.graph_name)
        with elapsed.showing(f"dglrun: checking {args.in_dir}"):
            check.check_counts(graph)
            check.check_features(graph)
    except DataError as error:
        print(f"dglrun: {error}", file=sys.stderr)
        return error.exit_code
    print(
        f"{args.in_dir}: {graph.name}: {sum(graph.num_nodes)} nodes of {len(graph.ntypes)} types,"
        f" {sum(graph.num_edges)} edges of {len(graph.etypes)} types",
        flush=True,
    )
    return exitcodes.OK


def require_name(graph: ChunkedGraph, path: File, wanted: str) -> None:
    """Compare the graph's name with --graph-name: the partition's JSON is called by it.

    Raises:
        DataError: they differ.
    """
    if graph.name != wanted:
        raise DataError(f"{path}: graph_name: expected {wanted!r} as --graph-name says, got {graph.name!r}")


if __name__ == "__main__":
    sys.exit(program.internal(main))
