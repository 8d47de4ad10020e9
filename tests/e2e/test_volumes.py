"""A job whose workspace lies on a volume that its launcher, partitioner and workers share."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.e2e.conftest import Submit
from tests.e2e.jobs import VERSION, image, tiny
from tests.e2e.kubectl import Kubectl, Object
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e

ROOT = "/var/tmp/dgl-operator-e2e"
KEEPER = "volume-keeper"


@dataclass(frozen=True)
class Volume:
    """A folder of the node that every pod may write, as a claim of the mode ReadWriteMany would be.

    Attributes:
        kubectl: Of the namespace in which a pod looks into the folder.
        path: The folder, on the node.
    """

    kubectl: Kubectl
    path: str

    @property
    def source(self) -> Object:
        """The volume source; the folder has to be there."""
        return {"hostPath": {"path": self.path, "type": "Directory"}}

    def find(self, *conditions: str) -> list[str]:
        """Paths relative to the folder of what meets the conditions of the program find, sorted."""
        argv = ("find", self.path, "-mindepth", "1", *conditions, "-printf", "%P\\n")
        return sorted(self.kubectl.exec(KEEPER, *argv, container="main").splitlines())


@pytest.fixture
def volume(kubectl: Kubectl) -> Iterator[Volume]:
    """A fresh folder on the one node, made and removed by a pod that runs as root."""
    found = Volume(kubectl, f"{ROOT}/{kubectl.namespace}")
    kubectl.apply(_keeper())
    wait_for("the keeper of the volume", lambda: _is_running(kubectl), 120)
    kubectl.exec(KEEPER, "mkdir", "-m", "0777", found.path, container="main")
    yield found
    kubectl.exec(KEEPER, "rm", "-rf", found.path, container="main")


def _keeper() -> Object:
    main = {
        "name": "main",
        "image": image(f"job:{VERSION}"),
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "600"],
        "securityContext": {"runAsUser": 0},
        "volumeMounts": [{"name": "node", "mountPath": ROOT}],
    }
    node = {"name": "node", "hostPath": {"path": ROOT, "type": "DirectoryOrCreate"}}
    spec = {"containers": [main], "volumes": [node], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": KEEPER}, "spec": spec}


def _is_running(kubectl: Kubectl) -> bool | None:
    pod = kubectl.get("pod", KEEPER) or {}
    return True if pod.get("status", {}).get("phase") == "Running" else None


def test_what_all_pods_share_is_not_copied(submit: Submit, volume: Volume) -> None:
    """Parts lie on the volume once, links lead to them, and the model is written where it stays."""
    body = tiny("shared", flags=("--workspace", "/data/job"))
    body["spec"] |= {
        "cleanPodPolicy": "None",
        "datasetVolume": volume.source,  # at /data, as nothing else is said
        "serviceAccountAnnotations": {"example.org/role": "reader"},
    }
    job = submit(body)

    job.wait_phase("Completed", seconds=180)

    delivered = job.kubectl.logs(f"{job.name}-partitioner", "main")
    trained = job.kubectl.logs(job.launcher, "main")
    seen = r"sees \d+ files in /data/job/dataset: nothing has to be sent"
    assert re.search(f"{job.launcher} {seen}", delivered), delivered
    assert all(re.search(f"{job.worker(index)} {seen}", trained) for index in (0, 1)), trained
    assert "checksums compared" not in delivered + trained
    assert volume.find("-name", "graph.dgl", "-type", "f") == [
        "job/dataset/part0/graph.dgl",
        "job/dataset/part1/graph.dgl",
    ]
    assert volume.find("-path", "*/workload/*") == [
        f"job/workload/{name}" for name in ("part0", "part1", "tiny.json")
    ]
    assert volume.find("-name", "model.pt") == ["job/output/model.pt"]
    assert volume.find("-name", ".dglrun-*") == []
    _require_identity(job.kubectl, job.worker(1))


def _require_identity(kubectl: Kubectl, pod: str) -> None:
    """A worker has an account of its own with the job's annotation, and no token of it."""
    found = kubectl.get("pod", pod)
    assert found is not None
    account = kubectl.get("serviceaccount", found["spec"]["serviceAccountName"])
    assert account is not None
    assert account["metadata"]["name"] == "shared-worker"
    assert account["metadata"]["annotations"]["example.org/role"] == "reader"
    assert found["spec"]["automountServiceAccountToken"] is False
