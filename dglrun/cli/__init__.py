"""The command line of `dglrun`: the workflow's flags, and the subcommands, imported when asked for."""

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dglrun.commands import program
from dglrun.commands.arguments import Parser, UsageError, meant
from dglrun.contract import exitcodes
from dglrun.partitioning import IN_PROCESS, ON_RANKS, PROGRAM


@dataclass(frozen=True)
class Command:
    """A subcommand for users; its module has `add_flags(parser)` and `run(args) -> int`.

    Attributes:
        summary: What it does, in one line.
        example: A command line.
        description: What it reads and writes.
    """

    summary: str
    example: str
    description: str


COMMANDS = {
    "local": Command(
        "run a DGLJob on this machine, without Kubernetes",
        "dglrun local job.yaml --mount code:/dgl_workspace/code",
        """\
Run the pods of a DGLJob on this machine in the operator's order, with this machine's
programs in place of the images: the same plan, agents and connections.

As root each pod has namespaces (network, mounts, processes) of its own. Otherwise the
job has one worker at most, and its pods are folders. Exit code: the launcher's.""",
    ),
    "chunk": Command(
        "make a chunked graph of csv, Parquet, numpy or DGLGraph files",
        "dglrun chunk --out-dir chunks --name g --nodes paper=4 --edges paper:cites:paper=cites.npy",
        """\
Write a graph in DGL's Chunked Graph Format: metadata.json and a folder of files.

The input is one file of dgl.save_graphs, or tables as TYPE=FILE: edges as
SOURCE:RELATION:DESTINATION=FILE (numpy: integers of shape (edges, 2) or (2, edges);
parquet: two columns), features as TYPE/NAME=FILE, node counts as TYPE=NUMBER where
no feature gives them.

With --config a YAML file describes csv and Parquet tables with IDs of any kind, which
are mapped to 0..n-1; the mapping is kept. Example: docs/howto/tables.md.""",
    ),
    "ids": Command(
        "give predictions the IDs of your tables",
        "dglrun ids --mapping mapping/user.parquet --values pred.npy --out pred.parquet",
        """\
Write values that belong to nodes under the IDs of the tables that `dglrun chunk
--config` read.

Without --partition row i of the values belongs to node i of the chunked graph; with it
to node i of its node type in the partition, as a DistTensor has them.""",
    ),
    "convert": Command(
        "convert ParMETIS text to and from chunked graphs and assignments",
        "dglrun convert to-parmetis --in-dir chunks --out-dir text",
        "Convert between a chunked graph and the text files of ParMETIS and pm_dglpart.",
    ),
    "partition": Command(
        "assign the nodes of a chunked graph to parts",
        "dglrun partition --in-dir chunks --out-dir assignment --num-parts 2",
        """\
Write an assignment: <ntype>.txt for each node type, line i = part of node i, and
partition_meta.json.

The back ends metis, kaminpar, random and user run in this process; zoltan, parmetis,
streaming and pm_dglpart run as MPI ranks, as do random and user in mode
DistParMETIS. A mode has a default back end and never runs another one than the one
that is named.""",
    ),
    "dispatch": Command(
        "build DGL's partition folder from a chunked graph and an assignment",
        "dglrun dispatch --in-dir chunks --partitions-dir assignment --out-dir parts",
        """\
Write the parts of a graph and their JSON, which dgl.distributed loads.

The flags of DGL's dispatch_data.py have the same meaning; neither ssh nor DGL is
needed.""",
    ),
    "partitions": Command(
        "list, show, verify and remove kept partitions",
        "dglrun partitions list /data/partitions",
        """\
Look after the partitions that jobs with --partitions URI have kept: a path, or
s3://bucket/prefix with the usual environment. `dglrun partitions WAY --help` shows the
flags of a way.""",
    ),
    "verify": Command(
        "check a partition folder, and compare it with its source",
        "dglrun verify parts/g.json --in-dir chunks --partitions-dir assignment",
        """\
Check that a partition is consistent in itself and, with --in-dir, that it has each
node, edge and feature row of its source exactly once. Exit code 65: it has not.""",
    ),
    "report": Command(
        "show edge cut, balance and halo of a partition folder",
        "dglrun report parts/g.json --html report.html",
        "Print how good a partition is; write the numbers as JSON, HTML or PNG.",
    ),
}

INTERNAL = {"pack": "dglrun.commands.pack", "supervise": "dglrun.commands.supervise"}
"""What dglrun itself runs on the workers: modules with `main(argv) -> int`, absent from the help."""

_TOOLS_OF_2021 = ("dispatch_entry_point", "launch_entry_point", "revise_hostfile_entry_point")

