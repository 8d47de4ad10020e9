"""One MPI program that partitions many small graphs: starting mpirun costs more than all of them.

    mpirun -np 3 python -m mpi4py -m tests.unit.dglrun.partitioning.mpi_many BACKEND FOLDER

Every subfolder `<name>` of FOLDER holds a chunked graph and a file `num_parts`; the assignment goes into
`<name>/out`.
"""

import sys
from pathlib import Path

from dglrun.commands import partition_rank


def main(backend: str, folder: Path) -> int:
    """Partition them all; the first failure is the exit code."""
    for source in sorted(folder.iterdir()):
        code = partition_rank.main(
            [
                *("--in-dir", str(source), "--metadata-filename", "metadata.json"),
                *("--out-dir", str(source / "out"), "--backend", backend),
                *("--num-parts", (source / "num_parts").read_text(), "--seed", "1"),
                *("--balance", "types,edges", "--imbalance", "1.05", "--block-rows", "7"),
            ]
        )
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
