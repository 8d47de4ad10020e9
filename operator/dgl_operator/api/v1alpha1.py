"""The DGLJob API, single source of the CRD, the chart's copy, the manifests and the reference page.

Reading is lenient (`extra="ignore"`): an older operator must survive newer fields. What a job must be
beyond its types stands in `rules`, once for the API server (CEL) and once for the operator; a running
job is therefore never lost because a newer operator knows one rule more.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, GetJsonSchemaHandler, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails

from dglrun.contract.names import Mode, Role

MAX_WORKERS = 1000
"""Their names stand in three address files and a Role; each of these objects has to fit 1 MiB."""

INT32_MAX = 2**31 - 1
EXACT_MAX = 2**53
"""Largest count that every JSON reader keeps exactly; what a job reports beyond it is no count."""
MAX_MESSAGE = 32_768
"""Characters of a condition's message (metav1) and of the job's own."""
MAX_REASON = 1024
MAX_SHOWN = 200
"""Characters of a found value that a message quotes."""
MAX_ATTEMPTS = 10
"""Attempts that the status tells of, the last ones."""
MAX_ATTEMPT_MESSAGE = 1024
MAX_ANNOTATIONS = 8
"""Of the job's ServiceAccounts; all their keys together fit what is kept of one annotation."""
MAX_ANNOTATION = 1024
"""Characters of an annotation of the job's ServiceAccounts: a role or an identity, no document."""
MAX_PATH = 4096
MAX_REPLACED = 100
"""Workers of one job that are replaced alone; further losses cost attempts, which are bounded, too."""
MAX_RULES = 20
"""Rules of a failure policy, as many as a Job may have."""
MAX_RESOURCES = 32
"""Resources that `minResources` may name."""
DNS_SUBDOMAIN = r"^[a-z0-9]+([.-]+[a-z0-9]+)*$"
MANAGER = "qihoo.net/dgl-operator"
"""What `spec.runPolicy.managedBy` calls this operator."""
PERCENT = r"^[0-9]+(\.[0-9]+)?%$"
RATIO = r"^[0-9]+(\.[0-9]+)?$"
NUMBER = r"^-?[0-9]+(\.[0-9]+)?(e[+-][0-9]+)?$"


def shown(value: Any) -> str:
    """Quote a found value for a message: on one line, long ones cut."""
    text = "null" if value is None else repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def mount_path(mount: Mapping[str, Any]) -> str:
    """Return where a volumeMount mounts, in one spelling: no doubled and no trailing slash."""
    path = str(mount.get("mountPath", ""))
    return ("/" if path.startswith("/") else "") + "/".join(filter(None, path.split("/")))


class InvalidJob(ValueError):
    """The user's object is not a DGLJob that can run.

    Attributes:
        problems: One line each: where, what was expected, what was found.
    """

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class CleanPodPolicy(Enum):
    """Which pods are deleted when the job has ended."""

    RUNNING = "Running"
    NONE = "None"
    ALL = "All"


class Phase(Enum):
    """Where a job stands; the last two are final."""

    SUSPENDED = "Suspended"
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
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        populate_by_name=True,
        use_enum_values=False,
        use_attribute_docstrings=True,
    )

    def wire(self) -> dict[str, Any]:
        """Return the JSON object as the API server stores it: camelCase keys, nothing unset."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class ReplicaSpec(Model):
    """The pods of one role."""

    replicas: int = Field(default=1, ge=1, le=MAX_WORKERS)
    """How many pods the role has; more than one only for Worker."""
    template: dict[str, Any]
    """A PodTemplateSpec with every native key kept; its first container runs the job's command."""

    @property
    def containers(self) -> tuple[dict[str, Any], ...]:
        """The user's containers, empty where the template has none."""
        spec = self.template.get("spec")
        found = spec.get("containers") if isinstance(spec, Mapping) else None
        return tuple(found) if isinstance(found, list) else ()

    @property
    def main(self) -> dict[str, Any]:
        """The first container, which the operator drives.

        Raises:
            InvalidJob: the template has no container.
        """
        if not self.containers:
            raise InvalidJob(("template.spec.containers: expected at least one container, got none",))
        return self.containers[0]