_USAGE = """dglrun [FLAGS] [-- ARGUMENTS OF THE TRAINING SCRIPT]
       dglrun COMMAND [FLAGS]
       dglrun help [COMMAND]"""


class _Version(argparse.Action):
    """Prints the version and ends; the package's metadata are read only then."""

    def __init__(self, option_strings: Sequence[str], dest: str, **more: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, **more)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        """Leave with 0."""
        print(f"dglrun {version()}")
        parser.exit()


def version() -> str:
    """The version of the installed package."""
    from importlib import metadata  # noqa: PLC0415 - slow, and needed here only

    try:
        return metadata.version("dgl-operator")
    except metadata.PackageNotFoundError:
        return "(version unknown: it was copied here, not installed)"


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
    if not argv:
        raise UsageError("expected a command or the flags of a run: dglrun --help lists them")
    if own and not own[0].startswith("-"):
        raise UsageError(_unknown_command(own[0]))
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


def workflow_parser() -> Parser:
    """The flags of the 2021 `dglrun`, in both spellings of the workspace, and ours."""
    parser = Parser("dglrun", usage=_USAGE, description=_description())
    parser.add_argument("--version", action=_Version, help="print the version and exit")
    group = parser.add_argument_group("graph and partition")
    _add_graph_flags(group)
    _add_backend_flags(group)
    _add_training_flags(parser.add_argument_group("training"))
    _add_place_flags(parser.add_argument_group("places and limits"))
    _add_flags_of_2021(parser.add_argument_group("deprecated; accepted and ignored"))
    return parser


def _description() -> str:
    lines = [f"  {name:<10} {each.summary}\n{'':13}{each.example}" for name, each in COMMANDS.items()]
    return "\n".join(
        (
            "Partition a graph and train on it with DGL, in the pods of a DGLJob. Without a",
            "command dglrun runs the role of its pod; --dry-run shows the plan anywhere:",
            "  dglrun --dry-run -g g --num-partitions 2 --partition-entry-point part.py \\",
            "      --train-entry-point train.py -- --lr 0.1",
            "",
            "commands:",
            *lines,
            f"  {'help':<10} show this help, or that of a command",
        )
    )


def _unknown_command(word: str) -> str:
    near = meant(word, (*COMMANDS, "help"))
    hint = near or "dglrun --help lists the commands; arguments of the training script go behind --"
    return f"unknown argument {word!r}: {hint}"


def is_command(argv: Sequence[str]) -> bool:
    """Whether the command line starts with a command, and not with a flag of the workflow."""
    return bool(argv) and argv[0] in (*COMMANDS, *INTERNAL, "help")


def run_command(argv: Sequence[str]) -> int:
    """Run a subcommand; returns its exit code."""
    name, *rest = argv
    if name == "help":
        return program.run("dglrun help", lambda: _help(rest))
    if name in INTERNAL:
        return int(importlib.import_module(INTERNAL[name]).main(rest))
    return program.run(f"dglrun {name}", lambda: _run(name, rest))


def _help(argv: Sequence[str]) -> int:
    if not argv:
        workflow_parser().print_help()
    elif argv[0] not in COMMANDS:
        raise UsageError(f"unknown command {argv[0]!r}: {meant(argv[0], COMMANDS) or ', '.join(COMMANDS)}")
    else:
        command_parser(argv[0]).print_help()
    return exitcodes.OK


def _run(name: str, argv: Sequence[str]) -> int:
    """Import the command's module, which may need packages, and run it."""
    try:
        args = command_parser(name).read(argv)
        with program.naming(getattr(args, "out_dir", None)):
            return int(_module(name).run(args))
    except ModuleNotFoundError as error:
        text = f"this Python lacks the package {error.name}"
        return program.complain(f"dglrun {name}", text, exitcodes.USAGE)


def command_parser(name: str) -> Parser:
    """The flags of a command, imported with its module."""
    command = COMMANDS[name]
    parser = Parser(
        f"dglrun {name}", description=command.description, epilog=f"example:\n  {command.example}"
    )
    _module(name).add_flags(parser)
    return parser


def _module(name: str) -> Any:
    return importlib.import_module(f"dglrun.commands.{name}")


def _add_graph_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "-g", "--graph-name", metavar="NAME", help="graph name: file stem of the partition's JSON"
    )
    group.add_argument(
        "--num-partitions", metavar="N", help="number of partitions; must equal the number of workers"
    )
    group.add_argument("--partition-entry-point", metavar="FILE", help="partition script")
    group.add_argument(
        "--chunked-graph",
        metavar="DIR",
        help="chunked graph to partition instead of a script: folder, or s3://bucket/prefix",
    )
    group.add_argument("--balance-train", action="store_true", default=None, help="balance training nodes")
    group.add_argument("--balance-edges", action="store_true", default=None, help="balance edges")
    group.add_argument(
        "--use-graphbolt", action="store_true", default=None, help="write GraphBolt's format too"
    )
    group.add_argument(
        "--verify",
        choices=("auto", "always", "never"),
        metavar="WHEN",
        help="check the partition: auto (small ones), always, never (default: auto)",
    )
    group.add_argument("--dataset-url", metavar="URL", help="given to the partition script")
    _add_kept_flags(group)


