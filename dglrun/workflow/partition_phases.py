"""The phases before the training: who makes the parts, and how they come to the launcher. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from dglrun.agent import RUN_FOLDER
from dglrun.agent.folder_mark import PREFIX
from dglrun.agent.process_group import RUN_FOLDER_VARIABLE as FOLDER_VARIABLE
from dglrun.contract import names, report
from dglrun.contract.hostfile import Host
from dglrun.mpi import mpirun
from dglrun.partitioning import IMBALANCE
from dglrun.transfer.copy import RECEIVE
from dglrun.transfer.kubectl import Kubectl
from dglrun.workflow import kept_phases
from dglrun.workflow.config import RunConfig
from dglrun.workflow.steps import (
    Argv,
    AwaitContainer,
    CheckKept,
    CheckPartition,
    Cleanup,
    IfKept,
    MeasureQuality,
    PlanPhase,
    Puller,
    ReadQuality,
    ReportKept,
    Run,
    Send,
    Serve,
    Step,
    VerifyPartition,
    WriteText,
)

PHASES = 5
COPIES = 16
"""Workers that get their parts, or send their output, at the same time."""
STARTS = 4
"""Agents, or receivers, that are started at the same time; each start is a kubectl of some 60 MB."""
PULL = ("dglrun.transfer.pull", "--detach")
"""The module that pulls files, and that it goes on by itself."""
CONNECTIONS = 2
"""Of each pod that pulls: while one waits for the disk or a checksum, the other one receives."""
CONTRACT_WITH_PULL = 2
"""The image watcher-loop of an operator of this contract has that module."""
CHEAP_BYTES = 2 << 30
"""Partition files up to this size, in one pod, are verified and measured: some seconds and little memory."""
CLEANUP_LIMIT = 16
CLEANUP_SECONDS = 10.0
READ_SECONDS = 60.0
SCRIPT_ENV = {"DGLBACKEND": "pytorch", "PYTHONUNBUFFERED": "1"}
METADATA = "metadata.json"


def in_partitioner(config: RunConfig, run: str) -> tuple[PlanPhase, ...]:
    """Phases 1 and 2: the user's script, or DGL or our own pipeline on the chunks; then the delivery.

    With --chunked-graph a script, if there is one, writes the chunks. With --partitions nothing is made that
    the store has, and the reference to what it has is delivered.
    """
    script = (_script(config),) if config.partition_entry_point else ()
    make: tuple[Step, ...] = (*script, *_from_chunks(config)) if config.chunked_graph else script
    deliver = _deliver(config, run)
    if config.partitions:
        make = (kept_phases.look(config), IfKept(kept_phases.reference(config), missing=make))
        deliver = _deliver_kept(config, run)
    pod = names.partitioner(config.context.job)
    return (
        PlanPhase(1, PHASES, pod, "load and partition graph", report.STAGE_PARTITIONING, make),
        PlanPhase(2, PHASES, pod, "deliver partitions", report.STAGE_DELIVERING, deliver),
    )


def on_workers(config: RunConfig, hosts: Sequence[Host]) -> tuple[PlanPhase, ...]:
    """Phases 1 to 3 of DistParMETIS: MPI ranks on the workers, started by the job's exec script.

    Each worker reads its share of the chunked graph and ends with its own part, which it checks;
    nothing is delivered and nothing passes through the launcher. With --partitions each keeps its part, or
    takes it from the store.
    """
    numbers = _numbers(config)
    ranks = config.partition_ranks or len(hosts)
    assign = _mpirun(config, hosts, "partitioning", _assign_rank(config), ranks)
    sums = ("--source-sums",) if config.verify == "auto" else ()
    dispatch = _mpirun(config, hosts, "dispatch", (*_dispatch_rank(config), *sums), len(hosts))
    check = _mpirun(
        config, hosts, "checking the parts", _check_rank(config, numbers), len(hosts), mpirun.KEEP_FREED
    )
    first = (_validate_input_on(config, hosts[0].name), *_trial(config, hosts), *assign)
    last = (*check, _read_quality(config, hosts[0].name, numbers))
    make: tuple[tuple[Step, ...], ...] = (first, dispatch, last)
    if config.partitions:
        make = _make_unless_kept(config, hosts, first, dispatch, last)
    return (
        _on_workers(config, 1, "load and partition graph", make[0]),
        _on_workers(config, 2, "make the parts on the workers", make[1]),
        _on_workers(config, 3, "check the parts on the workers", make[2]),
    )


def lost_parts(config: RunConfig, hosts: Sequence[Host], lost: Collection[str]) -> tuple[Step, ...]:
    """DistParMETIS: the parts of workers that were replaced.

    The others have theirs and the assignment, so that a dispatch in which only these parts are sent makes
    them anew. A job that had found its partition in a store takes them from there: it has no assignment.
    """
    parts = ",".join(str(part) for part, host in enumerate(hosts) if host.name in lost)
    program = (*_dispatch_rank(config), "--lost-parts", parts)
    make = _mpirun(config, hosts, "dispatch of the lost parts", program, len(hosts))
    if not config.partitions:
        return make
    fetch = kept_phases.fetch(config, hosts, names.launcher(config.context.job), COPIES, STARTS)
    fetch = replace(fetch, pullers=tuple(each for each in fetch.pullers if each.pod in lost))
    return (IfKept(kept_phases.reference(config), missing=make, kept=(fetch,)),)


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


# --- in the partitioner


def _script(config: RunConfig) -> Run:
    return Run((config.python, config.partition_entry_point or "", *partition_flags(config)), SCRIPT_ENV)


def _from_chunks(config: RunConfig) -> tuple[Run, ...]:
    validate = Run(_validate_input(config), title="validating the chunked graph")
    if config.is_partitioned_by_dgl:
        return (validate, Run(_by_dgl(config), SCRIPT_ENV, "partitioning"))
    assign, dispatch = _assign(config), _dispatch(config)
    return (validate, Run(assign, title="partitioning"), Run(dispatch, title="dispatch"))


def _validate_input(config: RunConfig) -> Argv:
    graph = ("--in-dir", config.chunked_graph or "", "--graph-name", config.graph_name or "")
    return (*_module(config, "dglrun.commands.validate_input"), *graph)


def _by_dgl(config: RunConfig) -> Argv:
    """What a user's script would have of DGL's partition_graph."""
    balance = [
        *(["--balance-train"] if config.balance_train else []),
        *(["--balance-edges"] if config.balance_edges else []),
    ]
    return (
        *_module(config, "dglrun.commands.dgl_api"),
        *("--in-dir", config.chunked_graph or "", "--out-dir", _dataset(config)),
        *("--num-parts", str(config.num_partitions), "--method", config.assigner, *balance),
        *("--seed", str(config.partition_seed)),
        *(["--use-graphbolt"] if config.use_graphbolt else []),
    )


def _assign(config: RunConfig) -> Argv:
    ranks = ("--ranks", str(_local_ranks(config)), "--deadline", str(config.partition_timeout))
    return (
        *(*_module(config, "dglrun"), "partition", "--mode", config.context.mode.value),
        *("--backend", config.assigner, "--in-dir", config.chunked_graph or ""),
        *("--out-dir", _assignment(config), "--num-parts", str(config.num_partitions)),
        *("--balance", config.balance, "--seed", str(config.partition_seed), *ranks),
        *(("--assignment", config.partition_assignment) if config.partition_assignment else ()),
    )


def _dispatch(config: RunConfig) -> Argv:
    ranks = min(_local_ranks(config), config.num_partitions or 1)
    return (
        *(*_module(config, "dglrun"), "dispatch", *_dispatch_flags(config, _dataset(config))),
        *("--ranks", str(ranks), "--deadline", str(config.partition_timeout)),
    )


def _local_ranks(config: RunConfig) -> int:
    return config.partition_ranks or config.num_partitions or 1


def _deliver(config: RunConfig, run: str) -> tuple[Step, ...]:
    pod, produced = names.launcher(config.context.job), config.produced_config
    return (
        *_check(config),
        AwaitContainer(pod, names.WATCHER_PARTITIONER, config.start_timeout),
        _hand_over(config, pod, produced, run),
    )


def _deliver_kept(config: RunConfig, run: str) -> tuple[Step, ...]:
    """A new partition is checked as any other before it is kept; of one that is kept the quality is known."""
    pod, reference = names.launcher(config.context.job), kept_phases.reference(config)
    keep = kept_phases.keep(config, config.produced_config, _numbers(config))
    return (
        IfKept(reference, missing=(*_check(config), keep), kept=(ReportKept(reference),)),
        CheckKept(reference, config.num_partitions or 0),
        AwaitContainer(pod, names.WATCHER_PARTITIONER, config.start_timeout),
        _hand_over(config, pod, reference, run),
    )


def _check(config: RunConfig) -> tuple[Step, ...]:
    return (
        CheckPartition(config.produced_config, config.num_partitions or 0),
        *([_verify(config)] if config.verify != "never" else []),
        _measure(config),
    )


def _hand_over(config: RunConfig, pod: str, produced: str, run: str) -> Serve | Send:
    """The init container of an operator of the contract before cannot pull."""
    kubectl, seconds = _kubectl(config), config.start_timeout
    if config.context.contract < CONTRACT_WITH_PULL:
        receive = kubectl.exec(pod, names.WATCHER_PARTITIONER, *RECEIVE, config.dataset_dir)
        return Send(pod, receive, produced, None, config.dataset_dir, "", seconds)
    # That image has no other Python, and this one need not look for packages.
    pull = kubectl.exec(pod, names.WATCHER_PARTITIONER, "python3", "-S", "-m", *PULL)
    puller = Puller(pod, "", pull, None, config.dataset_dir)
    owner = names.partitioner(config.context.job)
    return Serve(
        *(owner, produced, (puller,), 1, 1, CONNECTIONS),
        keeps_sums=True,
        seconds=seconds,
        marker=f"{PREFIX}{run}",
    )


def _verify(config: RunConfig) -> VerifyPartition:
    produced = config.produced_config
    source: Argv = ()
    if config.chunked_graph:
        assigned = () if config.is_partitioned_by_dgl else ("--partitions-dir", _assignment(config))
        source = ("--in-dir", config.chunked_graph, *assigned)
    command = (*_module(config, "dglrun"), "verify", produced)
    proof = Run((*command, "--for-training", "--dgl", *source), title="verify")
    serving = Run((*command, "--serving-only"), title="verify")
    return VerifyPartition(produced, proof, serving, None if config.verify == "always" else CHEAP_BYTES)


def _measure(config: RunConfig) -> MeasureQuality:
    produced, numbers = config.produced_config, _numbers(config)
    measure = Run((*_module(config, "dglrun"), "report", produced, "--json", numbers))
    return MeasureQuality(produced, measure, numbers)


# --- on the workers


def _make_unless_kept(
    config: RunConfig,
    hosts: Sequence[Host],
    first: tuple[Step, ...],
    dispatch: tuple[Step, ...],
    last: tuple[Step, ...],
) -> tuple[tuple[Step, ...], ...]:
    """The same phases without what the store makes needless; a worker that has made its part keeps it."""
    pod, reference = names.launcher(config.context.job), kept_phases.reference(config)
    look = kept_phases.look_on(config, hosts[0].name)
    made = f"{config.workload}/{config.graph_name}.json"
    program = kept_phases.keep_rank(config, made, _numbers(config))
    keep = _mpirun(config, hosts, "keeping the parts", program, len(hosts))
    kept = (
        ReportKept(reference),
        CheckKept(reference, len(hosts)),
        kept_phases.fetch(config, hosts, pod, COPIES, STARTS),
    )
    return (
        (*look, IfKept(reference, missing=first)),
        (IfKept(reference, missing=dispatch),),
        (IfKept(reference, missing=(*last, *keep), kept=kept),),
    )


def _on_workers(config: RunConfig, number: int, title: str, steps: tuple[Step, ...]) -> PlanPhase:
    pod = names.launcher(config.context.job)
    return PlanPhase(number, PHASES, pod, title, report.STAGE_PARTITIONING, steps)


def _validate_input_on(config: RunConfig, pod: str) -> Run:
    via = _kubectl(config).exec(pod, config.context.container)
    return Run(_validate_input(config), title=f"validating the chunked graph on {pod}", via=via, pods=(pod,))


def _read_quality(config: RunConfig, pod: str, numbers: str) -> ReadQuality:
    # The path goes to the shell as an argument: the workspace is a user's word.
    read = ("sh", "-c", 'if [ -f "$1" ]; then cat "$1"; fi', "sh", numbers)
    argv = _kubectl(config).exec(pod, config.context.container, *read)
    return ReadQuality(pod, numbers, argv, READ_SECONDS)


def _trial(config: RunConfig, hosts: Sequence[Host]) -> tuple[WriteText, Run]:
    """MPI's daemons on all workers and nothing more: what is amiss with them shows before the long run."""
    remote = _remote(config, hosts, len(hosts))
    trial = mpirun.trial(remote, _rank_env(config))
    return _by_mpi(config, remote, trial, "starting MPI", config.start_timeout)