class ReplicaSpecs(Model):
    """The roles: Launcher always, Worker unless partitionMode is Skip, Partitioner where one is wanted."""

    # Roles that nobody knows are kept, so that `rules` can name them: silently dropped, a mistyped
    # `Wroker` would become a job without workers.
    model_config = ConfigDict(extra="allow")

    launcher: ReplicaSpec = Field(alias="Launcher")
    """Starts the training and follows it; exactly one pod."""
    worker: ReplicaSpec | None = Field(default=None, alias="Worker")
    """Train; worker i holds part i of the graph."""
    partitioner: ReplicaSpec | None = Field(default=None, alias="Partitioner")
    """Partitions the graph; made from the worker's template and the launcher's command unless given."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, _core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Describe a map from role to spec.

        The API server prunes unknown properties before it validates; in a map it keeps all keys, and a
        CEL rule can refuse a role that does not exist.
        """
        roles = handler(ReplicaSpec.__pydantic_core_schema__)
        return {
            "type": "object",
            "description": cls.__doc__,
            "additionalProperties": roles,
            "maxProperties": 8,
        }

    @property
    def unknown(self) -> tuple[str, ...]:
        """Keys that are no role, sorted."""
        return tuple(sorted(self.model_extra or ()))

    def of(self, role: Role) -> ReplicaSpec | None:
        """The spec of one role, None where the user gave none."""
        return {Role.LAUNCHER: self.launcher, Role.WORKER: self.worker, Role.PARTITIONER: self.partitioner}[
            role
        ]


class NetworkPolicySpec(Model):
    """Who may open connections to the job's pods, beside the job's own pods.

    It needs a network plug-in that enforces NetworkPolicies.
    """

    enabled: bool | None = None
    """Whether the job has a NetworkPolicy; unset: as the administrator chose (--job-network-policy)."""
    ingress: tuple[dict[str, Any], ...] = ()
    """NetworkPolicyIngressRules (networking.k8s.io/v1) that admit others, on these ports of all pods of the
    job; ignored where the job has no NetworkPolicy."""


class DatasetVolume(Model):
    """A volume of the launcher, the partitioner and every worker, at one path in all of them.

    Beside the fields below it has exactly one volume source, as a pod's volume has it: persistentVolumeClaim,
    ephemeral, hostPath, nfs, csi...
    """

    # The source is whatever Kubernetes knows: kept as it is, and refused by name when a pod is made of it.
    model_config = ConfigDict(extra="allow")

    mount_path: str = Field(default="/data", max_length=MAX_PATH)
    """Where the main containers have the volume: an absolute path."""
    read_only: bool = False
    """Whether the main containers may only read it."""

    @property
    def source(self) -> dict[str, Any]:
        """The volume source by its name in the API of pods; exactly one in a good job."""
        return dict(self.model_extra or {})

    @property
    def path(self) -> str:
        """The mount path in one spelling."""
        return mount_path({"mountPath": self.mount_path})


class SchedulingPolicy(Model):
    """How the workers get their nodes together: all of them or none."""

    min_available: int | None = Field(default=None, ge=1, le=MAX_WORKERS)
    """Workers that get nodes together or not at all; unset: all."""
    priority_class: str | None = Field(default=None, min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)
    """PriorityClass of the workers, where their template names none."""
    min_resources: dict[str, Any] = Field(default_factory=dict, max_length=MAX_RESOURCES)
    """What the cluster has to have free before any worker gets a node; coscheduling only."""
    schedule_timeout_seconds: int | None = Field(default=None, ge=1, le=INT32_MAX)
    """Seconds that workers which have found a node wait for the others before all try again; coscheduling
    only. startDeadlineSeconds bounds the whole wait."""
    queue: str | None = Field(default=None, max_length=253)
    """Not supported: neither of the two gang schedulers has queues."""


class RunPolicy(Model):
    """How long the job and its pods may take, how often it is tried, and who looks after it."""

    suspend: bool = False
    """Whether the job has no pods for now. To set it ends the pods and resets startTime; to unset it begins a
    new attempt. May be changed while the job runs."""
    active_deadline_seconds: int | None = Field(default=None, ge=1, le=INT32_MAX)
    """Seconds from startTime, all attempts together, after which a job that has not ended is Failed with
    reason DeadlineExceeded and its pods are ended. Unset: no limit. May be changed while the job runs."""
    start_deadline_seconds: int = Field(default=1800, ge=1, le=INT32_MAX)
    """Seconds that a set of pods may take to start, for a node, images, volumes, quota: until each has run a
    container, after its init containers the main one, and workers are Ready. The time of init containers does
    not count. Then the job is Failed with reason StartDeadlineExceeded. May be changed while the job runs."""
    ttl_seconds_after_finished: int | None = Field(default=None, ge=0, le=INT32_MAX)
    """Seconds from completionTime after which the whole DGLJob is deleted with all that it owns. Unset:
    never. May be changed at any time."""
    backoff_limit: int = Field(default=0, ge=0, le=INT32_MAX)
    """Attempts beyond the first that failures may cost. Evicted, preempted and deleted pods and lost nodes do
    not count. May be changed while the job runs."""
    managed_by: str | None = Field(
        default=None,
        max_length=63,
        pattern=r"^[a-z0-9.-]+/[A-Za-z0-9._~-]+$",
    )
    """Controller that looks after the job; any other than qihoo.net/dgl-operator: this operator neither acts
    on the job nor writes its status. Cannot be changed after creation."""
    scheduling_policy: SchedulingPolicy | None = None
    """Gang scheduling: the workers get their nodes together or not at all. Launcher and partitioner are no
    part of the gang, since workers come when the graph is partitioned. Unset: each worker by itself. Cannot
    be changed after creation."""


