"""The files of a job's ConfigMap, which pods find at /etc/dgl, as the operator writes them. Pure."""

import shlex
from collections.abc import Mapping

from dglrun.commands.local.job import LocalJob
from dglrun.contract import hostfile, names
from dglrun.contract.hostfile import Host, Worker
from dglrun.contract.names import Role

_KUBEXEC = """\
#!/bin/sh
# As the operator's, but for the wait for an API server that is away:  kubexec.sh POD COMMAND...
set -eu
if [ "$#" -lt 2 ]; then
    echo "usage: kubexec.sh POD COMMAND..." >&2
    exit 2
fi
target=$1
shift
case "$target" in
    *" "*) ;;
    {workers}*) target="$target -c "{container} ;;
esac
# shellcheck disable=SC2086 # the target is words on purpose
exec {kubectl} exec --namespace {namespace} $target -- /bin/sh -c "$*"
"""


def files(job: LocalJob, addresses: Mapping[str, str], kubectl: str) -> dict[str, str]:
    """The texts by file name; those with addresses are whole, as all are known before any pod runs.

    Args:
        job: The job.
        addresses: IP of each pod.
        kubectl: Path of the stand-in for kubectl.
    """
    worker = job.templates[Role.WORKER]
    hosts = [_host(pod, addresses, job.slots) for pod in names.workers(job.name, job.workers)]
    workers = [Worker(host.ip, host.port, i, host.name, worker.gpus) for i, host in enumerate(hosts)]
    partitioner = [names.partitioner(job.name)] if job.mode.has_partitioner else []
    kubexec = _KUBEXEC.format(
        workers=shlex.quote(names.worker(job.name, 0).removesuffix("0")),
        container=shlex.quote(worker.container),
        kubectl=shlex.quote(kubectl),
        namespace=shlex.quote(job.namespace),
    )
    return {
        names.KUBEXEC: kubexec,
        names.HOSTFILE: hostfile.format_hosts(hosts),
        names.IPCONFIG: hostfile.format_workers(workers),
        names.PARTFILE: hostfile.format_hosts(_host(pod, addresses) for pod in partitioner),
        names.LEADFILE: hostfile.format_hosts([_host(names.launcher(job.name), addresses)]),
    }


def _host(pod: str, addresses: Mapping[str, str], slots: int | None = None) -> Host:
    return Host(addresses[pod], names.DGL_PORT, pod, slots)
