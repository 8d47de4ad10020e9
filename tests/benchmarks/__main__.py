"""`make bench`: performance beside the peers', in one run, as ratios. ONLY names one benchmark.

dispatch: beside DGL's pipeline. DGL_TOOLS names the `tools` of a DGL 2.1 checkout and DGL_PYTHON a Python
that runs them; without them only ours is measured, and the benchmark says so.
operator: many jobs at once on fake nodes, beside mpi-operator when MPI_OPERATOR names its binary. It brings
the one-node cluster up unless KUBECONFIG names another.
transfer: a partition from the partitioner's disk to the workers' disks, beside kubectl cp, plain TCP and one
TLS stream, between pods of that cluster.
assign: KaMinPar beside METIS on graphs of 40M edges.
dgl-api: DGL-API's stage on a chunked graph beside DGL's partition_graph.
agents: a launcher with a hundred workers on this machine by `dglrun local`; needs root.
training: time per epoch under dglrun beside the same processes started by hand; needs root.
chunk: tables with string IDs to a chunked graph.
verify: the check of the parts in DistParMETIS, beside dispatch.

With ONLY, BENCH_ARGS adds arguments (sizes, ranks, formats; jobs; workers). All back ends on a graph of your
own: `python -m tests.benchmarks.partition_speed FOLDER`.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

from tests.cluster import other
from tests.cluster.places import Places

Prepare = Callable[[], Mapping[str, str]]


def main(env: Mapping[str, str] = os.environ) -> int:
    """Run the benchmarks; returns the first exit code that is not 0."""
    only, arguments = env.get("ONLY", ""), shlex.split(env.get("BENCH_ARGS", ""))
    try:
        names = chosen(only, arguments)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    codes = []
    for name in names:
        module, prepare = BENCHMARKS[name]
        argv = (sys.executable, "-m", f"tests.benchmarks.{module}", *arguments)
        codes.append(subprocess.call(argv, env={**env, **prepare()}))
    return next((code for code in codes if code), 0)


def chosen(only: str, arguments: Sequence[str]) -> list[str]:
    """The benchmarks to run.

    Raises:
        ValueError: there is none of this name, or the arguments would go to several.
    """
    if only and only not in BENCHMARKS:
        raise ValueError(f"ONLY={only}: no such benchmark, expected one of {', '.join(BENCHMARKS)}")
    if arguments and not only:
        raise ValueError(f"BENCH_ARGS needs ONLY: arguments belong to one of {', '.join(BENCHMARKS)}")
    return [only] if only else list(BENCHMARKS)


def _cluster_with_image() -> Mapping[str, str]:
    """As above, and the job image is on it."""
    found = _cluster()
    subprocess.run((sys.executable, "-m", "tests.cluster", "images", "job"), check=True)
    return found


def _nothing() -> Mapping[str, str]:
    return {}


def _cluster() -> Mapping[str, str]:
    """Bring the one-node cluster up, unless the user names one; returns how to reach it."""
    subprocess.run((sys.executable, "-m", "tests.cluster", "up"), check=True)
    places = Places.here()
    if other.given(places) is not None:
        return {}
    return {"KUBECONFIG": str(places.kubeconfig), "DGL_OPERATOR_AUDIT_LOG": str(places.audit_log)}


BENCHMARKS: dict[str, tuple[str, Prepare]] = {
    "assign": ("assign_bench", _nothing),
    "dgl-api": ("dgl_api_bench", _nothing),
    "chunk": ("chunk_bench", _nothing),
    "dispatch": ("dispatch_bench", _nothing),
    "operator": ("operator_bench", _cluster),
    "transfer": ("transfer_bench", _cluster_with_image),
    "agents": ("agents", _nothing),
    "training": ("training_bench", _nothing),
    "verify": ("verify_bench", _nothing),
}
"""Name -> module below tests.benchmarks, and what is needed before."""


if __name__ == "__main__":
    sys.exit(main())