def _add_kept_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--partitions",
        metavar="URI",
        help="keep the partition there, and use it again: a path that all pods mount, or s3://bucket/prefix",
    )
    group.add_argument(
        "--repartition", action="store_true", default=None, help="with --partitions: make and keep it anew"
    )


def _add_backend_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--partition-backend",
        choices=(*IN_PROCESS, *ON_RANKS, PROGRAM),
        metavar="NAME",
        help="for --chunked-graph (default: the first of the mode)",
    )
    group.add_argument(
        "--partition-assignment", metavar="DIR", help="for --partition-backend user: your <ntype>.txt files"
    )
    group.add_argument(
        "--partition-ranks", metavar="N", help="MPI processes that partition (default: parts or workers)"
    )
    group.add_argument(
        "--partition-balance",
        metavar="WORDS",
        help="nodes, types, edges, train, with commas; not for DGL's own back ends (default: types,edges)",
    )
    group.add_argument("--partition-seed", metavar="N", help="seed of the back end (default: 1)")
    group.add_argument(
        "--partition-timeout", metavar="SECONDS", help="deadline of each mpirun (default: 86400)"
    )
    group.add_argument("--interface", metavar="NAME", help="network interface for MPI (default: eth0)")


def _add_training_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--train-entry-point", metavar="FILE", help="training script")
    group.add_argument("--num-epochs", metavar="N", help="given to the training script as --num_epochs")
    group.add_argument("--batch-size", metavar="N", help="given to the training script as --batch_size")
    group.add_argument("--num-trainers", metavar="N", help="trainers on each worker (default: 1)")
    group.add_argument("--num-samplers", metavar="N", help="sampler processes of each trainer (default: 0)")
    group.add_argument("--num-servers", metavar="N", help="DGL servers on each worker (default: 1)")
    group.add_argument("--num-gpus", metavar="N", help="GPUs of each worker, given as --num_gpus")
    group.add_argument(
        "--backend",
        metavar="NAME",
        help="gloo or nccl, given to the script as --backend",
    )
    group.add_argument(
        "--graph-format",
        metavar="FORMATS",
        help="formats in memory; edge tasks need csc,coo (default: csc)",
    )


def _add_place_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--workspace",
        "--worksapce",
        metavar="DIR",
        help="working folder on every pod (default: /dgl_workspace)",
    )
    group.add_argument(
        "--dataset-dir",
        metavar="DIR",
        help="dataset volume of the launcher (default: /dgl_workspace/dataset)",
    )
    group.add_argument(
        "--partition-config-path",
        metavar="FILE",
        help="the partition's JSON on the launcher (default: <dataset-dir>/<graph>.json)",
    )
    _add_output_flags(group)
    _add_limit_flags(group)


def _add_output_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--output-dir", metavar="DIR", help="DGL_OUTPUT_DIR (default: <workspace>/output)")
    group.add_argument(
        "--checkpoints",
        metavar="URI",
        help="where checkpoints are kept: a path or s3://bucket/prefix (default: on the launcher)",
    )
    group.add_argument(
        "--checkpoint-interval",
        metavar="SECONDS",
        help="look for new checkpoints so often, at most (default: 15)",
    )
    group.add_argument(
        "--checkpoint-bandwidth",
        metavar="MB/S",
        help="at most so much of each worker's network for checkpoints (default: 50)",
    )
    group.add_argument(
        "--output",
        dest="output_uri",
        metavar="URI",
        help="where the output goes in the end: s3://bucket/prefix, or a folder",
    )


def _add_limit_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--start-timeout", metavar="SECONDS", help="deadline for pods and streams (default: 900)"
    )
    group.add_argument(
        "--lease",
        metavar="SECONDS",
        help="stop the worker processes after this many seconds without a launcher heartbeat (default: 30)",
    )
    group.add_argument(
        "--hang-timeout",
        metavar="SECONDS",
        help="fail when no process of the training has been active for so long (default: off)",
    )
    group.add_argument("--shm-dir", metavar="DIR", help="shared memory of the workers (default: /dev/shm)")
    group.add_argument(
        "--python", metavar="FILE", help="interpreter of the scripts (default: the one of dglrun)"
    )
    group.add_argument("--dry-run", action="store_true", help="print the plan as YAML and exit")
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
