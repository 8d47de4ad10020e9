"""One rank: `python -m mpi4py -m dglrun.commands.partition_rank`, the program that mpirun starts."""

import sys
from pathlib import Path

from dglrun.commands import elapsed, flags, program
from dglrun.commands.arguments import Parser, above, whole
from dglrun.formats import assignment
from dglrun.mpi.collectives import MpiRanks
from dglrun.mpi.watchdog import WAIT
from dglrun.partitioning import ON_WORKERS
from dglrun.partitioning.distributed import rank_main


def main(argv: list[str]) -> int:
    """Parse the flags of `dglrun partition` that a rank needs, and run."""
    args = _parser().read(argv)
    ranks = MpiRanks(args.timeout)
    with elapsed.showing_on_first(ranks.rank, f"dglrun partition: {args.backend}"):
        return rank_main.main(ranks, args)


def _parser() -> Parser:
    parser = Parser("dglrun.commands.partition_rank", description="Internal: one rank of dglrun partition.")
    parser.add_argument("--in-dir", type=flags.folder, required=True)
    parser.add_argument("--metadata-filename", required=True)
    parser.add_argument("--out-dir", type=Path, required=True)
    parser.add_argument("--backend", choices=ON_WORKERS, required=True)
    parser.add_argument("--num-parts", type=whole(1, assignment.MAX_PARTS), required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--balance", required=True)
    parser.add_argument("--imbalance", type=above(1.0), required=True)
    parser.add_argument("--assignment", type=Path)
    parser.add_argument("--block-rows", type=whole(1), default=rank_main.BLOCK_ROWS)
    parser.add_argument("--timeout", type=above(0), default=WAIT, help="seconds that a rank waits for others")
    return parser


if __name__ == "__main__":
    sys.exit(program.internal(main))
