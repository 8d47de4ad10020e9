"""A run's configuration: the command line and the pod's environment, checked once and frozen."""

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from dglrun.contract import env, names, version
from dglrun.contract.names import Mode
from dglrun.formats import uri
from dglrun.mpi.mpirun import INTERFACE
from dglrun.mpi.watchdog import WAIT
from dglrun.partitioning import BACKENDS, DGL_API_BACKENDS, DGL_METHODS

AtLeastOne = Annotated[int, Field(ge=1)]
AtLeastZero = Annotated[int, Field(ge=0)]


JOB_BACKENDS = {**BACKENDS, Mode.DGL_API: DGL_API_BACKENDS}
"""What partitions a chunked graph in a job of each mode: the first one unless another is named."""


class ConfigError(Exception):
    """The command line or the environment is not what a run needs; one line for each problem."""


class JobContext(BaseModel):
    """What the operator tells a pod about itself and its job.

    Attributes:
        phase: Role of this pod: Partitioner, Launcher or Launcher_Workload (Skip).
        job: Name of the DGLJob.
        workers: Number of workers, None outside of a job.
        container: Main container of the workers.
        contract: The operator's contract version, which its init containers have, too.
        image: The image of this pod's main container as the job names it; empty: unknown.
        replacement_timeout: How many seconds the launcher waits for the replacement of a lost worker; 0: the
            operator replaces none alone.
    """

    model_config = ConfigDict(frozen=True)

    in_job: bool
    phase: Literal["Partitioner", "Launcher", "Launcher_Workload"]
    job: str
    namespace: str
    mode: Mode
    workers: AtLeastOne | None
    container: str
    gpus: AtLeastZero
    kubectl: str
    kubexec: str
    hostfile: str
    report: str | None
    contract: int = version.CURRENT
    image: str = ""
    replacement_timeout: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "JobContext":
        """Read the variables of `dglrun.contract.env`.

        Raises:
            ConfigError: a value is not what it must be.
        """
        in_job = environ.get(env.OPERATOR) == "1" or env.JOB_NAME in environ
        raw = {
            "in_job": in_job,
            "phase": environ.get(env.PHASE) or env.PHASE_LAUNCHER,
            "job": environ.get(env.JOB_NAME) or "job",
            "namespace": environ.get(env.NAMESPACE) or "default",
            "mode": environ.get(env.PARTITION_MODE) or Mode.DGL_API.value,
            "workers": environ.get(env.NUM_WORKERS) or None,
            "container": environ.get(env.WORKER_CONTAINER) or "main",
            "gpus": environ.get(env.GPUS_PER_WORKER) or 0,
            "kubectl": environ.get(env.KUBECTL_PATH) or f"{names.KUBE_DIR}/kubectl",
            "kubexec": environ.get(env.KUBEXEC_PATH) or f"{names.CONFIG_DIR}/{names.KUBEXEC}",
            "hostfile": environ.get(env.HOSTFILE_PATH) or f"{names.CONFIG_DIR}/{names.HOSTFILE}",
            "report": environ.get(env.REPORT) or None,
            "replacement_timeout": environ.get(env.REPLACEMENT_TIMEOUT) or 0,
            "contract": environ.get(env.CONTRACT_VERSION) or (version.UNNAMED if in_job else version.CURRENT),
            "image": environ.get(env.IMAGE) or "",
        }
        try:
            return cls.model_validate(raw)
        except ValidationError as error:
            raise ConfigError(_told(error, _variable)) from error


