"""Names, labels and owner of a job's objects."""

from collections.abc import Mapping
from typing import Any

from dgl_operator.api.v1alpha1 import DGLJob
from dgl_operator.render.merge import Json
from dglrun.contract import names
from dglrun.contract.names import Role


def job_name(job: DGLJob) -> str:
    """The job's name."""
    return str(job.metadata["name"])


def namespace(job: DGLJob) -> str:
    """The job's namespace."""
    return str(job.metadata["namespace"])


def owner(job: DGLJob) -> Json:
    """Owner reference by which the garbage collector removes the object with the job."""
    return {
        "apiVersion": f"{names.GROUP}/{names.VERSION}",
        "kind": names.KIND,
        "name": job_name(job),
        "uid": job.metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def metadata(job: DGLJob, name: str, extra: Mapping[str, Any] | None = None) -> Json:
    """Metadata of an object that is no pod; `app` is the 2021 operator's label."""
    return {
        "name": name,
        "namespace": namespace(job),
        "labels": {"app": job_name(job), names.LABEL_JOB: job_name(job), **(extra or {})},
        "ownerReferences": [owner(job)],
    }


def pod_labels(job: DGLJob, role: Role, name: str, index: int | None) -> Json:
    """Labels of a pod: those of the 2021 operator and ours."""
    labels = {
        names.LABEL_REPLICA_NAME: name,
        names.LABEL_REPLICA_TYPE: role.value,
        names.LABEL_JOB: job_name(job),
        names.LABEL_ROLE: role.lower,
        names.LABEL_ATTEMPT: str(job.status.attempt),
    }
    return labels if index is None else {**labels, names.LABEL_INDEX: str(index)}
