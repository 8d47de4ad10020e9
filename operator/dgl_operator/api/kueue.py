"""Kueue's names as the operator uses them, and what a job says of its queue."""

from dgl_operator.api.v1alpha1 import DGLJob

GROUP = "kueue.x-k8s.io"
API_VERSION = f"{GROUP}/v1beta1"
KIND = "Workload"

QUEUE_NAME, PRIORITY_CLASS = f"{GROUP}/queue-name", f"{GROUP}/priority-class"
LABELS = (QUEUE_NAME, PRIORITY_CLASS)
"""Labels of a job that are read."""
JOB_UID = f"{GROUP}/job-uid"
"""Label by which Kueue's own tools find the Workload of a job."""

OF_WORKLOADS, OF_PODS = f"{GROUP}/workloadpriorityclass", "scheduling.k8s.io/priorityclass"
"""Where a priority comes from, as Kueue writes it."""


def workload_name(job: str) -> str:
    """The Workload of a job, by the job's name."""
    return f"dgljob-{job}"


def queue(job: DGLJob) -> str:
    """The LocalQueue that the job names, "" for none."""
    return _label(job, QUEUE_NAME)


def priority_class(job: DGLJob) -> tuple[str, str]:
    """Return source and name of the job's priority class, empty ones without it.

    The label of the job comes first; the class of the launcher's pod is the fallback, as it is for a Job.
    """
    if name := _label(job, PRIORITY_CLASS):
        return OF_WORKLOADS, name
    name = job.spec.dgl_replica_specs.launcher.template["spec"].get("priorityClassName")
    return (OF_PODS, name) if isinstance(name, str) and name else ("", "")


def _label(job: DGLJob, key: str) -> str:
    return str((job.metadata.get("labels") or {}).get(key) or "")
