"""The phases before the training: who makes the parts, and how they come to the launcher. Pure."""

from collections.abc import Sequence
from pathlib import Path

from dglrun.config import RunConfig
from dglrun.contract import names, report
from dglrun.contract.hostfile import Host
from dglrun.contract.names import Mode
from dglrun.copy import RECEIVE
from dglrun.kubectl import Kubectl
from dglrun.mpi import command as mpirun
from dglrun.steps import (
    Argv,
    Assess,
    AwaitContainer,
    CheckPartition,
    Phase,
    ReadAssignment,
    Run,
    Send,
    WriteText,
)

PHASES = 5
DEADLINE = 86400
"""Seconds that mpirun gets for the dispatch on the workers; `dglrun partition` has one of its own."""
CHEAP_BYTES = 2 << 30
"""Partition files up to this size are verified and measured: some seconds and little memory."""


def in_partitioner(config: RunConfig) -> tuple[Phase, ...]:
    """Phases 1 and 2: the user's script, or dglrun's own pipeline on a chunked graph; then the delivery."""
    return (_partition(config), _deliver(config))


def on_workers(config: RunConfig, hosts: Sequence[Host]) -> tuple[Phase, ...]:
    """Phases 1 and 3 of DistParMETIS: MPI ranks on the workers, started by the job's exec script.

    Each worker reads its share of the chunked graph and ends with its own part; nothing is delivered.
    """
    pods = tuple(host.name for host in hosts)
    remote = mpirun.Remote(pods, config.pod.kubexec, config.interface)
    hosts_file = f"{config.workspace}/mpi-hostfile"
    assign = (*_assign(config), "--hostfile", config.pod.hostfile, "--agent", remote.agent)
    assign += ("--interface", config.interface)
    program = (config.python, "-m", "dglrun.distribute", *_dispatch_flags(config, config.workload))
    dispatch = mpirun.argv(mpirun.Job(program, len(pods), remote), Path(hosts_file))
    dispatch = (dispatch[0], "--timeout", str(DEADLINE), *dispatch[1:])
    meta = ("cat", f"{_assignment(config)}/partition_meta.json")
    first = (Run(assign), ReadAssignment(_kubectl(config).exec(pods[0], config.pod.container, *meta)))
    second = (WriteText(hosts_file, mpirun.hostfile(remote)), Run(dispatch))
    return (
        Phase(1, PHASES, "load and partition graph", report.STAGE_PARTITIONING, first),
        Phase(3, PHASES, "dispatch partitions", report.STAGE_DISPATCHING, second),
    )


def partition_flags(config: RunConfig) -> Argv:
    """What the partition script is given: the flags of 2021, each only when set."""
    flags = [
        *("--graph_name", config.graph_name or ""),
        *("--workspace", config.workspace),
        *("--rel_data_path", "dataset"),
        *("--num_parts", str(config.num_partitions)),
    ]
    if config.dataset_url:
        flags += ["--dataset_url", config.dataset_url]
    if config.balance_train:
        flags.append("--balance_train")
    if config.balance_edges:
        flags.append("--balance_edges")
    return tuple(flags)


def _partition(config: RunConfig) -> Phase:
    steps: list[Run] = []
    if config.partition_entry_point:
        argv = (config.python, config.partition_entry_point, *partition_flags(config))
        steps.append(Run(argv, {"DGLBACKEND": "pytorch", "PYTHONUNBUFFERED": "1"}))
    if config.chunked_graph:
        out = f"{config.workspace}/dataset"
        ranks = ("--ranks", str(config.partition_ranks)) if config.partition_ranks else ()
        has_ranks = config.pod.mode is not Mode.DGL_API
        dispatch = (config.python, "-m", "dglrun", "dispatch", *_dispatch_flags(config, out))
        steps.append(Run((*_assign(config), *(ranks if has_ranks else ()))))
        steps.append(Run((*dispatch, *(ranks if has_ranks else ()))))
    return Phase(1, PHASES, "load and partition graph", report.STAGE_PARTITIONING, tuple(steps))


def _deliver(config: RunConfig) -> Phase:
    pod = names.launcher(config.pod.job)
    receive = _kubectl(config).exec(pod, names.WATCHER_PARTITIONER, *RECEIVE, config.dataset_dir)
    steps = (
        CheckPartition(config.produced_config, config.num_partitions or 0),
        _assess(config),
        AwaitContainer(pod, names.WATCHER_PARTITIONER, config.start_timeout),
        Send(pod, receive, f"{config.workspace}/dataset", config.produced_config),
    )
    return Phase(2, PHASES, "deliver partitions", report.STAGE_DELIVERING, steps)


def _assess(config: RunConfig) -> Assess:
    command = (config.python, "-m", "dglrun")
    found = f"{config.workspace}/partition-quality.json"
    source: Argv = ()
    if config.chunked_graph:
        source = ("--in-dir", config.chunked_graph, "--partitions-dir", _assignment(config))
    verify = Run((*command, "verify", config.produced_config, "--for-training", *source))
    measure = Run((*command, "report", config.produced_config, "--json", found))
    limit = None if config.verify == "always" else CHEAP_BYTES
    return Assess(verify if config.verify != "never" else None, measure, found, limit)


def _assign(config: RunConfig) -> Argv:
    backend = ("--backend", config.partition_backend) if config.partition_backend else ()
    return (
        *(config.python, "-m", "dglrun", "partition", "--mode", config.pod.mode.value, *backend),
        *("--in-dir", config.chunked_graph or "", "--out-dir", _assignment(config)),
        *("--num-parts", str(config.num_partitions or config.workers)),
    )


def _dispatch_flags(config: RunConfig, out: str) -> Argv:
    """The mapping to the original IDs is kept: it is what a result is read by."""
    return (
        *("--in-dir", config.chunked_graph or "", "--partitions-dir", _assignment(config), "--out-dir", out),
        *("--save-orig-nids", "--save-orig-eids"),
    )


def _assignment(config: RunConfig) -> str:
    return f"{config.workspace}/assignment"


def _kubectl(config: RunConfig) -> Kubectl:
    return Kubectl(config.pod.kubectl, config.pod.namespace)
