"""From configuration and addresses to the phases of a run. Pure: the same in, the same out."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from dglrun.agent import CAUSES_VARIABLE, PROGRESS_VARIABLE
from dglrun.agent.activity import CPU, OUTPUT
from dglrun.agent.spec import (
    CAUSES_FOLDER,
    INTERFACE,
    MASTER_PORT,
    PROGRESS_FILE,
    THREADS,
    Process,
    ProcessRole,
    Spec,
)
from dglrun.contract import env, hostfile, names, report
from dglrun.contract.hostfile import Host
from dglrun.transfer.kubectl import Kubectl
from dglrun.transfer.tar_stream import SHARED
from dglrun.workflow import kept_phases, partition_phases
from dglrun.workflow.config import RunConfig
from dglrun.workflow.partition_phases import COPIES, STARTS
from dglrun.workflow.steps import (
    CheckKept,
    CheckPartition,
    CheckpointKeeper,
    Collect,
    InParallel,
    KeepCheckpoints,
    PlanPhase,
    Puller,
    ReportStage,
    Run,
    Serve,
    StartAgents,
    Step,
    Train,
    WorkerAgent,
)

PHASES = 5
ATTEMPTS = 2
"""How often an agent is started on a worker that refuses it."""
HEARTBEAT_SECONDS = 3.0
HEARTBEATS = 4
"""In a lease at least, so that a late one does not end the training."""
STOP_SECONDS = 20.0
"""Until all workers have stopped; their agents stop by themselves, too, when their lease is over."""
SETTLE_SECONDS = 0.5
SERVERS_SECONDS = 30.0
STACKS_SECONDS = 10.0
LOST_SECONDS = 30.0
"""How long the output of a worker is asked for that was lost, while the job waits to be told failed."""
LAUNCHER_RATE = 200e6
"""Bytes per second of checkpoints that the launcher takes of all workers together."""
ABSENT_SECONDS = 10.0
"""How long the last round of checkpoints waits for a worker that cannot be reached."""
AGENT = "dglrun.agent"
KEEP = "dglrun.transfer.checkpoints"
UPLOAD = "dglrun.commands.upload_output"
RUN = "<id of this run>"

Strings = tuple[str, ...]


def plan(config: RunConfig, hosts: Sequence[Host] = (), run: str = RUN) -> tuple[PlanPhase, ...]:
    """All that this pod does.

    Args:
        config: A checked configuration.
        hosts: The workers by index; only the launcher needs them.
        run: Identity of the run.
    """
    if config.is_skip:
        return _skip(config)
    if config.is_partitioner:
        return partition_phases.in_partitioner(config, run)
    return launcher_phases(config, hosts, run)


def launcher_phases(config: RunConfig, hosts: Sequence[Host], run: str) -> tuple[PlanPhase, ...]:
    """Copy the parts to the workers, unless they make them; start the agents; train; collect the output.

    The first step checks --output, if it is given.
    """
    pod = names.launcher(config.context.job)
    agents = (_start_agents(config, hosts, run),)
    train, collect = (_keep(config, hosts), _train(config, hosts)), _collects(config, hosts, run)
    if config.partitions_on_workers:
        first = partition_phases.on_workers(config, hosts)
    else:
        dispatch = _dispatch(config, hosts, run)
        first = (PlanPhase(3, PHASES, pod, "dispatch partitions", report.STAGE_DISPATCHING, dispatch),)
    return (
        replace(first[0], steps=(*_check_output(config), *first[0].steps)),
        *first[1:],
        PlanPhase(4, PHASES, pod, "revise hostfile", report.STAGE_DISPATCHING, agents),
        PlanPhase(5, PHASES, pod, "launch the training", report.STAGE_TRAINING, train, collect),
    )


def training_again(
    config: RunConfig, hosts: Sequence[Host], run: str, replaced: Collection[str]
) -> tuple[Step, ...]:
    """What follows when lost workers were replaced: these get their parts, and all train again.

    Args:
        config: As for the plan.
        hosts: The workers by index, as they are now.
        run: Identity of the run.
        replaced: The pods that have no part.
    """
    *before, start, train = launcher_phases(config, hosts, run)
    missing: tuple[Step, ...] = ()
    if replaced and config.partitions_on_workers:
        missing = partition_phases.lost_parts(config, hosts, replaced)
    elif replaced:
        served = [step for phase in before for step in phase.steps if isinstance(step, Serve)]
        missing = tuple(_only(serve, replaced) for serve in served)
    return (*missing, *start.steps, *train.steps)


def _only(serve: Serve, pods: Collection[str]) -> Serve:
    return replace(serve, pullers=tuple(each for each in serve.pullers if each.pod in pods))


def placeholder_hosts(config: RunConfig) -> tuple[Host, ...]:
    """The workers while nobody knows their IPs: what a dry run shows."""
    pods = names.workers(config.context.job, config.workers)
    return tuple(Host(f"<ip of {pod}>", names.DGL_PORT, pod) for pod in pods)


def script_flags(config: RunConfig) -> Strings:
    """What the training script is given: flags that DGL's own scripts have, each only when set or needed."""
    flags = [
        *("--graph_name", config.graph_name or ""),
        *("--ip_config", ip_config(config)),
        *("--part_config", worker_part_config(config)),
    ]
    return (*flags, *_chosen(config), *config.script_args)


