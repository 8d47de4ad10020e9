"""The job's two ConfigMaps: kubexec.sh with the address files, and the report that the pods write."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dgl_operator.api.v1alpha1 import DGLJob
from dgl_operator.render import identity, resources, scripts
from dgl_operator.render.merge import Json
from dglrun.contract import hostfile, names
from dglrun.contract.hostfile import Host, Worker
from dglrun.contract.names import Role

EXECUTABLE = 0o555
READABLE = 0o444


@dataclass(frozen=True)
class Addresses:
    """Addresses that the pods have now, None where a pod has none yet.

    Attributes:
        workers: One entry for each wanted worker, in the order of the index.
    """

    launcher: str | None = None
    partitioner: str | None = None
    workers: tuple[str | None, ...] = ()


def config_map(job: DGLJob, addresses: Addresses) -> Json:
    """Return `<job>-config`; each address file is whole or empty."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": identity.metadata(job, names.config(identity.job_name(job))),
        "data": {
            names.KUBEXEC: _kubexec(job),
            names.HOSTFILE: hostfile.format_hosts(_hosts(job, addresses)),
            names.IPCONFIG: hostfile.format_workers(_workers(job, addresses)),
            names.PARTFILE: hostfile.format_hosts(_host(names.partitioner, job, addresses.partitioner)),
            names.LEADFILE: hostfile.format_hosts(_host(names.launcher, job, addresses.launcher)),
        },
    }


def report(job: DGLJob) -> Json:
    """Return `<job>-report` without data, so that an apply never takes what the pods wrote.

    The label says which attempt wrote them; that of a first attempt may be without it.
    """
    attempt = {names.LABEL_ATTEMPT: str(job.status.attempt)} if job.status.attempt else {}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": identity.metadata(job, names.report(identity.job_name(job)), attempt),
    }


def digest(data: Mapping[str, str]) -> str:
    """Return a short hash of a ConfigMap's data for the annotation that makes the kubelet sync it."""
    text = "".join(f"{key}\0{value}\0" for key, value in sorted(data.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def volume(job: DGLJob) -> Json:
    """Return the volume of `<job>-config` with the modes of its files."""
    modes = {
        names.KUBEXEC: EXECUTABLE,
        names.IPCONFIG: READABLE,
        names.HOSTFILE: READABLE,
        names.PARTFILE: READABLE,
        names.LEADFILE: READABLE,
    }
    return {
        "name": names.VOLUME_CONFIG,
        "configMap": {
            "name": names.config(identity.job_name(job)),
            "items": [{"key": key, "path": key, "mode": mode} for key, mode in modes.items()],
        },
    }


def _kubexec(job: DGLJob) -> str:
    worker = job.spec.dgl_replica_specs.worker
    container = worker.main["name"] if worker else ""
    return scripts.kubexec(identity.namespace(job), identity.job_name(job), container)


def _hosts(job: DGLJob, addresses: Addresses) -> list[Host]:
    name, slots = identity.job_name(job), job.spec.slots_per_worker
    found = [
        Host(ip, names.DGL_PORT, names.worker(name, index), slots)
        for index, ip in enumerate(addresses.workers)
        if ip is not None
    ]
    return found if len(found) == len(addresses.workers) else []


def _workers(job: DGLJob, addresses: Addresses) -> list[Worker]:
    spec = job.spec.dgl_replica_specs.of(Role.WORKER)
    gpus = resources.gpus(spec.main) if spec else 0
    hosts = _hosts(job, addresses)
    return [Worker(host.ip, host.port, index, host.name, gpus) for index, host in enumerate(hosts)]


def _host(name_of: Callable[[str], str], job: DGLJob, ip: str | None) -> list[Host]:
    return [Host(ip, names.DGL_PORT, name_of(identity.job_name(job)))] if ip else []
