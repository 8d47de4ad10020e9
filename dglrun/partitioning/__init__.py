"""Partition assignment: which part each node belongs to (step 1 of the pipeline, user guide 7.1.2).

Whatever the method, the result is `<ntype>.txt` for every node type and partition_meta.json.
"""

from dglrun.contract.names import Mode

IMBALANCE = 1.05
"""The largest part over the mean that is asked for by default."""

IN_PROCESS = ("random", "metis", "kaminpar", "user")
"""Back ends that run in one process; `user` takes an assignment that the user has made."""
ON_RANKS = ("zoltan", "parmetis", "streaming")
"""Back ends that run on MPI ranks of ours."""
ON_WORKERS = (*ON_RANKS, "random", "user")
"""Back ends that run on MPI ranks in mode DistParMETIS."""
PROGRAM = "pm_dglpart"
"""The back end that is a program of its own, started by mpirun."""
BACKENDS = {
    Mode.DGL_API: ("metis", "kaminpar", "random", "user"),
    Mode.PARMETIS: ("parmetis", PROGRAM, "zoltan", "streaming", "metis", "kaminpar", "random", "user"),
    Mode.DIST_PARMETIS: ("parmetis", "zoltan", "streaming", "random", "user"),
}
"""Of each mode: the first one is the default, and none runs that was not named."""
DGL_METHODS = ("metis", "random")
"""Methods of DGL's own partition_graph, by which DGL assigns the nodes of a chunked graph in mode DGL-API."""
DGL_API_BACKENDS = (*DGL_METHODS, "kaminpar")
"""Back ends of a job in mode DGL-API; with one that DGL does not have, our own dispatch writes the parts."""