def _mpirun(
    config: RunConfig,
    hosts: Sequence[Host],
    what: str,
    program: Argv,
    ranks: int,
    env: Mapping[str, str] = MappingProxyType({}),
) -> tuple[WriteText, Run]:
    remote = _remote(config, hosts, ranks)
    job = mpirun.Job(program, ranks, remote, env={**_rank_env(config), **env})
    return _by_mpi(config, remote, job, what, config.partition_timeout)


def _by_mpi(
    config: RunConfig, remote: mpirun.Remote, job: mpirun.Job, what: str, seconds: float
) -> tuple[WriteText, Run]:
    """One mpirun over the workers with its deadline, and what ends ranks that it may leave there."""
    hostfile = f"{config.workspace}/mpi-hostfile"
    kill_leftovers = (*_module(config, "dglrun.commands.kill_leftovers"), _run_folder(config))
    leftovers = tuple(
        _kubectl(config).exec(pod, config.context.container, *kill_leftovers) for pod in remote.hosts
    )
    return (
        WriteText(hostfile, mpirun.hostfile(remote)),
        Run(
            job.program,
            title=f"{what} on the workers",
            seconds=seconds,
            via=mpirun.argv(replace(job, program=()), Path(hostfile)),
            pods=remote.hosts,
            ranks=job.ranks,
            cleanup=Cleanup(leftovers, CLEANUP_LIMIT, CLEANUP_SECONDS),
        ),
    )


