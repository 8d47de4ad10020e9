"""`dglrun partition`: assign the nodes of a chunked graph to parts by the back end that is named.

Writes `<ntype>.txt` for every node type and partition_meta.json. Back ends: random, metis, kaminpar, user
(an assignment that you bring) in this process; zoltan, parmetis, streaming, pm_dglpart by MPI ranks, in mode
DistParMETIS random and user too. A mode has a default and never runs another back end than the one it names.
"""

import argparse
import os
import shlex
import shutil
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from dglrun import cgroup
from dglrun.commands import elapsed, flags
from dglrun.commands.arguments import UsageError, above, whole
from dglrun.contract import env, exitcodes, hostfile
from dglrun.contract.names import Mode
from dglrun.formats import assignment, output_folder, writable
from dglrun.formats.assignment import AssignmentMeta, Parts
from dglrun.formats.assignment_shares import assignment_file
from dglrun.formats.chunked import check, input_file
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.mpi import mpirun
from dglrun.mpi.watchdog import WAIT
from dglrun.partitioning import (
    BACKENDS,
    IMBALANCE,
    IN_PROCESS,
    ON_RANKS,
    PROGRAM,
    kaminpar,
    partition_quality,
    serial,
)
from dglrun.partitioning.distributed import libraries, pm_dglpart
from dglrun.partitioning.weights import Balance, without_effect

TRIAL_SECONDS = 120.0
"""Until MPI's daemons run on all hosts."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of `partition`."""
    flags.add_chunked_graph(parser)
    flags.add_out_dir(parser, "the assignment")
    parser.add_argument(
        "--num-parts",
        "--num-partitions",
        type=whole(1, assignment.MAX_PARTS),
        required=True,
        metavar="N",
        help="number of parts, at most as many as nodes",
    )
    parser.add_argument(
        "--mode",
        choices=[mode.value for mode in BACKENDS],
        default=_mode_of_job(),
        help="partition mode (default: that of the job, else DGL-API)",
    )
    defaults = ", ".join(f"{names[0]} in {mode.value}" for mode, names in BACKENDS.items())
    parser.add_argument(
        "--backend", choices=(*IN_PROCESS, *ON_RANKS, PROGRAM), help=f"who partitions (default: {defaults})"
    )
    _add_quality(parser)
    parser.add_argument(
        "--assignment", type=Path, metavar="DIR", help="back end user: folder of your <ntype>.txt files"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would run and be written, and exit"
    )
    _add_ranks(
        parser.add_argument_group("MPI ranks (zoltan, parmetis, streaming, pm_dglpart; all in DistParMETIS)")
    )


