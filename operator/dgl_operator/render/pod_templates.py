"""From the user's templates to the pod spec of each role, before anything of ours is added."""

from collections.abc import Mapping
from typing import Any

from dgl_operator.api.v1alpha1 import DGLJob, ReplicaSpec
from dgl_operator.render import merge, partitioner
from dgl_operator.render.merge import Json
from dglrun.contract.names import Role

_IDLE = ("sleep", "365d")


def of(job: DGLJob, role: Role) -> Json:
    """Return the template's `metadata` and `spec` for a role, the user's keys untouched.

    Raises:
        LookupError: the job has no template for the role.
    """
    if role is Role.PARTITIONER:
        return _partitioner(job)
    spec = job.spec.dgl_replica_specs.of(role)
    if spec is None:
        raise LookupError(f"job has no {role.value}")
    pod = dict(spec.template["spec"])
    return {**spec.template, "spec": _idle(pod) if role is Role.WORKER else pod}


def _idle(pod: Mapping[str, Any]) -> Json:
    """Let a worker without a command wait for what dglrun starts in it; args of its own are its image's."""
    main = pod["containers"][0]
    if main.get("command") or main.get("args"):
        return dict(pod)
    return merge.with_main(pod, {**main, "command": list(_IDLE)})


def _partitioner(job: DGLJob) -> Json:
    specs = job.spec.dgl_replica_specs
    if specs.partitioner is not None:
        return _commanded(specs.partitioner, specs.launcher.main)
    if specs.worker is None:
        raise LookupError("job has no Worker to make its partitioner from")
    worker, launcher = specs.worker.template, specs.launcher.template
    return {**worker, "spec": partitioner.of(worker["spec"], launcher["spec"])}


def _commanded(explicit: ReplicaSpec, launcher: Mapping[str, Any]) -> Json:
    """Honour the user's template; without a command it runs the launcher's."""
    pod = explicit.template["spec"]
    if explicit.main.get("command"):
        return dict(explicit.template)
    main = partitioner.with_command(explicit.main, launcher)
    return {**explicit.template, "spec": merge.with_main(pod, main)}
