"""From the user's templates to the pod spec of each role, before anything of ours is added."""

from collections.abc import Mapping
from typing import Any

from dgl_operator.api.v1alpha1 import DGLJob, ReplicaSpec
from dgl_operator.render import merge, resources
from dgl_operator.render.merge import Json
from dglrun.contract.names import Role

_IDLE = ("sleep", "365d")
_OF_THE_WORKERS_COMMAND = (
    "command",
    "args",
    "ports",
    "lifecycle",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
)
"""What a worker's main container says of its own command and does not hold for the partitioner's."""


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
    launcher = job.spec.dgl_replica_specs.launcher.main
    explicit = job.spec.dgl_replica_specs.partitioner
    if explicit is not None:
        return _commanded(explicit, launcher)
    worker = job.spec.dgl_replica_specs.worker
    if worker is None:
        raise LookupError("job has no Worker to make its partitioner from")
    return {**worker.template, "spec": _from_worker(worker.template["spec"], launcher)}


def _commanded(explicit: ReplicaSpec, launcher: Mapping[str, Any]) -> Json:
    """Honour the user's template; without a command it runs the launcher's."""
    pod = explicit.template["spec"]
    if explicit.main.get("command"):
        return dict(explicit.template)
    return {**explicit.template, "spec": merge.with_main(pod, _with_command(explicit.main, launcher))}


def _from_worker(pod: Mapping[str, Any], launcher: Mapping[str, Any]) -> Json:
    """Take image, resources and placement of the workers, the launcher's command, and no devices.

    Sidecars stay with the workers: they would keep the pod from ending. So do accounts, since the
    partitioner runs under the one that may deliver.
    """
    main = _with_command(merge.without(pod["containers"][0], _OF_THE_WORKERS_COMMAND), launcher)
    bare = merge.without(pod, ("serviceAccountName", "serviceAccount", "automountServiceAccountToken"))
    return resources.without_devices({**bare, "containers": [main]})


def _with_command(main: Mapping[str, Any], launcher: Mapping[str, Any]) -> Json:
    taken = {key: launcher[key] for key in ("command", "args") if launcher.get(key)}
    place = {key: launcher[key] for key in ("workingDir",) if launcher.get(key)}
    return {**place, **main, **taken}