def _add_quality(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the back end (default: 1)")
    parser.add_argument(
        "--balance",
        type=_balance,
        default="types,edges",
        metavar="WORDS",
        help="nodes, types, edges, train (training nodes), joined by commas (default: types,edges)",
    )
    parser.add_argument(
        "--imbalance",
        type=above(1.0),
        default=IMBALANCE,
        metavar="RATIO",
        help="largest part over the mean that is allowed (default: 1.05)",
    )


def _balance(text: str) -> str:
    try:
        Balance.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _mode_of_job() -> str:
    """The job's mode if it is one that partitions."""
    found = os.environ.get(env.PARTITION_MODE)
    return found if found in [mode.value for mode in BACKENDS] else Mode.DGL_API.value


def _add_ranks(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--ranks",
        type=whole(1),
        metavar="N",
        help="processes (default: the container's CPUs; in DistParMETIS one on each host)",
    )
    group.add_argument(
        "--hostfile", type=Path, metavar="FILE", help="DistParMETIS: hostfile (default: the job's)"
    )
    group.add_argument(
        "--agent",
        metavar="FILE",
        help="DistParMETIS: runs a command in a pod (default: the job's kubexec.sh)",
    )
    group.add_argument(
        "--interface", default="eth0", metavar="NAME", help="network interface of the pods (default: eth0)"
    )
    flags.add_deadline(group)
    group.add_argument(
        "--work-dir",
        type=Path,
        metavar="DIR",
        help="kaminpar, pm_dglpart: folder for the graph's rows (default: --out-dir)",
    )


def run(args: argparse.Namespace) -> int:
    """Partition; returns the exit code: 0, 124 after the deadline, or that of the rank that failed first.

    Raises:
        UsageError: contradicting flags.
        DataError: bad input, more parts than nodes, or an output that cannot be written.
        BackendMissingError: the back end is not installed.
        BackendFailedError: it failed.
    """
    backend = chosen(args)
    if not args.dry_run and Mode(args.mode) is not Mode.DIST_PARMETIS:
        writable.require_folder(args.out_dir)
    if (
        backend in ON_RANKS or Mode(args.mode) is Mode.DIST_PARMETIS
    ):  # the ranks lock the folder, on every host that has one
        return _by_ranks(args, backend)
    with nullcontext() if args.dry_run else output_folder.reserved(args.out_dir):
        return _in_process(args, backend) if backend in IN_PROCESS else _by_pm_dglpart(args)


def chosen(args: argparse.Namespace) -> str:
    """The back end that runs: the named one, else the mode's default.

    Raises:
        UsageError: the mode has no such back end, or a flag is missing.
    """
    mode = Mode(args.mode)
    backend: str = args.backend or BACKENDS[mode][0]
    if backend not in BACKENDS[mode]:
        known = ", ".join(BACKENDS[mode])
        raise UsageError(f"--backend: expected {known} in mode {mode.value}, got {backend!r}")
    if (backend == "user") != (args.assignment is not None):
        raise UsageError("--assignment and --backend user must be used together")
    return backend


def _loaded(args: argparse.Namespace) -> ChunkedGraph:
    """The graph's metadata.

    Raises:
        DataError: they are bad, or there are fewer nodes than parts.
    """
    graph = ChunkedGraph.load(args.in_dir, args.metadata_filename)
    check.check_parts(graph, args.num_parts)
    return graph


def _in_process(args: argparse.Namespace, backend: str) -> int:
    graph = _loaded(args)
    if args.dry_run:
        return _say_plan(args, graph, f"{backend} in this process")
    with elapsed.showing("dglrun partition: checking the files"):
        check.check_counts(graph)
    details: dict[str, Any] = {}
    if note := without_effect(backend, Balance.parse(args.balance)):
        print(note, file=sys.stderr, flush=True)
    if backend == "random":
        parts = serial.random_parts(graph, args.num_parts, args.seed)
        details = {"seed": args.seed}
    elif backend == "user":
        parts = _brought(args, graph)
    else:
        parts, library = _by_library(args, graph, backend)
        words = sorted(args.balance.split(","))
        details = {"library": library, "seed": args.seed, "balance": words, "imbalance": args.imbalance}
    return _finish(args, graph, parts, AssignmentMeta(args.num_parts, backend, details))


def _by_library(args: argparse.Namespace, graph: ChunkedGraph, backend: str) -> tuple[dict[str, Parts], str]:
    """Parts by METIS or KaMinPar, and the library's name."""
    balance = Balance.parse(args.balance)
    with elapsed.showing(f"dglrun partition: {backend}"):
        if backend == "metis":
            return serial.metis_parts(graph, args.num_parts, args.seed, balance, args.imbalance)
        work = args.work_dir or args.out_dir
        _remove_leftovers(args.out_dir, kaminpar.PREFIX)
        return serial.kaminpar_parts(graph, work, args.num_parts, args.seed, balance, args.imbalance)


def _say_plan(args: argparse.Namespace, graph: ChunkedGraph, how: str) -> int:
    """The dry run of what is no command: what would be read, run and written."""
    nodes, edges = sum(graph.num_nodes), sum(graph.num_edges)
    files = ", ".join([*(assignment_file(Path(), ntype).name for ntype in graph.ntypes), assignment.META])
    print(f"read {args.in_dir}: {nodes} nodes, {edges} edges")
    print(f"run {how}: {args.num_parts} parts")
    print(f"write {args.out_dir}: {files}")
    return exitcodes.OK


def _brought(args: argparse.Namespace, graph: ChunkedGraph) -> dict[str, Parts]:
    """The user's own files: whole and in range; their partition_meta.json is not needed."""
    return {
        ntype: assignment.load_parts(assignment_file(args.assignment, ntype), count, args.num_parts)
        for ntype, count in zip(graph.ntypes, graph.num_nodes, strict=True)
    }


def _finish(
    args: argparse.Namespace, graph: ChunkedGraph, parts: dict[str, Parts], meta: AssignmentMeta
) -> int:
    with elapsed.showing("dglrun partition: measuring and writing"):
        details = partition_quality.of_assignment(graph, parts, args.num_parts).details(graph.ntypes)
        assignment.write(args.out_dir, graph, parts, replace(meta, details={**meta.details, **details}))
    _say(args.out_dir)
    return exitcodes.OK


def _say(out_dir: Path) -> None:
    """One line that says which back end ran and how good the result is."""
    meta = assignment.load_meta(out_dir)
    known = meta.details
    cut, edges, nodes = (known[key] for key in ("edge_cut_ratio", "edge_balance", "node_balance"))
    quality = f"edge cut {cut:.1%}, edge balance {edges}, node balance {nodes}"
    print(f"dglrun partition: {meta.method} made {meta.num_parts} parts: {quality} ({out_dir})", flush=True)


def _by_ranks(args: argparse.Namespace, backend: str) -> int:
    mpirun.require()
    remote = _remote(args)
    if remote is None:
        if backend in libraries.SONAMES:
            libraries.load(backend)
        _loaded(args)
    ranks = args.ranks or (len(remote.hosts) if remote else max(1, int(cgroup.cpu_limit())))
    job = mpirun.Job(_program(args, backend), ranks, remote, env=mpirun.RANK_ENV | mpirun.KEEP_FREED)
    if args.dry_run:
        print(shlex.join(mpirun.argv(job, Path("<hostfile>") if remote else None)))
        return exitcodes.OK
    code = _run_ranks(args, job)
    if code == exitcodes.OK and (args.out_dir / assignment.META).is_file():
        _say(args.out_dir)
    return code


def _run_ranks(args: argparse.Namespace, job: mpirun.Job) -> int:
    """Run the ranks to their end; over pods, after a trial."""
    if job.remote is None:
        return mpirun.run(mpirun.argv(job), args.deadline)
    with tempfile.TemporaryDirectory() as folder:
        hosts = Path(folder) / "hostfile"
        hosts.write_text(mpirun.hostfile(job.remote))
        if not _reached(job.remote, hosts):
            return exitcodes.UNAVAILABLE
        return mpirun.run(mpirun.argv(job, hosts), args.deadline)


def _reached(remote: mpirun.Remote, hosts: Path | None) -> bool:
    """Whether ranks can be started on all hosts; why not has been printed."""
    code = mpirun.run(mpirun.argv(mpirun.trial(remote), hosts), TRIAL_SECONDS)
    if code != exitcodes.OK:
        names = ", ".join(remote.hosts)
        print(
            f"dglrun partition: MPI could not be started on {names} over interface {remote.interface} "
            f"(mpirun: {code})",
            file=sys.stderr,
            flush=True,
        )
    return code == exitcodes.OK


def _remote(args: argparse.Namespace) -> mpirun.Remote | None:
    """The workers of DistParMETIS; None in the other modes.

    Raises:
        UsageError: there is no hostfile, no agent, no host, or no such interface.
    """
    if Mode(args.mode) is not Mode.DIST_PARMETIS:
        return None
    path = args.hostfile or os.environ.get(env.HOSTFILE_PATH)
    agent = args.agent or os.environ.get(env.KUBEXEC_PATH)
    if not path or not agent:
        raise UsageError("--mode DistParMETIS needs --hostfile and --agent outside of a job")
    try:
        hosts = hostfile.parse_hosts(Path(path).read_text())
    except (OSError, hostfile.HostfileError) as error:
        raise UsageError(f"{path}: {error}") from None
    if not hosts:
        raise UsageError(f"{path}: the hostfile names no worker")
    slots = -(-(args.ranks or len(hosts)) // len(hosts))
    try:
        return mpirun.Remote(tuple(host.name for host in hosts), str(agent), args.interface, slots)
    except ValueError as error:
        raise UsageError(f"--{error}") from None


def _program(args: argparse.Namespace, backend: str) -> tuple[str, ...]:
    flags = {
        "--in-dir": input_file.absolute(args.in_dir),
        "--metadata-filename": args.metadata_filename,
        "--out-dir": args.out_dir.absolute(),
        "--backend": backend,
        "--num-parts": args.num_parts,
        "--seed": args.seed,
        "--balance": args.balance,
        "--imbalance": args.imbalance,
        "--timeout": min(WAIT, args.deadline),
        **({"--assignment": args.assignment.absolute()} if args.assignment else {}),
    }
    words = [word for flag, value in flags.items() for word in (flag, str(value))]
    return (sys.executable, "-m", "mpi4py", "-m", "dglrun.commands.partition_rank", *words)


def _by_pm_dglpart(args: argparse.Namespace) -> int:
    graph = _loaded(args)
    if args.dry_run:
        return _say_plan(args, graph, f"{pm_dglpart.find()} by mpirun")
    check.check_counts(graph)
    work = args.work_dir or args.out_dir
    _remove_leftovers(args.out_dir, pm_dglpart.PREFIX)
    ranks = args.ranks or max(1, int(cgroup.cpu_limit()))
    by_degree = "edges" in args.balance.split(",")
    _say_what_pm_dglpart_ignores(args)
    with elapsed.showing("dglrun partition: pm_dglpart"):
        code, parts = pm_dglpart.partition(graph, work, args.num_parts, ranks, by_degree, args.deadline)
    if code != exitcodes.OK:
        return code
    balanced = ["edges", "types"] if by_degree else ["types"]
    details = {"library": pm_dglpart.find(), "ranks": ranks, "balance": balanced}
    return _finish(args, graph, parts, AssignmentMeta(args.num_parts, "pm_dglpart", details))


def _remove_leftovers(out_dir: Path, prefix: str) -> None:
    """Working folders of a killed run: this one holds the target."""
    for left in out_dir.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)


def _say_what_pm_dglpart_ignores(args: argparse.Namespace) -> None:
    """Its command line has neither; its weights are one for each node type."""
    told = {
        "--seed": args.seed != 1,
        "--imbalance": args.imbalance != IMBALANCE,
        "--balance nodes": "types" not in args.balance.split(","),
        "--balance train": "train" in args.balance.split(","),
    }
    ignored = [flag for flag, is_asked in told.items() if is_asked]
    if ignored:
        print(f"dglrun partition: note: pm_dglpart has its own {', '.join(ignored)}", flush=True)
