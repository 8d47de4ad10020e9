"""The example's jobs on object storage, by the commands of its page: for its test and for its table."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.other import registry
from tests.e2e import s3_pod
from tests.e2e.jobs import ROOT, Job, example, main_container, moment, mount_in_workers
from tests.e2e.kubectl import Kubectl, Object, binary, call
from tests.e2e.node_folder import NodeFolder
from tests.e2e.s3_pod import S3Pod
from tests.support.wait import wait_for

EXAMPLE = "object-storage"
PAGE = ROOT / "docs/howto/object-storage.md"
CREATE, APPLY = 0, 1
"""The blocks of commands on the page, in order."""
LIMIT = 10.0
"""Seconds by which a kept partition may delay the training (issue: at most 10 s)."""
TRAINS = re.compile(r"^(\S+) Phase \d/\d: launch the training$", re.MULTILINE)


class Store:
    """The server, and the commands of the page as a user runs them.

    Attributes:
        kubectl: Of the namespace.
        pod: The server.
    """

    def __init__(self, kubectl: Kubectl, pod: S3Pod, kubeconfig: Path) -> None:
        self.kubectl, self.pod, self._kubeconfig = kubectl, pod, kubeconfig

    def run(self, block: int, **variables: str) -> None:
        """Run a block of the page's commands."""
        text = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)[block]
        tools = f"{Path(binary('kubectl')).parent}:{os.environ['PATH']}"
        chosen = {"PATH": tools, "KUBECONFIG": str(self._kubeconfig), "REGISTRY": registry(), **variables}
        words = [f"{name}={value}" for name, value in (self.pod.environ | chosen).items()]
        call("env", "-C", str(ROOT), *words, "sh", "-euc", text)

    def dglrun(self, *argv: str) -> str:
        """Run dglrun in the cluster, with the job image and the variables of the jobs."""
        environ = self.pod.environ | {"AWS_CA_BUNDLE": s3_pod.CA_FILE}
        words = [f"{name}={value}" for name, value in environ.items()]
        return self.kubectl.exec(s3_pod.POD, "env", *words, "dglrun", *argv, container="main")

    def job(self, seed: int) -> Job:
        """Create the example's job with a seed, as the page says."""
        self.run(APPLY, seed=str(seed))
        return Job(self.kubectl, f"debian-s3-{seed}")


@contextmanager
def store(kubectl: Kubectl, volume: NodeFolder, folder: Path) -> Iterator[Store]:
    """A server with the example's graph.

    Args:
        kubectl: Of the namespace.
        volume: Where the objects are.
        folder: An empty folder of this machine.
    """
    given = folder / "given"
    given.mkdir()
    with s3_pod.serving(kubectl, volume, given) as found:
        yield Store(kubectl, found, _in_namespace(kubectl, folder / "kubeconfig"))


def _in_namespace(kubectl: Kubectl, path: Path) -> Path:
    """A kubeconfig whose namespace is the test's."""
    path.write_text(kubectl.run("config", "view", "--raw", "--flatten"))
    path.chmod(0o600)
    chosen = ("config", "set-context", "--current", f"--namespace={kubectl.namespace}")
    call(binary("kubectl"), f"--kubeconfig={path}", *chosen)
    return path


def without_partitioning(volume: NodeFolder) -> Object:
    """The same training, whose partition is there at once and costs nothing."""
    body = example(EXAMPLE, "ready")
    launcher, pod = main_container(body, "Launcher"), body["spec"]["dglReplicaSpecs"]["Worker"]["template"]
    kept = ("--chunked-graph", "--partitions", "--checkpoints", "--output")
    launcher["args"] = [arg for arg in launcher["args"] if not arg.startswith(kept)]
    launcher["args"].insert(0, "--partition-entry-point=/scripts/partition_ready.py")
    scripts = {"name": "scripts", "configMap": {"name": "scripts"}}
    pod["spec"]["volumes"].append(scripts)
    main_container(body, "Worker")["volumeMounts"].append({"name": "scripts", "mountPath": "/scripts"})
    path = f"{volume.path}/{s3_pod.BUCKET}/partitions"
    mount_in_workers(body, {"hostPath": {"path": path, "type": "Directory"}}, "/ready")
    return body


def other_options() -> Object:
    """Another partition of the same graph."""
    body = example(EXAMPLE, "other")
    launcher = main_container(body, "Launcher")
    launcher["args"] = ["--partition-seed=2" if arg == "--balance-edges" else arg for arg in launcher["args"]]
    return body


def until_training(job: Job) -> float:
    """Seconds from the job's creation to its training."""

    def begins() -> re.Match[str] | None:
        return TRAINS.search(job.kubectl.run("logs", job.launcher, "-c", "main", "--timestamps"))

    begun = wait_for(f"the training of {job.name}", begins, 120)
    body = job.kubectl.get("dgljob", job.name)
    assert body is not None
    return (moment(begun[1]) - moment(body["metadata"]["creationTimestamp"])).total_seconds()