class RunConfig(BaseModel):
    """A workflow as the command line describes it; docs/reference/dglrun.md explains each flag."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    context: JobContext
    graph_name: str | None = None
    num_partitions: AtLeastOne | None = None
    partition_entry_point: str | None = None
    chunked_graph: str | None = None
    partition_backend: str | None = None
    partition_assignment: str | None = None
    partition_ranks: AtLeastOne | None = None
    partition_balance: str = "types,edges"
    partition_seed: int = 1
    partition_timeout: AtLeastOne = 86400
    interface: Annotated[str, Field(pattern=INTERFACE)] = "eth0"
    balance_train: bool = False
    balance_edges: bool = False
    use_graphbolt: bool = False
    dataset_url: str | None = None
    partitions: str | None = None
    repartition: bool = False
    train_entry_point: str | None = None
    num_epochs: AtLeastOne | None = None
    batch_size: AtLeastOne | None = None
    num_trainers: AtLeastOne = 1
    num_samplers: AtLeastZero = 0
    num_servers: AtLeastOne = 1
    num_gpus: AtLeastZero | None = None
    backend: Literal["gloo", "nccl"] | None = None
    graph_format: str = "csc"
    workspace: str = names.WORKSPACE
    dataset_dir: str = names.DATASET_DIR
    partition_config_path: str | None = None
    output_dir: str | None = None
    checkpoints: str | None = None
    checkpoint_interval: Annotated[float, Field(ge=1)] = 15.0
    checkpoint_bandwidth: Annotated[float, Field(gt=0)] = 50.0
    output_uri: str | None = None
    verify: Literal["auto", "always", "never"] = "auto"
    start_timeout: Annotated[float, Field(gt=0)] = 900.0
    lease: Annotated[float, Field(ge=3)] = 30.0
    hang_timeout: Annotated[float, Field(gt=0)] | None = None
    shm_dir: str = names.SHM_DIR
    python: str = sys.executable or "python3"
    script_args: tuple[str, ...] = ()
    verbose: bool = False

    @field_validator("graph_name")
    @classmethod
    def _is_file_stem(cls, name: str | None) -> str | None:
        if name is not None and (not name or "/" in name or name.startswith("-")):
            raise ValueError("expected a name without '/' that does not begin with '-'")
        return name

    @field_validator("partition_balance")
    @classmethod
    def _is_balance(cls, text: str) -> str:
        if not set(text.split(",")) <= {"nodes", "types", "edges", "train"}:
            raise ValueError("expected some of nodes, types, edges, train, separated by commas")
        return text

    @field_validator("graph_format")
    @classmethod
    def _is_format(cls, text: str) -> str:
        unknown = [part for part in text.split(",") if part not in ("coo", "csc", "csr")]
        if unknown:
            raise ValueError("expected one or more of coo, csc, csr, separated by commas")
        return text

    @field_validator("chunked_graph", "checkpoints", "partitions", "output_uri")
    @classmethod
    def _is_good_if_a_uri(cls, text: str | None) -> str | None:
        if uri.may_have_secrets(text or ""):
            raise ValueError(
                "expected no credentials and no options in the URI (no '@', '?' or '#'):"
                " they are in the environment"
            )
        if uri.lacks_bucket(text or ""):
            raise ValueError("expected a bucket's name as in s3://bucket/prefix")
        return text

    @field_validator("checkpoints", "partitions", "output_uri")
    @classmethod
    def _is_place(cls, text: str | None) -> str | None:
        if text is not None and not (text.startswith("/") or uri.is_uri(text)):
            raise ValueError("expected an absolute path or a URI such as s3://bucket/prefix")
        return text

    @property
    def is_partitioner(self) -> bool:
        """Whether this pod partitions."""
        return self.context.phase == env.PHASE_PARTITIONER

    @property
    def is_skip(self) -> bool:
        """Whether the training script runs in this very pod."""
        return self.context.phase == env.PHASE_SKIP

    @property
    def partitions_on_workers(self) -> bool:
        """Whether the workers partition the graph themselves."""
        return self.context.mode is Mode.DIST_PARMETIS

    @property
    def replaces_workers(self) -> bool:
        """Whether the training goes on when the operator replaces a lost worker."""
        is_launcher = not (self.is_partitioner or self.is_skip)
        return is_launcher and self.context.replacement_timeout > 0

    @property
    def assigner(self) -> str:
        """The back end that assigns the nodes of a chunked graph to parts."""
        return self.partition_backend or JOB_BACKENDS[self.context.mode][0]

    @property
    def is_partitioned_by_dgl(self) -> bool:
        """Whether DGL assigns the nodes of a chunked graph, in one process, as its partition_graph does."""
        return self.context.mode is Mode.DGL_API and self.assigner in DGL_METHODS

    @property
    def balance(self) -> str:
        """What a back end balances that is not DGL's, as words joined by commas."""
        words = self.partition_balance.split(",")
        more = {"train": self.balance_train, "edges": self.balance_edges}
        return ",".join([*words, *(word for word, is_set in more.items() if is_set and word not in words)])

    @property
    def wait_of_ranks(self) -> str:
        """Seconds that a rank waits for others of which none works, as a word; mpirun may take longer."""
        return f"{min(WAIT, self.partition_timeout):g}"

    @property
    def workers(self) -> int:
        """Number of workers; outside of a job as many as partitions."""
        return self.context.workers or self.num_partitions or 1

    @property
    def output(self) -> str:
        """DGL_OUTPUT_DIR, on the workers and on the launcher."""
        return self.output_dir or f"{self.workspace}/output"

    @property
    def checkpoint_folder(self) -> str:
        """The folder of the ranks' checkpoints: on workers and, without --checkpoints, on the launcher."""
        return f"{self.workspace}/{names.CHECKPOINTS}/{self.context.job}"

    @property
    def checkpoint_place(self) -> str:
        """Where a place of the user's has this job's checkpoints; empty without one."""
        if not self.checkpoints:
            return ""
        return f"{self.checkpoints.rstrip('/')}/{self.context.namespace}/{self.context.job}"

    @property
    def workload(self) -> str:
        """Folder of a worker's part."""
        return f"{self.workspace}/workload"

    @property
    def partition_config(self) -> str:
        """The partition's JSON on the launcher."""
        return self.partition_config_path or f"{self.dataset_dir}/{self.graph_name}.json"

    @property
    def produced_config(self) -> str:
        """The partition's JSON where the partition script leaves it."""
        return f"{self.workspace}/dataset/{self.graph_name}.json"


