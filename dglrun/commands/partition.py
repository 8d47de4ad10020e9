"""`dglrun partition`: assign the nodes of a chunked graph to parts, by the method that is named.

Writes `<ntype>.txt` for every node type and partition_meta.json. Back ends: random, metis, user (an
assignment that you bring) in this process; zoltan, parmetis, pm_dglpart by MPI ranks. A mode has a
default and never runs another back end than the one it names.
"""

import argparse
import os
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from dglrun import cgroup
from dglrun.contract import env, exitcodes, hostfile
from dglrun.contract.names import Mode
from dglrun.errors import BackendFailedError, BackendMissingError, DataError
from dglrun.formats import assignment, output_folder
from dglrun.formats.assignment import AssignmentMeta, Parts
from dglrun.formats.assignment_shares import assignment_file
from dglrun.formats.chunked import check
from dglrun.formats.chunked.metadata import FILENAME, ChunkedGraph
from dglrun.mpi import mpirun
from dglrun.partitioning import BACKENDS, IMBALANCE, IN_PROCESS, ON_RANKS, PROGRAM, partition_quality, serial
from dglrun.partitioning.distributed import libraries, pm_dglpart
from dglrun.partitioning.weights import Balance

DAY = 86400.0
TRIAL_SECONDS = 120.0
"""Until MPI's daemons run on all hosts."""


