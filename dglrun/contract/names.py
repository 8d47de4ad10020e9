"""Names of a job's objects, labels and paths: the one home of each.

The first block is the compatibility surface of the 2021 operator; scripts in users' images know it.
"""

from enum import Enum

GROUP = "qihoo.net"
VERSION = "v1alpha1"
KIND = "DGLJob"
PLURAL = "dgljobs"

LABEL_REPLICA_NAME = "dgl-replica-name"
LABEL_REPLICA_TYPE = "dgl-replica-type"
ANNOTATION_REPLICA = "dgl-replica"

LABEL_JOB = "dgl-operator/job-name"
LABEL_ROLE = "dgl-operator/role"
LABEL_INDEX = "dgl-operator/index"
LABEL_ATTEMPT = "dgl-operator/attempt"
"""Number of the attempt that a pod, or what the report ConfigMap says, belongs to; 0 without it."""
ANNOTATION_CONFIG_HASH = "dgl-operator/config-hash"
ANNOTATION_KEYS = "dgl-operator/annotation-keys"
"""On a ServiceAccount: keys of the annotations that the job gives it, parted by commas."""
ANNOTATION_MAIN = "dgl-operator/main-container"
"""Names the container by whose end a pod is judged; sidecars may run on after it."""

CONFIG_DIR = "/etc/dgl"
KUBE_DIR = "/opt/kube"
WORKSPACE = "/dgl_workspace"
DATASET_DIR = "/dgl_workspace/dataset"
OUTPUT_DIR = "/dgl_workspace/output"
CHECKPOINTS = "checkpoints"
"""Folder within a workspace: `checkpoints/<job>/rank-<n>`."""
SHM_DIR = "/dev/shm"  # noqa: S108 - the kernel's name, not a temporary file of ours

VOLUME_CONFIG = "config-volume"
VOLUME_KUBE = "kube-volume"
VOLUME_DATASET = "dataset-volume"
VOLUME_SHM = "shm-volume"
VOLUME_JOB_DATA = "job-data-volume"
"""`spec.datasetVolume` in each pod; VOLUME_DATASET is the launcher's folder for partitions alone."""

KUBEXEC = "kubexec.sh"
IPCONFIG = "ipconfig"
HOSTFILE = "hostfile"
PARTFILE = "partfile"
LEADFILE = "leadfile"

KUBECTL_DOWNLOAD = "kubectl-download"
WATCHER_PARTITIONER = "watcher-loop-partitioner"
WATCHER_WORKER = "watcher-loop-worker"

DGL_PORT = 30050
DGL_PORT_NAME = "dglserver"

MAX_JOB_NAME = 51
"""`<job>-partitioner` is a label value of at most 63 characters."""
_INDEX_DIGITS = 9


def checkpoints_of(rank: int) -> str:
    """The folder of a rank's checkpoints, wherever these are kept."""
    return f"rank-{rank}"


class Role(Enum):
    """The part a pod plays in a job; the value is its key in `dglReplicaSpecs`."""

    LAUNCHER = "Launcher"
    PARTITIONER = "Partitioner"
    WORKER = "Worker"

    @property
    def lower(self) -> str:
        """The role as it stands in object names and in our own label."""
        return self.value.lower()


class Mode(Enum):
    """How the graph is partitioned (`spec.partitionMode`)."""

    DGL_API = "DGL-API"
    PARMETIS = "ParMETIS"
    DIST_PARMETIS = "DistParMETIS"
    SKIP = "Skip"

    @property
    def has_partitioner(self) -> bool:
        """Whether a partitioner pod runs before the training."""
        return self in (Mode.DGL_API, Mode.PARMETIS)

    @property
    def has_workers(self) -> bool:
        """Whether the training runs on worker pods (Skip trains in the launcher)."""
        return self is not Mode.SKIP


def launcher(job: str) -> str:
    """The launcher pod, and its ServiceAccount, Role and RoleBinding."""
    return f"{job}-launcher"


def partitioner(job: str) -> str:
    """The partitioner pod, and its ServiceAccount, Role and RoleBinding."""
    return f"{job}-partitioner"


def worker(job: str, index: int) -> str:
    """The worker pod with this index, counted from 0; part i of the graph goes to worker i."""
    return f"{job}-worker-{index}"


def worker_account(job: str) -> str:
    """The ServiceAccount of the workers, if they have one."""
    return f"{job}-worker"


def workers(job: str, count: int) -> tuple[str, ...]:
    """All worker pods in the order of their index."""
    return tuple(worker(job, index) for index in range(count))


def config(job: str) -> str:
    """The ConfigMap with kubexec.sh and the address files."""
    return f"{job}-config"


def report(job: str) -> str:
    """The ConfigMap that the job's pods may patch to report progress."""
    return f"{job}-report"


def service(job: str) -> str:
    """The headless Service that gives the pods stable names."""
    return job


def network_policy(job: str) -> str:
    """The NetworkPolicy that admits to the pods of the job."""
    return job


def pod_group(job: str) -> str:
    """The PodGroup of the workers, which get their nodes together."""
    return f"{job}-workers"


def role_of(job: str, pod: str) -> tuple[Role, int] | None:
    """Role and worker index of a pod from its name, None for a name that the job gives to no pod."""
    if pod == launcher(job):
        return Role.LAUNCHER, 0
    if pod == partitioner(job):
        return Role.PARTITIONER, 0
    index = pod.removeprefix(worker(job, 0)[:-1])
    is_index = index.isascii() and index.isdigit() and len(index) <= _INDEX_DIGITS
    return (Role.WORKER, int(index)) if is_index and worker(job, int(index)) == pod else None