def _remote(config: RunConfig, hosts: Sequence[Host], ranks: int) -> mpirun.Remote:
    pods = tuple(host.name for host in hosts)
    return mpirun.Remote(pods, config.context.kubexec, config.interface, slots=-(-ranks // len(hosts)))


def _rank_env(config: RunConfig) -> dict[str, str]:
    """Ranks carry the run folder, by which kill_leftovers finds what is left."""
    return {**mpirun.RANK_ENV, "PYTHONUNBUFFERED": "1", FOLDER_VARIABLE: _run_folder(config)}


def _run_folder(config: RunConfig) -> str:
    return f"{config.workspace}/{RUN_FOLDER}"


def _assign_rank(config: RunConfig) -> Argv:
    """One rank; mpi4py's runner ends all ranks when one raises."""
    return (
        *(config.python, "-m", "mpi4py", "-m", "dglrun.commands.partition_rank"),
        *("--in-dir", config.chunked_graph or "", "--metadata-filename", METADATA),
        *("--out-dir", _assignment(config), "--num-parts", str(config.workers)),
        *("--backend", config.assigner, "--balance", config.balance),
        *("--imbalance", str(IMBALANCE), "--seed", str(config.partition_seed)),
        *("--timeout", config.wait_of_ranks),
        *(("--assignment", config.partition_assignment) if config.partition_assignment else ()),
    )


def _dispatch_rank(config: RunConfig) -> Argv:
    return (*_module(config, "dglrun.commands.dispatch_rank"), *_dispatch_flags(config, config.workload))


def _check_rank(config: RunConfig, numbers: str) -> Argv:
    return (
        *(config.python, "-m", "mpi4py", "-m", "dglrun.commands.validate_parts"),
        f"{config.workload}/{config.graph_name}.json",
        *("--in-dir", config.chunked_graph or "", "--partitions-dir", _assignment(config)),
        *("--json", numbers, "--verify", config.verify, "--limit", str(CHEAP_BYTES), "--dgl"),
        *("--timeout", config.wait_of_ranks),
    )


# --- both


def _dispatch_flags(config: RunConfig, out: str) -> Argv:
    """The mapping to the original IDs is kept: it is what a result is read by."""
    return (
        *("--in-dir", config.chunked_graph or "", "--partitions-dir", _assignment(config), "--out-dir", out),
        *("--save-orig-nids", "--save-orig-eids"),
        *(["--use-graphbolt"] if config.use_graphbolt else []),
        *("--process-group-timeout", config.wait_of_ranks),
    )


def _module(config: RunConfig, module: str) -> Argv:
    return (config.python, "-m", module)


def _assignment(config: RunConfig) -> str:
    """Folder of `<ntype>.txt` and partition_meta.json, in the partitioner or on each worker."""
    return f"{config.workspace}/assignment"


def _dataset(config: RunConfig) -> str:
    return f"{config.workspace}/dataset"


def _numbers(config: RunConfig) -> str:
    """The partition's quality where it was measured."""
    return f"{config.workspace}/partition-quality.json"


def _kubectl(config: RunConfig) -> Kubectl:
    return Kubectl(config.context.kubectl, config.context.namespace)
