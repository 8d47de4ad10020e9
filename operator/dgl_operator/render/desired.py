"""All that must be there for a job at one moment: objects to apply, and pods to create where they lack."""

from dataclasses import dataclass

from dgl_operator.api.v1alpha1 import DGLJob
from dgl_operator.render import access, config, network, pods
from dgl_operator.render.config import Addresses
from dgl_operator.render.merge import Json
from dgl_operator.render.settings import Images
from dglrun.contract.names import Role


@dataclass(frozen=True)
class Desired:
    """The wanted objects.

    Attributes:
        objects: In the order in which they must come: pods mount the ConfigMap and use the accounts.
        pods: In the order in which they are created; the launcher first.
    """

    objects: tuple[Json, ...]
    pods: tuple[Json, ...]


def objects(job: DGLJob, addresses: Addresses) -> tuple[Json, ...]:
    """Return everything but the pods; a Skip job has its report and the right to write it."""
    mode = job.spec.partition_mode
    found = [config.report(job), *access.of_launcher(job)]
    if mode.has_workers:
        found = [config.config_map(job, addresses), *found, network.service(job)]
    if mode.has_partitioner:
        found += access.of_partitioner(job)
    return tuple(found)


def pods_of(
    job: DGLJob, roles: frozenset[Role], images: Images, present: frozenset[str] = frozenset()
) -> tuple[Json, ...]:
    """Return the pods of the roles, each ready to be created, but for those that are present by name."""
    order = (Role.LAUNCHER, Role.PARTITIONER, Role.WORKER)
    return tuple(
        pods.pod(job, role, index, images)
        for role in order
        if role in roles
        for index in range(_replicas(job, role))
        if pods.name_of(job, role, index) not in present
    )


def desired(
    job: DGLJob,
    roles: frozenset[Role],
    addresses: Addresses,
    images: Images,
    present: frozenset[str] = frozenset(),
) -> Desired:
    """Return all that must be there.

    Args:
        job: A valid job.
        roles: Roles whose pods must exist.
        addresses: Addresses of the pods that have one.
        images: Images of the init containers.
        present: Names of pods that exist and need no rendering.
    """
    return Desired(objects(job, addresses), pods_of(job, roles, images, present))


def _replicas(job: DGLJob, role: Role) -> int:
    spec = job.spec.dgl_replica_specs.of(role)
    return spec.replicas if spec and role is Role.WORKER else 1