class UsageError(Exception):
    """The flags contradict one another."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `partition` to dglrun's commands."""
    parser = subparsers.add_parser("partition", help="assign nodes to parts", description=__doc__)
    parser.add_argument("--in-dir", type=Path, required=True, help="folder of the chunked graph")
    parser.add_argument("--metadata-filename", default=FILENAME, help="its name in --in-dir")
    parser.add_argument("--out-dir", type=Path, required=True, help="folder of the assignment")
    parser.add_argument("--num-parts", "--num-partitions", type=int, required=True, help="number of parts")
    parser.add_argument(
        "--mode",
        choices=[mode.value for mode in BACKENDS],
        default=_mode_of_job(),
        help="partition mode of the job (its own, else DGL-API)",
    )
    defaults = ", ".join(f"{mode.value}: {names[0]}" for mode, names in BACKENDS.items())
    parser.add_argument(
        "--backend", choices=(*IN_PROCESS, *ON_RANKS, PROGRAM), help=f"who partitions ({defaults})"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the back end (1)")
    parser.add_argument(
        "--balance", default="types,edges", help="nodes, types, edges, joined by commas (types,edges)"
    )
    parser.add_argument(
        "--imbalance", type=float, default=IMBALANCE, help="largest part over the mean (1.05)"
    )
    parser.add_argument("--assignment", type=Path, help="back end user: folder of your <ntype>.txt files")
    _add_ranks(parser.add_argument_group("MPI ranks (zoltan, parmetis, pm_dglpart)"))


def _mode_of_job() -> str:
    """The job's mode if it is one that partitions."""
    found = os.environ.get(env.PARTITION_MODE)
    return found if found in [mode.value for mode in BACKENDS] else Mode.DGL_API.value


def _add_ranks(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--ranks", type=int, help="processes (the container's CPUs; one for each host)")
    group.add_argument("--hostfile", type=Path, help="DistParMETIS: the job's hostfile")
    group.add_argument("--agent", help="DistParMETIS: script that runs a command in a pod (kubexec.sh)")
    group.add_argument("--interface", default="eth0", help="network interface of the pods (eth0)")
    group.add_argument("--deadline", type=float, default=DAY, help="seconds for mpirun (86400)")
    group.add_argument("--work-dir", type=Path, help="pm_dglpart: folder for its text (in --out-dir)")
    group.add_argument("--dry-run", action="store_true", help="print mpirun's command and stop")


def run(args: argparse.Namespace) -> int:
    """Partition; returns the exit code.

    2: contradicting flags. 65: bad input. 69: the back end is not installed. 70: it failed. 73: --out-dir
    cannot be written. 124: the deadline. Else the code of the rank that failed, 128 + n where signal n
    ended it.
    """
    try:
        backend = chosen(args)
        if backend in ON_RANKS:
            return _by_ranks(args, backend)
        with output_folder.reserved(args.out_dir):
            return _in_process(args, backend) if backend in IN_PROCESS else _by_pm_dglpart(args)
    except UsageError as error:
        return _complain(error, exitcodes.USAGE)
    except (DataError, BackendMissingError, BackendFailedError) as error:
        return _complain(error, error.exit_code)
    except OSError as error:
        return _complain(error, exitcodes.IO)


def _complain(error: Exception, code: int) -> int:
    print(f"dglrun partition: {error}", file=sys.stderr, flush=True)
    return code


def chosen(args: argparse.Namespace) -> str:
    """The back end that runs: the named one, else the mode's default.

    Raises:
        UsageError: the mode has no such back end, or a flag is missing or out of range.
    """
    mode = Mode(args.mode)
    backend: str = args.backend or BACKENDS[mode][0]
    if backend not in BACKENDS[mode]:
        raise UsageError(f"--mode {mode.value} takes --backend {', '.join(BACKENDS[mode])}, got {backend}")
    if (backend == "user") != (args.assignment is not None):
        raise UsageError("--assignment DIR goes with --backend user, and the other way round")
    if not 0 < args.num_parts <= assignment.MAX_PARTS:
        raise UsageError(f"--num-parts: expected 1 to {assignment.MAX_PARTS}, got {args.num_parts}")
    if args.imbalance <= 1.0:
        raise UsageError(f"--imbalance: expected a number above 1, as 1.05, got {args.imbalance}")
    try:
        Balance.parse(args.balance.split(","))
    except ValueError as error:
        raise UsageError(f"--balance: {error}") from None
    return backend


def _in_process(args: argparse.Namespace, backend: str) -> int:
    graph = ChunkedGraph.load(args.in_dir, args.metadata_filename)
    check.check_counts(graph)
    details: dict[str, Any] = {}
    if backend == "random":
        parts = serial.random_parts(graph, args.num_parts, args.seed)
        details = {"seed": args.seed}
    elif backend == "user":
        parts = _brought(args, graph)
    else:
        balance = Balance.parse(args.balance.split(","))
        parts, library = serial.metis_parts(graph, args.num_parts, args.seed, balance, args.imbalance)
        words = sorted(args.balance.split(","))
        details = {"library": library, "seed": args.seed, "balance": words, "imbalance": args.imbalance}
    return _finish(args, graph, parts, AssignmentMeta(args.num_parts, backend, details))


def _brought(args: argparse.Namespace, graph: ChunkedGraph) -> dict[str, Parts]:
    """The user's own files: whole and in range; their partition_meta.json is not needed."""
    return {
        ntype: assignment.load_parts(assignment_file(args.assignment, ntype), count, args.num_parts)
        for ntype, count in zip(graph.ntypes, graph.num_nodes, strict=True)
    }


def _finish(
    args: argparse.Namespace, graph: ChunkedGraph, parts: dict[str, Parts], meta: AssignmentMeta
) -> int:
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
        libraries.load(backend)
    ranks = args.ranks or (len(remote.hosts) if remote else max(1, int(cgroup.cpu_limit())))
    job = mpirun.Job(_program(args, backend), ranks, remote, env=mpirun.RANK_ENV | mpirun.KEEP_FREED)
    with tempfile.TemporaryDirectory() as folder:
        hosts = None
        if remote is not None:
            hosts = Path(folder) / "hostfile"
            hosts.write_text(mpirun.hostfile(remote))
        command = mpirun.argv(job, hosts)
        if args.dry_run:
            print(" ".join(command))
            return exitcodes.OK
        if remote is not None and not _reached(remote, hosts):
            return exitcodes.UNAVAILABLE
        code = mpirun.run(command, args.deadline)
    if code == exitcodes.OK and (args.out_dir / assignment.META).is_file():
        _say(args.out_dir)
    return code


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
        "--in-dir": args.in_dir.absolute(),
        "--metadata-filename": args.metadata_filename,
        "--out-dir": args.out_dir.absolute(),
        "--backend": backend,
        "--num-parts": args.num_parts,
        "--seed": args.seed,
        "--balance": args.balance,
        "--imbalance": args.imbalance,
    }
    words = [word for flag, value in flags.items() for word in (flag, str(value))]
    return (sys.executable, "-m", "mpi4py", "-m", "dglrun.commands.partition_rank", *words)


def _by_pm_dglpart(args: argparse.Namespace) -> int:
    graph = ChunkedGraph.load(args.in_dir, args.metadata_filename)
    check.check_counts(graph)
    work = args.work_dir or args.out_dir
    for left in args.out_dir.glob(f"{pm_dglpart.PREFIX}*"):  # of a killed run: this one holds the folder
        shutil.rmtree(left, ignore_errors=True)
    ranks = args.ranks or max(1, int(cgroup.cpu_limit()))
    by_degree = "edges" in args.balance.split(",")
    _say_what_pm_dglpart_ignores(args)
    code, parts = pm_dglpart.partition(graph, work, args.num_parts, ranks, by_degree, args.deadline)
    if code != exitcodes.OK:
        return code
    balanced = ["edges", "types"] if by_degree else ["types"]
    details = {"library": pm_dglpart.find(), "ranks": ranks, "balance": balanced}
    return _finish(args, graph, parts, AssignmentMeta(args.num_parts, "pm_dglpart", details))


def _say_what_pm_dglpart_ignores(args: argparse.Namespace) -> None:
    """Its command line has neither; its weights are one for each node type."""
    told = {
        "--seed": args.seed != 1,
        "--imbalance": args.imbalance != IMBALANCE,
        "--balance nodes": "types" not in args.balance.split(","),
    }
    ignored = [flag for flag, is_asked in told.items() if is_asked]
    if ignored:
        print(f"dglrun partition: note: pm_dglpart has its own {', '.join(ignored)}", flush=True)
