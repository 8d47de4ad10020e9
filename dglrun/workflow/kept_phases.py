"""The steps of a job that keeps its partition (--partitions): look, keep, fetch. Pure."""

from collections.abc import Sequence

from dglrun.contract.hostfile import Host
from dglrun.transfer.kubectl import Kubectl
from dglrun.workflow.config import RunConfig
from dglrun.workflow.steps import Argv, Puller, ReadReference, Run, Serve

FETCH = "dglrun.commands.fetch_part"
CONNECTIONS = 1
"""Of a worker to the launcher, from which it gets a few kilobytes."""
PATIENCE_OF_WORKERS = 2 / 3
"""Of the launcher's: a worker that gives up a store says why before the launcher gives up the worker."""
WRITES_WITH_DGL = ("dgl", "torch")
"""Packages whose version changes the files that DGL itself writes."""


def reference(config: RunConfig) -> str:
    """The file that says which kept partition is used, where it is looked for."""
    return f"{config.workspace}/{_name(config)}"


def delivered_reference(config: RunConfig) -> str:
    """The same on the launcher."""
    if config.partitions_on_workers:
        return reference(config)
    return f"{config.dataset_dir}/{_name(config)}"


def look(config: RunConfig) -> Run:
    """Compute the fingerprint and look for its partition, in this pod."""
    return Run(_look(config), title="looking for the partition")


def look_on(config: RunConfig, pod: str) -> tuple[Run, ReadReference]:
    """The same on a worker, which can read the chunked graph; what it has found comes here."""
    kubectl = Kubectl(config.context.kubectl, config.context.namespace)
    via = kubectl.exec(pod, config.context.container)
    path = reference(config)
    # The path goes to the shell as an argument: the workspace is a user's word.
    read = kubectl.exec(pod, config.context.container, "sh", "-c", 'cat "$1"', "sh", path)
    look = Run(_look(config), title=f"looking for the partition on {pod}", via=via, pods=(pod,))
    return look, ReadReference(pod, path, read, config.start_timeout)


def keep(config: RunConfig, partition: str, quality: str) -> Run:
    """Write the partition that this pod has made into the store."""
    return Run(
        (*_module(config, "keep_partition"), "keep", *_keep_flags(config, partition, quality)),
        title="keeping the partition",
    )


def keep_rank(config: RunConfig, partition: str, quality: str) -> Argv:
    """One of the ranks that each write the part of their worker."""
    return (
        *(config.python, "-m", "mpi4py", "-m", "dglrun.commands.keep_rank"),
        *_keep_flags(config, partition, quality),
        *("--timeout", config.wait_of_ranks),
    )


def fetch(config: RunConfig, hosts: Sequence[Host], owner: str, limit: int, starts: int) -> Serve:
    """Let each worker take its part from the store."""
    kubectl = Kubectl(config.context.kubectl, config.context.namespace)
    deadline = ("--deadline", f"{config.start_timeout * PATIENCE_OF_WORKERS:g}", "--detach")
    pullers = tuple(
        Puller(
            host.name,
            host.ip,
            kubectl.exec(
                host.name,
                config.context.container,
                config.python,
                "-m",
                FETCH,
                "--part",
                str(part),
                *deadline,
            ),
            part,
            config.workload,
        )
        for part, host in enumerate(hosts)
    )
    path, seconds = delivered_reference(config), config.start_timeout
    return Serve(owner, path, pullers, limit, starts, CONNECTIONS, keeps_sums=False, seconds=seconds)


def options(config: RunConfig) -> dict[str, str]:
    """What changes the partition, besides the data or the script; workspaces and deadlines do not."""
    common = {
        "graph": config.graph_name or "",
        "parts": str(config.workers if config.partitions_on_workers else config.num_partitions),
        "mode": config.context.mode.value,
    }
    if not config.chunked_graph:
        return {**common, **_of_script(config)}
    chunks = {
        "backend": config.assigner,
        "seed": str(config.partition_seed),
        "graphbolt": _word(config.use_graphbolt),
        **(_of_script(config) if config.partition_entry_point else {}),
    }
    if config.is_partitioned_by_dgl:
        return {**common, **_of_balance(config), **chunks}
    ranks = config.partition_ranks or config.num_partitions or config.workers
    balance = ",".join(sorted(config.balance.split(",")))
    return {**common, **chunks, "balance": balance, "ranks": str(ranks)}


def _of_script(config: RunConfig) -> dict[str, str]:
    """What a partition script is given."""
    return {**_of_balance(config), "dataset_url": config.dataset_url or "none"}


def _of_balance(config: RunConfig) -> dict[str, str]:
    return {"balance_train": _word(config.balance_train), "balance_edges": _word(config.balance_edges)}


def _look(config: RunConfig) -> Argv:
    chosen = [word for name, value in options(config).items() for word in ("--option", f"{name}={value}")]
    return (
        *(*_module(config, "keep_partition"), "find", "--partitions", config.partitions or ""),
        *("--reference", reference(config), "--deadline", f"{config.start_timeout:g}"),
        *(*_source(config), *chosen),
        *(word for name in _versions(config) for word in ("--version-of", name)),
        *(["--again"] if config.repartition else []),
    )


def _source(config: RunConfig) -> Argv:
    """What it is made of; a script that writes chunks stands for them, as they are not there yet."""
    brought = ("--assignment", config.partition_assignment) if config.partition_assignment else ()
    if config.partition_entry_point:
        return ("--script", config.partition_entry_point, "--image", config.context.image, *brought)
    return ("--chunked-graph", config.chunked_graph or "", *brought)


def _versions(config: RunConfig) -> Argv:
    """Packages that write the files or assign the nodes."""
    is_dgl = not config.chunked_graph or config.is_partitioned_by_dgl or config.use_graphbolt
    backend = ("kaminpar",) if config.chunked_graph and config.assigner == "kaminpar" else ()
    return (*(WRITES_WITH_DGL if is_dgl or config.partition_entry_point else ()), *backend)


def _keep_flags(config: RunConfig, partition: str, quality: str) -> Argv:
    return (
        *("--reference", reference(config), "--deadline", f"{config.start_timeout:g}"),
        *("--config", partition, "--quality", quality),
        *_source(config),
        *(["--again"] if config.repartition else []),
    )


def _module(config: RunConfig, name: str) -> Argv:
    return (config.python, "-m", f"dglrun.commands.{name}")


def _name(config: RunConfig) -> str:
    return f"{config.graph_name}.kept.json"


def _word(is_set: bool) -> str:
    return "yes" if is_set else "no"