def check(config: RunConfig) -> RunConfig:
    """Hold flags and environment against each other.

    Raises:
        ConfigError: all contradictions, one on a line.
    """
    problems = [
        *_missing(config),
        *_contradictions(config),
        *_contradictions_of_mode(config),
        *_contradictions_of_keeping(config),
    ]
    if problems:
        raise ConfigError("\n".join(problems))
    return config


def parse(context: JobContext, flags: Mapping[str, object], script_args: tuple[str, ...]) -> RunConfig:
    """Make a configuration of parsed flags; unset ones (None) take their default.

    Raises:
        ConfigError: a value is not what it must be; names its flag.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return RunConfig.model_validate({**given, "context": context, "script_args": script_args})
    except ValidationError as error:
        raise ConfigError(_told(error, _flag)) from error


def _missing(config: RunConfig) -> list[str]:
    if config.is_skip:
        needed = ["train_entry_point"]
    elif config.is_partitioner:
        needed = ["graph_name", "num_partitions", _source_of_parts(config)]
    else:
        needed = ["graph_name", "train_entry_point"]
        needed += ["chunked_graph"] if config.partitions_on_workers else []
    where = config.context.phase
    return [f"{_flag(name)} is missing: the {where} needs it" for name in needed if not getattr(config, name)]


def _source_of_parts(config: RunConfig) -> str:
    """DGL-API takes a script or a chunked graph; the other modes partition a chunked graph."""
    is_script = config.context.mode is Mode.DGL_API and not config.chunked_graph
    return "partition_entry_point" if is_script else "chunked_graph"


def _contradictions(config: RunConfig) -> list[str]:
    context, problems = config.context, []
    if not config.is_skip and context.workers and config.num_partitions not in (None, context.workers):
        problems.append(
            f"--num-partitions is {config.num_partitions}, but the job has {context.workers} workers"
            f" ({env.NUM_WORKERS}): expected the same number, as worker i trains on part i"
        )
    if context.in_job and not config.is_skip and config.num_gpus and config.num_gpus > context.gpus:
        problems.append(f"--num-gpus is {config.num_gpus}, but a worker has {context.gpus} GPUs")
    if config.backend == "nccl" and not config.num_gpus:
        problems.append("--backend nccl needs GPUs: expected --num-gpus of at least 1")
    if config.backend == "nccl" and config.num_trainers > (config.num_gpus or 0):
        problems.append(
            f"--num-trainers is {config.num_trainers}, but --num-gpus is {config.num_gpus or 0}:"
            " nccl takes one trainer for each GPU at most"
        )
    return problems


def _contradictions_of_mode(config: RunConfig) -> Iterator[str]:
    mode, backend = config.context.mode, config.partition_backend
    if config.is_skip:
        if config.hang_timeout is not None:
            yield "--hang-timeout: mode Skip has no workers, whose activity could be watched"
        return
    if backend and backend not in JOB_BACKENDS[mode]:
        yield f"--partition-backend is {backend}: mode {mode.value} has {', '.join(JOB_BACKENDS[mode])}"
    if (backend == "user") != (config.partition_assignment is not None):
        yield "--partition-assignment DIR and --partition-backend user must be used together"
    if config.partition_entry_point and config.partitions_on_workers:
        yield "--partition-entry-point: mode DistParMETIS takes none, the workers read --chunked-graph"
    if config.use_graphbolt and not config.chunked_graph:
        yield "--use-graphbolt goes with --chunked-graph: a partition script calls partition_graph itself"
    if config.partition_ranks and config.is_partitioned_by_dgl:
        yield "--partition-ranks: mode DGL-API partitions in one process"
    if config.partitions_on_workers and config.partition_ranks and config.partition_ranks < config.workers:
        yield (
            f"--partition-ranks is {config.partition_ranks}, but there are {config.workers} workers: "
            "expected one for each at least, as each keeps the assignment on its own disk"
        )


def _contradictions_of_keeping(config: RunConfig) -> Iterator[str]:
    if config.repartition and not config.partitions:
        yield "--repartition goes with --partitions: without it every job partitions"
    if config.partitions and config.is_skip:
        yield "--partitions: mode Skip has no partition"
    # The partition of a script would be used again in other images.
    is_job = config.is_partitioner and config.context.in_job
    if is_job and config.partitions and config.partition_entry_point and not config.context.image:
        yield (
            f"--partitions with --partition-entry-point: expected the image in {env.IMAGE}, got none:"
            " the operator is older than this image; upgrade it"
        )
    if config.partitions and config.partition_config_path:
        yield "--partition-config-path: with --partitions the partition's JSON is the one that is kept"


def _told(error: ValidationError, name: Callable[[str], str]) -> str:
    lines = []
    for problem in error.errors():
        where = name(str(problem["loc"][0]))
        what = problem["msg"].removeprefix("Value error, ")
        lines.append(f"{where}: {what[0].lower()}{what[1:]}, got {_shown(problem['input'])!r}")
    return "\n".join(lines)


def _shown(value: object) -> object:
    """A value without what may be credentials in it: a log shows it to many."""
    return uri.shown(value) if isinstance(value, str) else value


def _flag(field: str) -> str:
    return "--output" if field == "output_uri" else "--" + field.replace("_", "-")


def _variable(field: str) -> str:
    return {
        "phase": env.PHASE,
        "mode": env.PARTITION_MODE,
        "workers": env.NUM_WORKERS,
        "gpus": env.GPUS_PER_WORKER,
        "contract": env.CONTRACT_VERSION,
        "replacement_timeout": env.REPLACEMENT_TIMEOUT,
    }.get(field, field)
