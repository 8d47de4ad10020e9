"""The environment of each pod's main container, as the operator and the kubelet set it. Pure."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from dglrun.commands.local.job import LocalJob
from dglrun.contract import env, names, version
from dglrun.contract.names import Role

KEPT = (
    *("HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV"),
    *("OMP_NUM_THREADS", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"),
)
"""Of this machine's variables, what stands for those of an image."""
OF_THE_IMAGE = {"DGLBACKEND": "pytorch", "PYTHONUNBUFFERED": "1"}


def of_operator(job: LocalJob, role: Role, index: int) -> dict[str, str]:
    """The variables that the operator sets in a pod (dgl_operator.render.environment)."""
    found = {
        env.CONTRACT_VERSION: str(version.CURRENT),
        env.JOB_NAME: job.name,
        env.NAMESPACE: job.namespace,
        env.PARTITION_MODE: job.mode.value,
        env.REPORT: names.report(job.name),
    }
    if not job.mode.has_workers:
        return {env.PHASE: env.PHASE_SKIP, **found}
    worker = job.templates[Role.WORKER]
    found |= {
        env.OPERATOR: "1",
        env.KUBEXEC_PATH: f"{names.CONFIG_DIR}/{names.KUBEXEC}",
        env.HOSTFILE_PATH: f"{names.CONFIG_DIR}/{names.HOSTFILE}",
        env.PARTFILE_PATH: f"{names.CONFIG_DIR}/{names.PARTFILE}",
        env.KUBECTL_PATH: f"{names.KUBE_DIR}/kubectl",
        env.NUM_WORKERS: str(job.workers),
        env.WORKER_CONTAINER: worker.container,
        env.GPUS_PER_WORKER: str(worker.gpus),
    }
    if role is Role.PARTITIONER:
        found[env.PHASE] = env.PHASE_PARTITIONER
        found[env.IMAGE] = job.templates[role].image
    if role is Role.WORKER:
        found[env.WORKER_INDEX] = str(index)
    return found


def of_image(host: Mapping[str, str], programs: Sequence[str], library: Path, cpus: float) -> dict[str, str]:
    """What an image would set.

    Args:
        host: This machine's environment.
        programs: Folders with the `dglrun` and the Python that run here; first on PATH.
        library: Folder that holds the package dglrun.
        cpus: The pod's share of this machine's; its trainers share them.
    """
    found = {name: host[name] for name in KEPT if name in host}
    path = [*programs, host.get("PATH", "/usr/local/bin:/usr/bin:/bin")]
    python = [str(library), *([host["PYTHONPATH"]] if host.get("PYTHONPATH") else [])]
    return {
        **found,
        **OF_THE_IMAGE,
        "PATH": ":".join(path),
        "PYTHONPATH": ":".join(python),
        env.CPUS: f"{cpus:g}",
    }
