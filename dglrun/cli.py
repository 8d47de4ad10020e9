"""The command line of `dglrun`: the workflow's flags, and the subcommands, imported when asked for."""

import argparse
import difflib
import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from dglrun.contract import exitcodes

COMMANDS = {
    "supervise": "dglrun.agent.main",
    "pack": "dglrun.transfer.tar_stream",
    "chunk": "dglrun.commands.chunk",
    "convert": "dglrun.commands.convert",
    "partition": "dglrun.commands.partition",
    "dispatch": "dglrun.commands.dispatch",
    "verify": "dglrun.commands.verify",
    "report": "dglrun.commands.report",
}
"""Modules with `main(argv) -> int`, or with `add_parser(subparsers)` and `run(args) -> int`."""

_TOOLS_OF_2021 = ("dispatch_entry_point", "launch_entry_point", "revise_hostfile_entry_point")


class UsageError(Exception):
    """The command line is not what it must be."""


class _Parser(argparse.ArgumentParser):
    """Raises instead of leaving, and names the flag that was probably meant."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message)

    def suggestion(self, unknown: str) -> str:
        known = [flag for action in self._actions for flag in action.option_strings]
        near = difflib.get_close_matches(unknown.split("=", maxsplit=1)[0], known, 1)
        return f"did you mean {near[0]}?" if near else "dglrun --help lists the flags"


def split(argv: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Our own arguments, and those behind `--`, which go to the training script as they are."""
    if "--" not in argv:
        return list(argv), ()
    at = list(argv).index("--")
    return list(argv[:at]), tuple(argv[at + 1 :])


def parse(argv: Sequence[str]) -> tuple[dict[str, object], bool, tuple[str, ...]]:
    """Read the workflow's flags.

    Returns:
        The flags by the names of `RunConfig`, None where unset; whether it is a dry run; the arguments of
        the script.

    Raises:
        UsageError: a flag is unknown or has no value; says which, and what was probably meant.
    """
    own, script_args = split(argv)
    parser = workflow_parser()
    known, unknown = parser.parse_known_args(own)
    if unknown:
        raise UsageError(
            f"unknown argument {unknown[0]!r}: {parser.suggestion(unknown[0])}"
            " (arguments of the training script go behind --)"
        )
    flags = vars(known)
    if known.verbose and not known.dry_run:
        raise UsageError("--verbose: expected --dry-run with it; the log of a run is always whole")
    _say_ignored(flags)
    return flags, bool(flags.pop("dry_run")), script_args


def workflow_parser() -> _Parser:
    """The flags of the 2021 `dglrun`, in both spellings of the workspace, and ours."""
    parser = _Parser(
        "dglrun",
        allow_abbrev=False,
        description="Partitions a graph and trains on it, in the pods of a DGLJob.",
        epilog="What follows -- goes to the training script. Also: dglrun " + "|".join(COMMANDS),
    )
    _add_graph_flags(parser.add_argument_group("graph and partition"))
    _add_training_flags(parser.add_argument_group("training"))
    _add_place_flags(parser.add_argument_group("places and limits"))
    _add_flags_of_2021(parser.add_argument_group("accepted for the sake of 2021, without effect"))
    return parser


def run_command(argv: Sequence[str]) -> int:
    """Run a subcommand; returns its exit code."""
    name, *rest = argv
    try:
        module = importlib.import_module(COMMANDS[name])
    except ModuleNotFoundError as error:
        print(f"dglrun {name}: this image lacks the Python package {error.name}", file=sys.stderr)
        return exitcodes.USAGE
    if hasattr(module, "main"):
        return int(module.main(rest))
    parser = argparse.ArgumentParser("dglrun", allow_abbrev=False)
    module.add_parser(parser.add_subparsers(dest="command", required=True))
    try:
        return int(module.run(parser.parse_args(argv)))
    except OSError as error:
        print(f"dglrun {name}: {error}", file=sys.stderr)
        return exitcodes.IO


