"""The DGLJob API, single source of the CRD, the chart's copy and the manifests.

Reading is lenient (`extra="ignore"`): an older operator must survive newer fields. What the API
server refuses is said here too, as bounds, enums and CEL rules.
"""

from datetime import datetime
from enum import Enum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from dglrun.contract.names import Mode, Role


class CleanPodPolicy(Enum):
    """Which pods are deleted when the job has ended."""

    RUNNING = "Running"
    NONE = "None"
    ALL = "All"


class Phase(Enum):
    """Where a job stands; the last two are final."""

    PENDING = "Pending"
    STARTING = "Starting"
    PARTITIONING = "Partitioning"
    PARTITIONED = "Partitioned"
    TRAINING = "Training"
    COMPLETED = "Completed"
    FAILED = "Failed"

    @property
    def is_final(self) -> bool:
        """Whether a job in this phase never moves again."""
        return self in (Phase.COMPLETED, Phase.FAILED)


class Model(BaseModel):
    """Frozen values with camelCase keys."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True, use_enum_values=False
    )


class ReplicaSpec(Model):
    """The pods of one role."""

    replicas: int = Field(default=1, ge=1, description="How many pods the role has.")
    template: dict[str, Any] = Field(description="A PodTemplateSpec; native keys are kept.")


class ReplicaSpecs(Model):
    """The roles of a job."""

    launcher: ReplicaSpec = Field(alias="Launcher")
    worker: ReplicaSpec | None = Field(default=None, alias="Worker")
    partitioner: ReplicaSpec | None = Field(default=None, alias="Partitioner")

    def of(self, role: Role) -> ReplicaSpec | None:
        """The spec of one role, None where the user gave none."""
        return {Role.LAUNCHER: self.launcher, Role.WORKER: self.worker, Role.PARTITIONER: self.partitioner}[role]


class JobSpec(Model):
    """What the user wants."""

    partition_mode: Mode = Mode.DGL_API
    clean_pod_policy: CleanPodPolicy = CleanPodPolicy.RUNNING
    slots_per_worker: int = Field(default=1, ge=1)
    dgl_replica_specs: ReplicaSpecs


class ReplicaStatus(Model):
    """Pods of one role, counted by what is observed."""

    pending: int = 0
    starting: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    ready: str = "0/0"


class Condition(Model):
    """A metav1.Condition."""

    type: str
    status: str
    reason: str
    message: str = ""
    last_transition_time: datetime
    observed_generation: int | None = None


class Progress(Model):
    """What the job last reported of itself."""

    stage: str
    message: str = ""
    percent: int | None = None
    time: datetime | None = None


class PartitionStatus(Model):
    """Quality of the partition, as dglrun measured it."""

    method: str | None = None
    num_parts: int | None = None


class JobStatus(Model):
    """What is true of the job."""

    phase: Phase | None = None
    message: str | None = None
    conditions: tuple[Condition, ...] = ()
    replica_statuses: dict[str, ReplicaStatus] = Field(default_factory=dict)
    start_time: datetime | None = None
    completion_time: datetime | None = None
    last_reconcile_time: datetime | None = None
    observed_generation: int | None = None
    progress: Progress | None = None
    partition: PartitionStatus | None = None


class DGLJob(Model):
    """A DGLJob as the API server stores it."""

    metadata: dict[str, Any]
    spec: JobSpec
    status: JobStatus = Field(default_factory=JobStatus)
