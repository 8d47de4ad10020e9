"""What a job's own pods may do: the least that works, by the names of this job's objects alone.

Rights come last, when the pods that they name exist and are the job's own: a job may be named so that the
names of its pods are those of a StatefulSet.

Exec over WebSocket is an HTTP GET, which API servers before 1.35 authorise as `get` on pods/exec; later
ones and SPDY ask for `create`. kubectl reads the pod before it execs into it.
"""

from dgl_operator.api.v1alpha1 import DGLJob
from dgl_operator.render import identity
from dgl_operator.render.merge import Json
from dglrun.contract import names
from dglrun.contract.names import Role

RBAC = "rbac.authorization.k8s.io"


def accounts(job: DGLJob) -> list[Json]:
    """Return the ServiceAccounts, which have to exist before their pods."""
    return [_account(job, name) for name in (*_accounts(job), *_worker_account(job))]


def rights(job: DGLJob, own_pods: frozenset[str]) -> list[Json]:
    """Return the Roles and RoleBindings that can be given at this moment.

    Args:
        job: A valid job.
        own_pods: Names of pods that exist and are owned by the job. A rule never names another pod, since
            one of that name may belong to somebody else.
    """
    name = identity.job_name(job)
    rules = {names.launcher(name): _of_launcher(job, own_pods)}
    if job.spec.partition_mode.has_partitioner:
        rules[names.partitioner(name)] = _of_partitioner(job, own_pods)
    report = _rule("configmaps", [names.report(name)], "get", "patch")
    return [body for account, found in rules.items() if found is not None
            for body in _granted(job, account, [*found, report])]  # fmt: skip


def rights_names(job: DGLJob) -> tuple[tuple[str, str], ...]:
    """Return kind and name of what `rights` may give, in the order in which they are deleted."""
    return tuple((kind, name) for name in _accounts(job) for kind in ("RoleBinding", "Role"))


def account_name(job: DGLJob, role: Role) -> str | None:
    """Return the ServiceAccount that the operator makes for a role, None for workers that need none."""
    name = identity.job_name(job)
    if role is Role.WORKER:
        return next(iter(_worker_account(job)), None)
    return names.launcher(name) if role is Role.LAUNCHER else names.partitioner(name)


def _account(job: DGLJob, name: str) -> Json:
    metadata = identity.metadata(job, name)
    if annotations := job.spec.service_account_annotations:
        metadata["annotations"] = {**annotations, names.ANNOTATION_KEYS: ",".join(sorted(annotations))}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def _worker_account(job: DGLJob) -> tuple[str, ...]:
    """Workers have an account for its annotations alone: it gets no rights, and they mount no token of it."""
    has_one = job.spec.partition_mode.has_workers and job.spec.service_account_annotations
    return (names.worker_account(identity.job_name(job)),) if has_one else ()


def _accounts(job: DGLJob) -> tuple[str, ...]:
    name = identity.job_name(job)
    partitioner = (names.partitioner(name),) if job.spec.partition_mode.has_partitioner else ()
    return (names.launcher(name), *partitioner)


def _of_launcher(job: DGLJob, own_pods: frozenset[str]) -> list[Json] | None:
    """Rules on pods of the launcher, None while it needs no right at all.

    It watches the partitioner and the workers and runs commands in the workers. These come all at once, so
    that the Role of a thousand workers changes twice at most; once the launcher has started, it keeps those
    that are there when one is lost. In a Skip job it may report, nothing else.
    """
    name, mode = identity.job_name(job), job.spec.partition_mode
    if not mode.has_workers:
        return [] if names.launcher(name) in own_pods else None
    worker = job.spec.dgl_replica_specs.worker
    wanted = names.workers(name, worker.replicas) if worker else ()
    is_time = _has_started(job) or own_pods.issuperset(wanted)
    workers = [pod for pod in wanted if pod in own_pods] if is_time else []
    watched = [*workers, *({names.partitioner(name)} & own_pods if mode.has_partitioner else ())]
    rules = [_rule("pods", watched, "get", "list", "watch")] if watched else None
    return [*rules, _rule("pods/exec", workers, "get", "create")] if rules and workers else rules


def _has_started(job: DGLJob) -> bool:
    return any(each.type == "LauncherStarted" and each.status == "True" for each in job.status.conditions)


def _of_partitioner(job: DGLJob, own_pods: frozenset[str]) -> list[Json] | None:
    """Rules on pods of the partitioner, which delivers into the launcher and reads which image it has."""
    target, own = names.launcher(identity.job_name(job)), names.partitioner(identity.job_name(job))
    if target not in own_pods:
        return None
    return [
        _rule("pods", [target, *({own} & own_pods)], "get"),
        _rule("pods/exec", [target], "get", "create"),
    ]


def _granted(job: DGLJob, name: str, rules: list[Json]) -> list[Json]:
    metadata = identity.metadata(job, name)
    return [
        {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
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