class FailureAction(Enum):
    """What follows from a failure that a rule matches."""

    FAIL_JOB = "FailJob"
    RESTART = "Restart"
    IGNORE = "Ignore"


class ExitCodeOperator(Enum):
    """Whether an exit code has to be among the values or not."""

    IN = "In"
    NOT_IN = "NotIn"


class OnExitCodes(Model):
    """Containers that ended with another code than 0, init containers included."""

    container_name: str | None = Field(default=None, min_length=1, max_length=63)
    """The container; unset: any of the pod."""
    operator: ExitCodeOperator
    """In: the code is one of the values; NotIn: it is none of them."""
    values: tuple[int, ...] = Field(min_length=1, max_length=255)
    """Exit codes; 0 is not allowed with In."""


class OnPodCondition(Model):
    """A condition of the pod."""

    type: str = Field(min_length=1, max_length=316)
    """Such as DisruptionTarget."""
    status: str = Field(default="True", json_schema_extra={"enum": ["True", "False", "Unknown"]})
    """True, False or Unknown."""


class FailureRule(Model):
    """Matches the pod that is the root cause of a failure; all that the rule names has to be so."""

    action: FailureAction
    """FailJob: the job is Failed at once; Restart: a new attempt that counts towards backoffLimit; Ignore: a
    new attempt that does not count."""
    role: Role | None = None
    """Role of the pod; unset: any."""
    on_exit_codes: OnExitCodes | None = None
    """Containers that ended with another code than 0, init containers included."""
    on_pod_conditions: tuple[OnPodCondition, ...] = Field(default=(), max_length=MAX_RULES)
    """Conditions of the pod, of which one has to be there."""


class FailurePolicy(Model):
    """What follows from which failure; without a rule that matches, backoffLimit decides."""

    rules: tuple[FailureRule, ...] = Field(default=(), max_length=MAX_RULES)
    """The first rule that matches is taken."""


class JobSpec(Model):
    """What the user wants."""

    partition_mode: Mode = Mode.DGL_API
    """How the graph is partitioned: DGL-API by DGL in a partitioner pod, ParMETIS by several processes in a
    partitioner pod, DistParMETIS by processes on all workers, Skip not at all (the launcher trains alone).
    Cannot be changed after creation."""
    clean_pod_policy: CleanPodPolicy = CleanPodPolicy.RUNNING
    """Which pods are deleted when the job has ended: those still Running, None or All."""
    slots_per_worker: int = Field(default=1, ge=1)
    """Written as slots=N on each worker's line of the hostfile. Cannot be changed after creation."""
    network_policy: NetworkPolicySpec | None = None
    """Who may open connections to the job's pods, beside the job's own pods. May be changed while the job
    runs."""
    run_policy: RunPolicy = Field(default_factory=RunPolicy)
    """How long the job and its pods may take, how often it is tried, and who looks after it."""
    failure_policy: FailurePolicy | None = None
    """What follows from which failure; without a rule that matches, backoffLimit decides. Cannot be changed
    after creation."""
    dataset_volume: DatasetVolume | None = None
    """A volume of the launcher, the partitioner and every worker, at one path in all of them: mountPath,
    readOnly and exactly one volume source, as a pod's volume has it (persistentVolumeClaim, ephemeral,
    hostPath, nfs, csi...). Cannot be changed after creation."""
    service_account_annotations: dict[str, Annotated[str, Field(max_length=MAX_ANNOTATION)]] = Field(
        default_factory=dict, max_length=MAX_ANNOTATIONS
    )
    """Annotations of the ServiceAccounts that the operator makes for the job's pods, by which a cloud gives
    them an identity; workers have an account of their own then. Cannot be changed after creation."""
    dgl_replica_specs: ReplicaSpecs
    """The pods of each role. Cannot be changed after creation."""


