"""Environment variables of the main containers, so that dglrun knows its job without asking."""

from dgl_operator.api.v1alpha1 import DGLJob
from dgl_operator.render import identity, resources
from dgl_operator.render.merge import Json
from dglrun.contract import env, names, version
from dglrun.contract.names import Mode, Role

REPLACEMENT_MARGIN = 120
"""Seconds from a loss until the operator has deleted the pod, whose grace period may take so long."""
_OF_ALL = {env.CONTRACT_VERSION: str(version.CURRENT)}


def of_init_container() -> list[Json]:
    """Return the variables of an init container of ours that needs no others."""
    return _list(_OF_ALL)


def of_main(job: DGLJob, role: Role, index: int, image: str) -> list[Json]:
    """Return the variables of a role's main container, which has this image."""
    values = _of_job(job) if job.spec.partition_mode is Mode.SKIP else {**_of_job(job), **_of_parts(job)}
    if role is Role.PARTITIONER:
        values[env.PHASE] = env.PHASE_PARTITIONER
        values[env.IMAGE] = image
    if role is Role.LAUNCHER and job.spec.partition_mode is not Mode.SKIP:
        values[env.REPLACEMENT_TIMEOUT] = str(_replacement_timeout(job))
    if role is Role.WORKER:
        values[env.WORKER_INDEX] = str(index)
    return _list(values)


def _replacement_timeout(job: DGLJob) -> int:
    """How long the launcher waits for a worker: longer than the operator, which says then what has failed."""
    return job.spec.run_policy.start_deadline_seconds + REPLACEMENT_MARGIN


def of_watcher(job: DGLJob, file: str, mode: str, expected: int) -> list[Json]:
    """Return the variables of a watcher-loop container.

    Its deadline for pods that never appear is off: a pod may wait for hours for a node or an image, and the
    operator, which sees that, says so in the job's status and fails the job when a pod is lost.
    """
    values = {
        **_OF_ALL,
        env.WATCHER_NAMESPACE: identity.namespace(job),
        env.WATCHER_FILE: f"{names.CONFIG_DIR}/{file}",
        env.WATCHER_MODE: mode,
        env.WATCHER_EXPECTED: str(expected),
        env.WATCHER_APPEAR_TIMEOUT: "0",
    }
    if file == names.PARTFILE:
        values[env.WATCHER_PODS] = names.partitioner(identity.job_name(job))
    return _list(values)


def _of_job(job: DGLJob) -> dict[str, str]:
    values = {
        **_OF_ALL,
        env.JOB_NAME: identity.job_name(job),
        env.NAMESPACE: identity.namespace(job),
        env.PARTITION_MODE: job.spec.partition_mode.value,
        env.REPORT: names.report(identity.job_name(job)),
    }
    return {env.PHASE: env.PHASE_SKIP, **values} if job.spec.partition_mode is Mode.SKIP else values


def _of_parts(job: DGLJob) -> dict[str, str]:
    worker = job.spec.dgl_replica_specs.worker
    return {
        env.OPERATOR: "1",
        env.KUBEXEC_PATH: f"{names.CONFIG_DIR}/{names.KUBEXEC}",
        env.HOSTFILE_PATH: f"{names.CONFIG_DIR}/{names.HOSTFILE}",
        env.PARTFILE_PATH: f"{names.CONFIG_DIR}/{names.PARTFILE}",
        env.KUBECTL_PATH: f"{names.KUBE_DIR}/kubectl",
        env.NUM_WORKERS: str(worker.replicas if worker else 0),
        env.WORKER_CONTAINER: worker.main["name"] if worker else "",
        env.GPUS_PER_WORKER: str(resources.gpus(worker.main) if worker else 0),
    }


def _list(values: dict[str, str]) -> list[Json]:
    return [{"name": name, "value": value} for name, value in values.items()]
