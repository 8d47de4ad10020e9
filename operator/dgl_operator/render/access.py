"""What a job's own pods may do: the least that works, by the names of this job's objects alone.

Exec over WebSocket is an HTTP GET, which API servers before 1.35 authorise as `get` on pods/exec; later
ones and SPDY ask for `create`. kubectl reads the pod before it execs into it.
"""

from dgl_operator.api.v1alpha1 import DGLJob
from dgl_operator.render import identity
from dgl_operator.render.merge import Json
from dglrun.contract import names
from dglrun.contract.names import Role

RBAC = "rbac.authorization.k8s.io"


def of_launcher(job: DGLJob) -> list[Json]:
    """Return ServiceAccount, Role and RoleBinding of the launcher.

    It watches the partitioner and the workers and runs commands in the workers. In a Skip job it may
    report, and nothing else.
    """
    name, mode = identity.job_name(job), job.spec.partition_mode
    worker = job.spec.dgl_replica_specs.worker
    workers = list(names.workers(name, worker.replicas)) if worker and mode.has_workers else []
    watched = [*workers, names.partitioner(name)] if mode.has_partitioner else workers
    rules = [_rule("pods", watched, "get", "list", "watch"), _rule("pods/exec", workers, "get", "create")]
    return _account(job, names.launcher(name), rules if workers else [])


def of_partitioner(job: DGLJob) -> list[Json]:
    """Return ServiceAccount, Role and RoleBinding of the partitioner, which delivers into the launcher."""
    name = identity.job_name(job)
    target = [names.launcher(name)]
    rules = [_rule("pods", target, "get"), _rule("pods/exec", target, "get", "create")]
    return _account(job, names.partitioner(name), rules)


def account_name(job: DGLJob, role: Role) -> str:
    """Return the ServiceAccount that the operator makes for a role."""
    name = identity.job_name(job)
    return names.launcher(name) if role is Role.LAUNCHER else names.partitioner(name)


def _account(job: DGLJob, name: str, rules: list[Json]) -> list[Json]:
    report = _rule("configmaps", [names.report(identity.job_name(job))], "get", "patch")
    metadata = identity.metadata(job, name)
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": [*rules, report]},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": identity.namespace(job)}],
        },
    ]


def _rule(resource: str, of: list[str], *verbs: str) -> Json:
    return {"apiGroups": [""], "resources": [resource], "resourceNames": of, "verbs": list(verbs)}
