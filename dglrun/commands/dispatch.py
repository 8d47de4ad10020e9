"""`dglrun dispatch`: the flags of DGL's dispatch_data.py with the same meaning, without ssh."""

import argparse
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from dglrun.commands import elapsed, flags, program
from dglrun.commands.arguments import UsageError, above, whole
from dglrun.contract import exitcodes
from dglrun.dispatch import graphbolt, pipeline, source
from dglrun.errors import DataError, Terminated
from dglrun.formats import writable
from dglrun.formats.chunked import input_file
from dglrun.formats.dgl import graphs
from dglrun.mpi import forked_ranks
from dglrun.mpi.collectives import (
    AgreedError,
    MpiRanks,
    Ranks,
    connect,
    is_started_by_mpirun,
    run_on_all_ranks,
)
from dglrun.mpi.watchdog import WAIT

_OF_SSH = ("--ssh-port", "--master-port", "--python-path", "--log-level")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of `dispatch`."""
    flags.add_chunked_graph(parser)
    parser.add_argument(
        "--partitions-dir",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder of <ntype>.txt and partition_meta.json",
    )
    flags.add_out_dir(parser, "the parts")
    parser.add_argument(
        "--ip-config",
        type=Path,
        metavar="FILE",
        help="machines, one on each line; their number must divide the number of parts",
    )
    _add_contents(parser)
    _add_ranks(parser)
    parser.set_defaults(lost_parts=())
    group = parser.add_argument_group("deprecated; accepted and ignored")
    for flag in _OF_SSH:
        group.add_argument(flag, help="flag of DGL's dispatch_data.py")


def _add_contents(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--save-orig-nids", action="store_true", help="keep original node IDs")
    parser.add_argument("--save-orig-eids", action="store_true", help="keep original edge IDs")
    parser.add_argument(
        "--graph-formats",
        type=_formats,
        default=("coo",),
        metavar="FORMATS",
        help="formats of graph.dgl: coo, csc, csr, joined by commas (default: coo)",
    )
    parser.add_argument(
        "--source-sums",
        action="store_true",
        help="leave the sums of what was read (source.sums): the workers' check then reads the parts only",
    )
    parser.add_argument(
        "--use-graphbolt", action="store_true", help="write fused_csc_sampling_graph.pt too (dgl 2.1)"
    )


def _add_ranks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--process-group-timeout",
        type=above(0),
        default=WAIT,
        metavar="SECONDS",
        help=f"a rank that waits longer for others of which none works ends all (default: {WAIT:.0f})",
    )
    parser.add_argument(
        "--ranks",
        type=whole(1),
        default=1,
        metavar="N",
        help="processes on this machine (default: 1)",
    )
    flags.add_deadline(parser, "with --ranks, ")


def _formats(text: str) -> tuple[str, ...]:
    try:
        return graphs.parse_formats(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(args: argparse.Namespace, is_rank: bool = False) -> int:
    """Run one rank, or start several; returns the exit code.

    Args:
        args: The flags.
        is_rank: Whether mpirun starts this program; then MPI is asked for the number of ranks.

    Raises:
        UsageError: a flag needs what is not installed.
        BackendMissingError: there are other ranks, and MPI is not installed here.
    """
    if args.use_graphbolt and (reason := graphbolt.lacking()):
        raise UsageError(reason)
    if args.ranks > 1 and not is_started_by_mpirun():
        return _start(args)
    ranks = connect(args.process_group_timeout, is_rank)
    return _guard(ranks, args.out_dir, lambda: _dispatch(args, ranks))


def _dispatch(args: argparse.Namespace, ranks: Ranks) -> None:
    started = time.monotonic()

    def say(text: str) -> None:
        if ranks.rank == 0:
            print(f"dispatch: {time.monotonic() - started:7.1f} s  {text}", flush=True)

    run_on_all_ranks(ranks, lambda: writable.require_folder(args.out_dir))
    is_by_mpirun = isinstance(ranks, MpiRanks)
    with elapsed.showing_on_first(ranks.rank, "dglrun dispatch", is_rank=is_by_mpirun):
        pipeline.dispatch(_options(args), ranks, say)


def _guard(ranks: Ranks, out: Path, work: Callable[[], None]) -> int:
    """Turn what stops a rank into one clear line and an exit code; a bug keeps its traceback.

    Where all ranks know the error, one says it and all leave after it; else this rank ends the others, by a
    signal, too: left alone they would wait for it, inside of MPI without a deadline.
    """
    try:
        with program.naming(out):
            work()
    except AgreedError as error:
        if ranks.rank == 0:
            _complain(str(error))
        ranks.gather("it is said")  # before the first one that leaves ends the others
        return error.exit_code
    except DataError as error:
        _complain(f"rank {ranks.rank}: {error}")
        return _end(ranks, error.exit_code)
    except OSError as error:
        _complain(f"rank {ranks.rank}: {program.describe(error)}")
        return _end(ranks, exitcodes.IO)
    except (Terminated, KeyboardInterrupt) as ended:
        if not isinstance(ranks, MpiRanks):
            raise
        number = ended.number if isinstance(ended, Terminated) else signal.SIGINT
        _complain(f"rank {ranks.rank}: {program.describe_end(number)}")
        return _end(ranks, 128 + number)
    except Exception:
        traceback.print_exc()
        _complain(f"rank {ranks.rank}: this is a bug in dglrun")
        return _end(ranks, exitcodes.SOFTWARE)
    return exitcodes.OK


def _end(ranks: Ranks, code: int) -> int:
    """End the other ranks with this code; alone, return it."""
    if isinstance(ranks, MpiRanks):
        ranks.abort(code)
    return code


def _complain(text: str) -> None:
    print(f"dglrun dispatch: {text}", file=sys.stderr, flush=True)


def _options(args: argparse.Namespace) -> source.Options:
    return source.Options(
        in_dir=input_file.absolute(args.in_dir),
        partitions_dir=args.partitions_dir.absolute(),
        out_dir=args.out_dir.absolute(),
        metadata_filename=args.metadata_filename,
        ip_config=args.ip_config,
        save_orig_nids=args.save_orig_nids,
        save_orig_eids=args.save_orig_eids,
        formats=args.graph_formats,
        use_graphbolt=args.use_graphbolt,
        lost_parts=args.lost_parts,
        source_sums=args.source_sums,
    )


def _start(args: argparse.Namespace) -> int:
    """Run the ranks on this machine; the exit code is that of the rank that failed first.

    Raises:
        UnwritableError: the output cannot be written.
    """
    writable.require_folder(args.out_dir)
    return forked_ranks.run(
        args.ranks,
        lambda ranks: _guard(ranks, args.out_dir, lambda: _dispatch(args, ranks)),
        name="dglrun dispatch",
        deadline=args.deadline,
        timeout=args.process_group_timeout,
    )