class ReplicaStatus(Model):
    """Pods of one role, counted by what is observed."""

    pending: int = Field(default=0, ge=0)
    """Pods that wait for a node, an image or a volume."""
    starting: int = Field(default=0, ge=0)
    """Pods whose init containers run or whose containers are not Ready yet."""
    running: int = Field(default=0, ge=0)
    """Pods whose containers run."""
    succeeded: int = Field(default=0, ge=0)
    """Pods that ended with exit code 0."""
    failed: int = Field(default=0, ge=0)
    """Pods that failed, were evicted or were lost."""
    ready: str = "0/0"
    """Ready/desired pods, as n/m."""


class Condition(Model):
    """A metav1.Condition."""

    type: str = Field(min_length=1, max_length=316)
    """What is said, in CamelCase."""
    status: str = Field(json_schema_extra={"enum": ["True", "False", "Unknown"]})
    """True, False or Unknown."""
    reason: str = Field(min_length=1, max_length=MAX_REASON)
    """Why, in one CamelCase word."""
    message: str = Field(default="", max_length=MAX_MESSAGE)
    """Why, for people."""
    last_transition_time: datetime
    """When status last changed."""
    observed_generation: int | None = Field(default=None, ge=0)
    """metadata.generation that the condition was computed for."""


class Progress(Model):
    """What the job last reported of itself."""

    stage: str
    """Partitioning, Delivering, Dispatching, Training, Collecting or Completed."""
    message: str = ""
    """Details for people, such as epoch and loss."""
    percent: int | None = Field(default=None, ge=0, le=100)
    """Share of the stage that is done."""
    epoch: int | None = Field(default=None, ge=0, le=INT32_MAX)
    """Epoch that the training script told last, by dglrun.progress."""
    loss: str | None = Field(default=None, max_length=32, pattern=NUMBER)
    """Loss that the training script told last."""
    replaces: bool | None = None
    """Whether the launcher goes on when a lost worker is replaced alone; else that costs an attempt."""
    time: AwareDatetime | None = None
    """When the job reported it."""


class PartitionStatus(Model):
    """Quality of the partition, as dglrun measured it; details per type stand in the report ConfigMap."""

    method: str | None = None
    """What assigned the nodes: random, metis, parmetis or a file that the user brought."""
    backend: str | None = None
    """Which program or library ran, such as dgl, parmetis, pm_dglpart or zoltan."""
    num_parts: int | None = Field(default=None, ge=1, le=INT32_MAX)
    """Number of parts; one for each worker."""
    num_nodes: int | None = Field(default=None, ge=0, le=EXACT_MAX, json_schema_extra={"format": "int64"})
    """Nodes of the whole graph."""
    num_edges: int | None = Field(default=None, ge=0, le=EXACT_MAX, json_schema_extra={"format": "int64"})
    """Edges of the whole graph."""
    edge_cut: str | None = Field(default=None, pattern=PERCENT)
    """Edges between two parts, of all edges, such as 12.3%."""
    node_balance: str | None = Field(default=None, pattern=RATIO)
    """Nodes of the largest part over the mean of the parts; 1.00 is perfect."""
    edge_balance: str | None = Field(default=None, pattern=RATIO)
    """Edges of the largest part over the mean of the parts; 1.00 is perfect."""
    train_node_balance: str | None = Field(default=None, pattern=RATIO)
    """Training nodes of the largest part over the mean of the parts; 1.00 is perfect."""
    halo_share: str | None = Field(default=None, pattern=PERCENT)
    """Copies of other parts' nodes, of the nodes in the parts' files, such as 31.0%."""
    verified: bool | None = None
    """Whether the parts were proved against their source; unset when it was not tried."""


class Attempt(Model):
    """One set of the job's pods, from the creation of the first to the end of all."""

    number: int = Field(ge=0, le=INT32_MAX)
    """Number of the attempt, from 0; the label dgl-operator/attempt of its pods."""
    start_time: datetime
    """When its first pods were wanted; of a job of an older operator: when this one first saw it."""
    completion_time: datetime | None = None
    """When it ended."""
    reason: str | None = Field(default=None, max_length=MAX_REASON)
    """Why it ended, in one CamelCase word."""
    message: str | None = Field(default=None, max_length=MAX_ATTEMPT_MESSAGE)
    """Why it ended, for people."""
    waiting_since: datetime | None = None
    """Since when a pod of it waits for its start; startDeadlineSeconds counts from here."""
    waits: int = Field(default=0, ge=0, le=INT32_MAX)
    """How often it began to wait for pods."""
    lost_workers: tuple[str, ...] = Field(default=(), max_length=MAX_REPLACED)
    """Workers that were lost while the launcher trains, and whose replacements are not Ready yet."""