def _chosen(config: RunConfig) -> Strings:
    """Flags of the training that were set."""
    flags = {
        "--num_epochs": config.num_epochs,
        "--batch_size": config.batch_size,
        "--num_gpus": config.num_gpus,
        "--backend": config.backend,
    }
    return tuple(word for name, value in flags.items() if value is not None for word in (name, str(value)))


def ip_config(config: RunConfig) -> str:
    """DGL's own two-column file on each worker, under its name of 2021."""
    return f"{config.workspace}/hostfile_revised"


def worker_part_config(config: RunConfig) -> str:
    """The partition's JSON on each worker."""
    return f"{config.workload}/{config.partition_config.rsplit('/', 1)[-1]}"


def _skip(config: RunConfig) -> tuple[PlanPhase, ...]:
    """The check of --output is a phase of its own, as what follows the steps of one follows their failure."""
    argv = (config.python, config.train_entry_point or "", *_chosen(config), *config.script_args)
    environ = {
        "DGLBACKEND": "pytorch",
        "PYTHONUNBUFFERED": "1",
        env.OUTPUT_DIR: config.output,
        env.CHECKPOINT_DIR: _checkpoint_folder(config, 0),
        PROGRESS_VARIABLE: PROGRESS_FILE,
    }
    pod = names.launcher(config.context.job)
    run = Run(argv, environ, folders=(config.output, _checkpoint_folder(config, 0)))
    here = Host("127.0.0.1", names.DGL_PORT, pod)
    steps: tuple[Step, ...] = (_keep(config, (here,)), run) if config.checkpoints else (run,)
    training, checks = ("launch the training", report.STAGE_TRAINING), _check_output(config)
    if not checks:
        return (PlanPhase(1, 1, pod, *training, steps),)
    return (
        PlanPhase(1, 2, pod, "check the output's place", report.STAGE_TRAINING, checks),
        PlanPhase(2, 2, pod, *training, steps, _upload(config)),
    )


def _dispatch(config: RunConfig, hosts: Sequence[Host], run: str) -> tuple[Step, ...]:
    if config.partitions:
        pod = names.launcher(config.context.job)
        check = CheckKept(kept_phases.delivered_reference(config), len(hosts))
        return (check, kept_phases.fetch(config, hosts, pod, COPIES, STARTS))
    pull = (config.python, "-m", *partition_phases.PULL)
    pullers = tuple(
        Puller(host.name, host.ip, _exec(config, host, *pull), part, config.workload)
        for part, host in enumerate(hosts)
    )
    serve = Serve(
        names.launcher(config.context.job),
        config.partition_config,
        pullers,
        COPIES,
        STARTS,
        partition_phases.CONNECTIONS,
        keeps_sums=False,
        seconds=config.start_timeout,
        marker=f"{SHARED}{run}",
    )
    return (CheckPartition(config.partition_config, len(hosts)), serve)


