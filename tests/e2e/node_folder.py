"""A folder of the one node that every pod may write: what a claim of the mode ReadWriteMany would be."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.e2e.jobs import VERSION, image
from tests.e2e.kubectl import Kubectl, Object, Refused
from tests.support.wait import wait_for

ROOT = "/var/tmp/dgl-operator-e2e"
KEEPER = "volume-keeper"


@dataclass(frozen=True)
class NodeFolder:
    """A folder of the node.

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

    def read(self, name: str) -> str:
        """The text of a file in the folder."""
        return self.kubectl.exec(KEEPER, "cat", f"{self.path}/{name}", container="main")


@contextmanager
def made(kubectl: Kubectl) -> Iterator[NodeFolder]:
    """A fresh folder, made and removed by a pod that runs as root."""
    found = NodeFolder(kubectl, f"{ROOT}/{kubectl.namespace}")
    kubectl.apply(_keeper())
    wait_for("the keeper of the folder", lambda: _is_running(kubectl), 300)
    kubectl.exec(KEEPER, "mkdir", "-m", "0777", found.path, container="main")
    try:
        yield found
    finally:
        # A pod of the job that still ends may write a file while its folder is being removed.
        wait_for("the folder's end", lambda: _is_removed(found), 60)


def _keeper() -> Object:
    main = {
        "name": "main",
        "image": image(f"job:{VERSION}"),
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "infinity"],
        "securityContext": {"runAsUser": 0},
        "volumeMounts": [{"name": "node", "mountPath": ROOT}],
    }
    node = {"name": "node", "hostPath": {"path": ROOT, "type": "DirectoryOrCreate"}}
    spec = {"containers": [main], "volumes": [node], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": KEEPER}, "spec": spec}


def _is_removed(folder: NodeFolder) -> bool:
    try:
        folder.kubectl.exec(KEEPER, "rm", "-rf", folder.path, container="main")
    except Refused:
        return False
    return True


def _is_running(kubectl: Kubectl) -> bool | None:
    pod = kubectl.get("pod", KEEPER) or {}
    return True if pod.get("status", {}).get("phase") == "Running" else None
