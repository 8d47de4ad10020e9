"""The headless Service that gives a job's pods stable names (`<pod>.<job>.<namespace>.svc`)."""

from dgl_operator.api.v1alpha1 import DGLJob
from dgl_operator.render import identity
from dgl_operator.render.merge import Json
from dglrun.contract import names


def service(job: DGLJob) -> Json:
    """One Service for all pods; names resolve before the pods are Ready."""
    name = identity.job_name(job)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": identity.metadata(job, names.service(name)),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {names.LABEL_JOB: name},
            "ports": [{"name": names.DGL_PORT_NAME, "port": names.DGL_PORT, "protocol": "TCP"}],
        },
    }