def _start_agents(config: RunConfig, hosts: Sequence[Host], run: str) -> StartAgents:
    return StartAgents(
        tuple(_agent(config, hosts, index, run) for index in range(len(hosts))),
        STARTS,
        config.start_timeout,
        ATTEMPTS,
        min(HEARTBEAT_SECONDS, config.lease / HEARTBEATS),
        SETTLE_SECONDS,
        STOP_SECONDS,
    )


def _agent(config: RunConfig, hosts: Sequence[Host], index: int, run: str) -> WorkerAgent:
    host = hosts[index]
    spec = Spec(
        run=run,
        ip=host.ip,
        trainers=config.num_trainers,
        processes=(*_servers(config, index), *_trainers(config, hosts, index)),
        files={ip_config(config): hostfile.format_dgl(hosts)},
        folders=(config.output, *_folders_of_ranks(config, index).values()),
        ports=tuple(host.port + server for server in range(config.num_servers)),
        output=config.output,
        index=index,
        lease=config.lease,
        shm=config.shm_dir,
        watched=_watched(config),
    )
    return WorkerAgent(host, _exec(config, host, config.python, "-m", AGENT), spec)


def _servers(config: RunConfig, machine: int) -> tuple[Process, ...]:
    return tuple(
        Process(ProcessRole.SERVER, index, None, _script(config), _server_env(config, machine, index))
        for index in range(config.num_servers)
    )


def _trainers(config: RunConfig, hosts: Sequence[Host], machine: int) -> tuple[Process, ...]:
    first, script = machine * config.num_trainers, _script(config)
    return tuple(
        Process(ProcessRole.TRAINER, index, first + index, script, _trainer_env(config, hosts, first, index))
        for index in range(config.num_trainers)
    )


def _script(config: RunConfig) -> Strings:
    return (
        config.python,
        "-m",
        "dglrun.agent.script_runner",
        config.train_entry_point or "",
        *script_flags(config),
    )


def _common_env(config: RunConfig) -> dict[str, str]:
    clients = config.workers * config.num_trainers * (1 + config.num_samplers)
    return {
        "DGLBACKEND": "pytorch",
        "DGL_DIST_MODE": "distributed",
        "DGL_IP_CONFIG": ip_config(config),
        "DGL_CONF_PATH": worker_part_config(config),
        "DGL_NUM_SERVER": str(config.num_servers),
        "DGL_NUM_SAMPLER": str(config.num_samplers),
        "DGL_NUM_CLIENT": str(clients),
        "DGL_GRAPH_FORMAT": config.graph_format,
        "PYTHONUNBUFFERED": "1",
        env.OUTPUT_DIR: config.output,
        CAUSES_VARIABLE: CAUSES_FOLDER,
    }


def _server_env(config: RunConfig, machine: int, index: int) -> dict[str, str]:
    return {
        **_common_env(config),
        "DGL_ROLE": "server",
        "DGL_SERVER_ID": str(machine * config.num_servers + index),
        "OMP_NUM_THREADS": "1",
    }


def _trainer_env(config: RunConfig, hosts: Sequence[Host], first: int, index: int) -> dict[str, str]:
    nccl = {"NCCL_SOCKET_IFNAME": INTERFACE} if config.backend == "nccl" else {}
    progress = {PROGRESS_VARIABLE: PROGRESS_FILE} if first + index == 0 else {}
    return {
        **_common_env(config),
        **nccl,
        **progress,
        "DGL_ROLE": "client",
        "DGL_GROUP_ID": "0",
        env.CHECKPOINT_DIR: _checkpoint_folder(config, first + index),
        "RANK": str(first + index),
        "LOCAL_RANK": str(index),
        "WORLD_SIZE": str(_world_size(config, hosts)),
        "LOCAL_WORLD_SIZE": str(config.num_trainers),
        "MASTER_ADDR": hosts[0].ip,
        "MASTER_PORT": MASTER_PORT,
        "OMP_NUM_THREADS": THREADS,
        "GLOO_SOCKET_IFNAME": INTERFACE,
    }


