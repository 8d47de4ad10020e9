"""All that must be there for a job at one moment, in the four groups in which it is made.

Objects come first, since pods mount the ConfigMap and run under the accounts; then the NetworkPolicy, so that
no pod is ever open to others; then pods; rights last, on pods that are known to be the job's own.
"""

from collections.abc import Iterator

from dgl_operator.api.gang import GangApi
from dgl_operator.api.v1alpha1 import DGLJob
from dgl_operator.render import access, config, gang, identity, network
from dgl_operator.render import pods as rendered
from dgl_operator.render.config import Addresses
from dgl_operator.render.merge import Json
from dgl_operator.render.settings import Images, Rendering
from dglrun.contract import names
from dglrun.contract.names import Role


def objects(job: DGLJob, addresses: Addresses) -> tuple[Json, ...]:
    """Return the ConfigMaps, ServiceAccounts and the Service; a Skip job has its report and one account."""
    found = [config.report(job), *access.accounts(job)]
    if job.spec.partition_mode.has_workers:
        found = [config.config_map(job, addresses), *found, network.service(job)]
    return tuple(found)


def policies(job: DGLJob, rendering: Rendering) -> tuple[Json, ...]:
    """Return the job's NetworkPolicy, which must be there before its pods; none where it wants none."""
    return (network.policy(job),) if network.has_policy(job, rendering.has_network_policy) else ()


def policies_names(job: DGLJob) -> tuple[tuple[str, str], ...]:
    """Return kind and name of each object that `policies` may give."""
    return (("NetworkPolicy", names.network_policy(identity.job_name(job))),)


def pods(
    job: DGLJob,
    roles: frozenset[Role],
    images: Images,
    present: frozenset[str] = frozenset(),
    api: GangApi | None = None,
) -> Iterator[Json]:
    """Yield the pods of the roles, each ready to be created; the launcher first.

    One after the other: a thousand workers of a large template are a gigabyte.

    Args:
        job: A valid job.
        roles: Roles whose pods must exist.
        images: Images of the init containers.
        present: Names of pods that exist and need no rendering.
        api: How workers join their gang, None where they have none.
    """
    order = (Role.LAUNCHER, Role.PARTITIONER, Role.WORKER)
    return (
        _pod(job, role, index, images, api)
        for role in order
        if role in roles
        for index in range(_replicas(job, role))
        if rendered.name_of(job, role, index) not in present
    )


def first_pods(
    job: DGLJob, roles: frozenset[Role], images: Images, api: GangApi | None = None
) -> tuple[Json, ...]:
    """Return one pod for each role, as the others of a role differ in name and index alone."""
    return tuple(_pod(job, role, 0, images, api) for role in Role if role in roles)


def _pod(job: DGLJob, role: Role, index: int, images: Images, api: GangApi | None) -> Json:
    made = rendered.pod(job, role, index, images)
    return gang.joined(job, made, api) if api and role is Role.WORKER else made


def rights(job: DGLJob, own_pods: frozenset[str]) -> tuple[Json, ...]:
    """Return the Roles and RoleBindings that name pods in `own_pods` only: pods of the job that exist."""
    return tuple(access.rights(job, own_pods))


def rights_names(job: DGLJob) -> tuple[tuple[str, str], ...]:
    """Return kind and name of each object of `rights`, to be deleted when the job has ended."""
    return access.rights_names(job)


def _replicas(job: DGLJob, role: Role) -> int:
    spec = job.spec.dgl_replica_specs.of(role)
    return spec.replicas if spec and role is Role.WORKER else 1