def _add_graph_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("-g", "--graph-name", help="graph name: file stem of the partition's JSON")
    group.add_argument("--num-partitions", metavar="N", help="parts, as many as workers")
    group.add_argument("--partition-entry-point", metavar="FILE", help="partition script")
    group.add_argument("--chunked-graph", metavar="DIR", help="chunked graph to partition, no script needed")
    group.add_argument(
        "--partition-backend", metavar="NAME", help="for --chunked-graph: dglrun partition --help"
    )
    group.add_argument(
        "--partition-assignment", metavar="DIR", help="for --partition-backend user: <ntype>.txt of your own"
    )
    group.add_argument("--partition-ranks", metavar="N", help="processes that partition a chunked graph")
    group.add_argument(
        "--partition-balance", metavar="WORDS", help="ParMETIS modes: nodes, types, edges (types,edges)"
    )
    group.add_argument("--partition-seed", metavar="N", help="seed of the back end (1)")
    group.add_argument("--partition-timeout", metavar="SECONDS", help="deadline of each mpirun (86400)")
    group.add_argument("--interface", metavar="NAME", help="network interface of the pods for MPI (eth0)")
    group.add_argument("--balance-train", action="store_true", default=None, help="balance training nodes")
    group.add_argument("--balance-edges", action="store_true", default=None, help="balance edges")
    group.add_argument(
        "--use-graphbolt",
        action="store_true",
        default=None,
        help="for --chunked-graph: write GraphBolt's form too",
    )
    group.add_argument("--verify", metavar="WHEN", help="check partitions: auto (small ones), always, never")
    group.add_argument("--dataset-url", metavar="URL", help="given to the partition script")


def _add_training_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--train-entry-point", metavar="FILE", help="training script")
    group.add_argument("--num-epochs", metavar="N", help="given to the training script as --num_epochs")
    group.add_argument("--batch-size", metavar="N", help="given to the training script as --batch_size")
    group.add_argument("--num-trainers", metavar="N", help="trainers on each worker (1)")
    group.add_argument("--num-samplers", metavar="N", help="sampler processes of each trainer (0)")
    group.add_argument("--num-servers", metavar="N", help="DGL servers on each worker (1)")
    group.add_argument("--num-gpus", metavar="N", help="GPUs of each worker, given as --num_gpus")
    group.add_argument("--backend", help="gloo or nccl, given to the training script as --backend")
    group.add_argument("--graph-format", metavar="FORMATS", help="in memory (csc); for edge tasks csc,coo")


def _add_place_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--workspace", "--worksapce", metavar="DIR", help="(/dgl_workspace; both spellings are understood)"
    )
    group.add_argument("--dataset-dir", metavar="DIR", help="dataset volume of the launcher")
    group.add_argument("--partition-config-path", metavar="FILE", help="the partition's JSON on the launcher")
    group.add_argument("--output-dir", metavar="DIR", help="DGL_OUTPUT_DIR (<workspace>/output)")
    group.add_argument("--start-timeout", metavar="SECONDS", help="deadline for pods and streams (600)")
    group.add_argument("--lease", metavar="SECONDS", help="workers end what hears no launcher so long (30)")
    group.add_argument("--shm-dir", metavar="DIR", help="shared memory of the workers (/dev/shm)")
    group.add_argument("--python", metavar="FILE", help="interpreter of the scripts (the one of dglrun)")
    group.add_argument("--dry-run", action="store_true", help="print the plan as YAML and stop")
    group.add_argument(
        "-v", "--verbose", action="store_true", help="with --dry-run: whole commands, environments and specs"
    )


def _add_flags_of_2021(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--num-workers", help=argparse.SUPPRESS)
    for name in _TOOLS_OF_2021:
        group.add_argument("--" + name.replace("_", "-"), help=argparse.SUPPRESS)


def _say_ignored(flags: dict[str, object]) -> None:
    ignored: Mapping[str, object] = {name: flags.pop(name) for name in ("num_workers", *_TOOLS_OF_2021)}
    for name, value in ignored.items():
        if value is not None:
            flag = "--" + name.replace("_", "-")
            print(f"dglrun: note: {flag} {value} has no effect", file=sys.stderr)