def _world_size(config: RunConfig, hosts: Sequence[Host]) -> int:
    return len(hosts) * (1 if config.is_skip else config.num_trainers)


def _train(config: RunConfig, hosts: Sequence[Host]) -> Train:
    pods = tuple(host.name for host in hosts)
    return Train(pods, _world_size(config, hosts), SERVERS_SECONDS, config.hang_timeout, STACKS_SECONDS)


def _keep(config: RunConfig, hosts: Sequence[Host]) -> KeepCheckpoints:
    argv = (config.python, "-m", KEEP)
    keepers = tuple(
        CheckpointKeeper(host.name, host.ip, argv, _folders_of_ranks(config, index))
        for index, host in enumerate(hosts)
    )
    rate, place = config.checkpoint_bandwidth * 1e6, config.checkpoint_place
    return KeepCheckpoints(
        names.launcher(config.context.job),
        keepers,
        _world_size(config, hosts),
        config.checkpoint_folder,
        place,
        config.checkpoint_interval,
        rate if place else min(rate, LAUNCHER_RATE / len(hosts)),
        config.start_timeout,
        ABSENT_SECONDS,
    )


def _folders_of_ranks(config: RunConfig, index: int) -> dict[str, str]:
    """The checkpoint folders of a worker's ranks, by the ranks' names."""
    trainers = 1 if config.is_skip else config.num_trainers
    ranks = range(index * trainers, (index + 1) * trainers)
    return {names.checkpoints_of(rank): _checkpoint_folder(config, rank) for rank in ranks}


def _checkpoint_folder(config: RunConfig, rank: int) -> str:
    return f"{config.checkpoint_folder}/{names.checkpoints_of(rank)}"


def _watched(config: RunConfig) -> Strings:
    """A rank that waits for its peers on a GPU keeps a CPU busy, so that only output counts there."""
    has_gpus = config.context.gpus or config.num_gpus
    return () if config.hang_timeout is None else (OUTPUT,) if has_gpus else (OUTPUT, CPU)


def _collects(config: RunConfig, hosts: Sequence[Host], run: str) -> tuple[Step, ...]:
    """Worker 0's output at the top, others' beside it; DGL's rank 0, which saves, need not be torch's."""
    top = config.output
    folders = [top, *(f"{top}/{host.name}" for host in hosts[1:])]
    markers = [f"{SHARED}{run}-{index}" for index in range(len(hosts))]
    collects = [_collect(config, *each) for each in zip(hosts, folders, markers, strict=True)]
    return (
        ReportStage(report.STAGE_COLLECTING, "bring the output here"),
        InParallel(tuple(collects), COPIES, ends_all=False),
        *_upload(config),
    )


def _upload(config: RunConfig) -> tuple[Run, ...]:
    """The output folder goes on to where the user keeps it, if that is said."""
    if not config.output_uri:
        return ()
    flags = ("--folder", config.output, "--to", config.output_uri)
    return (Run((config.python, "-m", UPLOAD, *flags), title="uploading the output"),)


def _check_output(config: RunConfig) -> tuple[Run, ...]:
    """Before a training of days: what refuses the output then refuses it now."""
    if not config.output_uri:
        return ()
    flags = ("--check", "--to", config.output_uri)
    return (Run((config.python, "-m", UPLOAD, *flags), title="the check of --output"),)


def _collect(config: RunConfig, host: Host, folder: str, marker: str) -> Collect:
    pack = (config.python, "-m", "dglrun", "pack", "--unless", marker, config.output)
    argv, seconds = _exec(config, host, *pack), config.start_timeout
    if_lost = min(LOST_SECONDS, seconds)
    return Collect(host.name, config.output, argv, marker, folder, config.output, seconds, if_lost)


def _exec(config: RunConfig, host: Host, *command: str) -> Strings:
    return _kubectl(config).exec(host.name, config.context.container, *command)


def _kubectl(config: RunConfig) -> Kubectl:
    return Kubectl(config.context.kubectl, config.context.namespace)