class Restarts(Model):
    """What attempts beyond the first were made for, and pods that were replaced without one."""

    failures: int = Field(default=0, ge=0, le=INT32_MAX)
    """Attempts after failures; these count towards backoffLimit."""
    disruptions: int = Field(default=0, ge=0, le=INT32_MAX)
    """Attempts after a pod was evicted, preempted or deleted, or its node was lost."""
    ignored: int = Field(default=0, ge=0, le=INT32_MAX)
    """Attempts after failures that a rule of failurePolicy ignores."""
    suspensions: int = Field(default=0, ge=0, le=INT32_MAX)
    """Attempts after the job was suspended."""
    pods: int = Field(default=0, ge=0, le=INT32_MAX)
    """Pods that were replaced within their attempt, since they had no work yet."""
    workers: int = Field(default=0, ge=0, le=INT32_MAX)
    """Workers that were lost in the training and replaced alone, within their attempt."""


class JobStatus(Model):
    """What the operator observed of the job."""

    phase: Phase | None = None
    """Suspended, Pending, Starting, Partitioning, Partitioned or Training; finally Completed or Failed."""
    message: str | None = Field(default=None, max_length=MAX_MESSAGE)
    """What the job waits for, or why it failed: pod, container, exit code and last log lines."""
    conditions: tuple[Condition, ...] = ()
    """Milestones of the attempt, and how the job is."""
    attempt: int = Field(default=0, ge=0, le=INT32_MAX)
    """Number of the attempt, from 0."""
    attempts: tuple[Attempt, ...] = Field(default=(), max_length=MAX_ATTEMPTS)
    """The last attempts, the current one at the end."""
    restarts: Restarts | None = None
    """What attempts beyond the first were made for."""
    replica_statuses: dict[str, ReplicaStatus] = Field(default_factory=dict)
    """Pods of each role (Launcher, Worker, Partitioner)."""
    start_time: datetime | None = None
    """When the operator first acted on the job, or when it was resumed; unset while it is suspended."""
    completion_time: datetime | None = None
    """When the job ended, well or not."""
    last_reconcile_time: datetime | None = None
    """When this status last changed."""
    observed_generation: int | None = Field(default=None, ge=0, json_schema_extra={"format": "int64"})
    """metadata.generation that this status was computed for."""
    progress: Progress | None = None
    """What the job last reported of itself."""
    partition: PartitionStatus | None = None
    """Quality of the partition."""


MAX_CONDITIONS = 64
"""More conditions than these are nobody's of ours."""


def readable_status(status: Any) -> dict[str, Any]:
    """Return what can be read of a stored status, as it is stored.

    The API server takes what this model does not, such as a time in the year 0 that somebody else wrote;
    that part is left out, and the job goes on with the rest.
    """
    found = dict(status) if isinstance(status, Mapping) else {}
    if isinstance(conditions := found.get("conditions"), list):
        found["conditions"] = conditions[:MAX_CONDITIONS]
    try:
        JobStatus.model_validate(found)
    except ValidationError as error:
        places = [each["loc"] for each in error.errors(include_input=False, include_url=False)]
        bad = {place[1] for place in places if place[0] == "conditions" and len(place) > 1}
        kept = [each for at, each in enumerate(found.get("conditions") or ()) if at not in bad]
        whole = {str(place[0]) for place in places if place[0] != "conditions" or len(place) == 1}
        found = {key: value for key, value in found.items() if key not in whole}
        return found | ({"conditions": kept} if "conditions" in found else {})
    return found


class DGLJob(Model):
    """A DGLJob trains a graph neural network with DGL on the pods that it describes."""

    metadata: dict[str, Any]
    spec: JobSpec
    status: JobStatus = Field(default_factory=JobStatus)

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Self:
        """Read an object as the API server returns it; types only, see `rules.violations` for the rest.

        Raises:
            InvalidJob: a required field is missing or has another type.
        """
        try:
            return cls.model_validate(raw)
        except ValidationError as error:
            raise InvalidJob(tuple(_line(details) for details in error.errors())) from error


def _line(error: ErrorDetails) -> str:
    where = ".".join(_step(part) for part in error["loc"])
    if error["type"] == "missing":
        return f"{where}: required, got nothing"
    return f"{where}: {error['msg']}, got {shown(error['input'])}"


def _step(part: str | int) -> str:
    """One key of a path; a key that is no word, which may be long or have several lines, is quoted."""
    return str(part) if isinstance(part, int) or re.fullmatch(r"[\w.$-]{1,100}", part) else shown(part)
